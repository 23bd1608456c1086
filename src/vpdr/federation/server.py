"""The server of a run: who takes part in a round, and the aggregation of uploads."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.config import RunConfig
from vpdr.frameworks import Framework, FrameworkState, ServerContext
from vpdr.rng import Streams
from vpdr.types import Prototypes


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """The server: it knows the config, the clients' names and public weights; it has no data and no models.

    Guarantee: a broadcast is computed from uploads and public numbers only, so it costs no privacy.

    Args:
        config: the config of the run.
        framework: how uploads are aggregated.
        names: the clients' names, sorted.
        classes: the public number of classes.
        weights: the weight of each client in each class; row i belongs to names[i].

    >>> from vpdr.config import RunConfig
    >>> from vpdr.federation import build
    >>> server = build(RunConfig.from_dict({"benchmark": {"kind": "synthetic"}, "model": {"dim": 8}})).server
    >>> server.sample_participants(1) == list(server.names)
    True
    """

    config: RunConfig
    framework: Framework[Any]
    names: tuple[str, ...]
    classes: int
    weights: Float[Tensor, "m c"]

    def init_state(self) -> FrameworkState:
        """The framework's state before the first round."""
        return self.framework.init_state(self.context(0, self.names))

    def sample_participants(self, round: int) -> list[str]:
        """The clients of a round: by the schedule if there is one, else drawn from seed and round alone."""
        section = self.config.participation
        if section.schedule:
            return [name for name in self.names if round in section.schedule.get(name, ())]
        if section.fraction == 1 and section.dropout == 0:
            return list(self.names)
        rng, count = Streams(self.config.run.seed).generator("participation", round=round), len(self.names)
        num_sampled = math.ceil(section.fraction * count - 1e-9)
        sampled = set(torch.randperm(count, generator=rng)[:num_sampled].tolist())
        fails = torch.rand(count, generator=rng) < section.dropout
        return [name for row, name in enumerate(self.names) if row in sampled and not bool(fails[row])]

    def aggregate(
        self, uploads: Mapping[str, Prototypes], state: FrameworkState, round: int
    ) -> tuple[Any, FrameworkState]:
        """The broadcast of a round and the framework's new state, from the uploads by client."""
        senders = [name for name in self.names if name in uploads]
        return self.framework.aggregate([uploads[name] for name in senders], state, self.context(round, senders))

    def context(self, round: int, senders: Sequence[str]) -> ServerContext:
        """What the server may use besides the uploads of these clients."""
        rows = {name: row for row, name in enumerate(self.names)}
        return ServerContext(
            round=round,
            classes=self.classes,
            dim=self.config.model.dim,
            streams=Streams(self.config.run.seed).fork("server"),
            weights=self.weights[[rows[name] for name in senders]],
        )
