"""What is audited: a client exactly as a run would make it, and a server that answers it."""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from vpdr.client import Client, Model, Samples, Shard
from vpdr.engines.build import build
from vpdr.engines.promises import ledger_of
from vpdr.errors import InvalidInput
from vpdr.frameworks import Framework, Now, ServerMemory
from vpdr.mechanisms import NoiseSource
from vpdr.plan.plan import Plan
from vpdr.privacy import Adjacency, Ledger
from vpdr.rng import Streams
from vpdr.types import Prototypes

Transcript: TypeAlias = tuple[Prototypes, ...]  # all that one client sent, round by round
Server: TypeAlias = Callable[[int, Prototypes], Prototypes]  # what it pretends to have been sent


@dataclass(frozen=True, slots=True)
class Told:
    """All that an attacker has of one run: uploads, and what a public memory shows, round by round."""

    sent: Transcript = ()
    kept: Transcript = ()


def honest(_: int, upload: Prototypes) -> Prototypes:
    """A server that works on what it is sent."""
    return upload


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The client, the framework and the number of releases of one plan.

    Everything but the noise is known to the attacker: data of all other samples, first weights, the order
    of batches, every broadcast. That is what differential privacy promises to survive.
    """

    plan: Plan
    client: Client  # as the plan builds it; every audited client is a copy with other data
    releases: int
    server: Server = honest
    streams: Streams = field(default_factory=lambda: Streams(0))

    @classmethod
    def of(cls, plan: Plan, releases: int | None = None) -> "Subject":
        """The first client of the plan's own federation."""
        client = build(plan).clients[0]
        if not client.framework.uploads:
            raise InvalidInput(
                f"framework {plan.framework.kind} sends nothing, so there is nothing to audit; choose another"
            )
        streams = Streams(plan.run.seed).apart("audit")
        return cls(plan=plan, client=client, releases=releases or plan.releases, streams=streams)

    @property
    def framework(self) -> Framework[Any]:
        """How the server answers."""
        return self.client.framework

    @property
    def classes(self) -> int:
        """The public number of classes."""
        return self.client.habits.classes

    @property
    def dim(self) -> int:
        """The dimension of the features."""
        return self.plan.model.dim

    @property
    def radius(self) -> float:
        """The clip norm R."""
        return self.client.promise.clip_norm

    @property
    def adjacency(self) -> Adjacency:
        """Which datasets are neighbours."""
        return self.client.promise.mechanism.adjacency

    def with_data(self, train: Samples, noise: NoiseSource, model: Model | None = None) -> Client:
        """A fresh client with these samples, this noise and a ledger without a limit."""
        nothing = train.take(torch.zeros(0, dtype=torch.int64))
        return dataclasses.replace(
            self.client,
            id="audited",
            shard=Shard(train, nothing),
            model=model or copy.deepcopy(self.client.model),
            promise=dataclasses.replace(self.client.promise, noise=lambda *_: noise),
            ledger=Ledger(client="audited", budget=None, adjacency=self.adjacency),
        )

    def paying(self, train: Samples, noise: NoiseSource) -> Client:
        """The same client with the ledger of a real run, for what it claims."""
        return dataclasses.replace(self.with_data(train, noise), ledger=ledger_of(self.plan, "audited"))

    def answer(self, t: int, upload: Prototypes, memory: ServerMemory) -> tuple[Any, ServerMemory]:
        """The broadcast that the framework makes of this client's upload alone."""
        return self.framework.generate([self.server(t, upload)], memory, self.now(t))

    def now(self, t: int) -> Now:
        """What the server knows besides."""
        everybody = torch.ones(1, self.classes)
        return Now(t=t, classes=self.classes, dim=self.dim, streams=self.streams, weights=everybody)

    def nothing(self) -> Prototypes:
        """An upload that was not made."""
        return Prototypes(torch.zeros(0, self.dim), torch.zeros(0, dtype=torch.int64))


def hostile(subject: Subject, target: Tensor) -> Server:
    """A server that lies: centres on the sample it is after, far behind it, opposite, and nowhere.

    Nowhere shows the most of a far sample; with five releases the last one hears it, where rapp spends most.
    """
    labels = torch.arange(subject.classes)
    lies = (0.0, 1.0, 1e3, -1.0)

    def server(t: int, _: Prototypes) -> Prototypes:
        centre = lies[t % len(lies)] * target.float()
        return Prototypes(centre.expand(len(labels), -1).clone(), labels)

    return server
