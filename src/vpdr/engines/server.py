"""The server's side of a run, the same under every engine."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.frameworks import Framework, Now, ServerMemory
from vpdr.plan.plan import Plan
from vpdr.rng import Streams
from vpdr.types import Prototypes


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """It knows the plan, the clients' names and their public weights; it has no data and no models.

    Guarantee: a broadcast is computed from uploads and public numbers only, so it costs no privacy.
    """

    plan: Plan
    framework: Framework[Any]
    names: tuple[str, ...]  # sorted, so that no engine can change the clients' order
    classes: int
    weights: Float[Tensor, "m c"]  # row i belongs to names[i]

    def start(self) -> ServerMemory:
        """What it remembers before the first round."""
        return self.framework.start(self.now(0, self.names))

    def present(self, t: int) -> list[str]:
        """Who takes part: by the schedule if there is one, else by a draw that only seed and round decide."""
        part = self.plan.participation
        if part.schedule:
            return [name for name in self.names if t in part.schedule.get(name, ())]
        if part.fraction == 1 and part.dropout == 0:
            return list(self.names)
        rng, count = Streams(self.plan.run.seed).draw("participation", t=t), len(self.names)
        wanted = math.ceil(part.fraction * count - 1e-9)
        chosen = set(torch.randperm(count, generator=rng)[:wanted].tolist())
        failing = torch.rand(count, generator=rng) < part.dropout
        return [name for row, name in enumerate(self.names) if row in chosen and not bool(failing[row])]

    def generate(
        self, uploads: Mapping[str, Prototypes], memory: ServerMemory, t: int
    ) -> tuple[Any, ServerMemory]:
        """The broadcast of a round and a new memory, from the uploads of those who sent one."""
        senders = [name for name in self.names if name in uploads]
        return self.framework.generate([uploads[name] for name in senders], memory, self.now(t, senders))

    def now(self, t: int, senders: Sequence[str]) -> Now:
        """What the server may know besides the uploads."""
        rows = {name: row for row, name in enumerate(self.names)}
        return Now(
            t=t,
            classes=self.classes,
            dim=self.plan.model.dim,
            streams=Streams(self.plan.run.seed).apart("server"),
            weights=self.weights[[rows[name] for name in senders]],
        )
