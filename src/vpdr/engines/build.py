"""From a plan to clients and a framework, for every engine."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.client import Client, Habits, Model, Promise, Shard
from vpdr.data import Manifest
from vpdr.encoder import Shape, make_encoder, make_head
from vpdr.engines.promises import ledger_of, promise_of
from vpdr.engines.seats import Seat, seats_of
from vpdr.engines.server import Server
from vpdr.frameworks import Framework
from vpdr.plan.combinations import framework_of, regulariser_of
from vpdr.plan.plan import Plan
from vpdr.progress import Progress, quiet
from vpdr.rng import Streams


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Everything that takes part in one run."""

    plan: Plan
    clients: tuple[Client, ...]  # sorted by id, so that no engine can change their order
    framework: Framework[Any]
    streams: Streams
    classes: int
    weights: Float[Tensor, "m c"]  # public weights of the clients
    seats: dict[str, Seat]
    manifest: Manifest | None = None  # who has which rows, where the data are a real benchmark

    @property
    def server(self) -> Server:
        """The side that has no data."""
        return Server(
            plan=self.plan,
            framework=self.framework,
            names=tuple(client.id for client in self.clients),
            classes=self.classes,
            weights=self.weights,
        )


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """What all clients of a plan have in common; each is cut from it with its own data."""

    plan: Plan
    classes: int
    framework: Framework[Any]
    promise: Promise
    streams: Streams

    @classmethod
    def of(cls, plan: Plan, classes: int) -> "Pattern":
        """As the plan says; no data are needed for it."""
        streams = Streams(plan.run.seed)
        framework = framework_of(plan, plan.framework.kind)
        return cls(
            plan=plan,
            classes=classes,
            framework=framework,
            promise=promise_of(plan, framework, classes, streams),
            streams=streams,
        )

    def client(self, name: str, seat: Seat) -> Client:
        """A client before its first round."""
        return Client(
            id=name,
            shard=seat.shard,
            model=self._start(seat),
            framework=self.framework,
            promise=self.promise,
            regulariser=regulariser_of(self.plan),
            ledger=ledger_of(self.plan, name),
            habits=_habits(self.plan, self.classes),
            streams=self.streams,
        )

    def _start(self, seat: Seat) -> Model:
        """The initial encoder and head: drawn from the same streams, so alike wherever shapes are."""
        model, member, streams = self.plan.model, seat.member, self.streams
        shape = Shape(adapters=model.adapters, width=member.width, dropout=model.dropout)
        encoder = make_encoder(shape, model.dim, seat.trunk, rng=streams.draw("adapter"))
        head = make_head(
            model.dim, self.classes, rng=streams.draw("head"), hidden=member.hidden, dropout=model.dropout
        )
        return Model(encoder.eval(), head.eval())


def build(plan: Plan, progress: Progress = quiet) -> Federation:
    """Load the data and make every client as the plan says."""
    seats = seats_of(plan, Streams(plan.run.seed), progress)
    pattern = Pattern.of(plan, seats.classes)
    names = sorted(seats.clients)
    return Federation(
        plan=plan,
        clients=tuple(pattern.client(name, seats.clients[name]) for name in names),
        framework=pattern.framework,
        streams=pattern.streams,
        classes=seats.classes,
        weights=_weights(plan, [seats.clients[name].shard for name in names], seats.classes),
        seats=seats.clients,
        manifest=seats.manifest,
    )


def _habits(plan: Plan, classes: int) -> Habits:
    train = plan.train
    return Habits(
        classes=classes,
        epochs=train.epochs,
        batch=train.batch,
        lr=train.lr,
        weight_decay=train.weight_decay,
    )


def _weights(plan: Plan, shards: list[Shard], classes: int) -> Float[Tensor, "m c"]:
    """Sizes come from the plan's own data, and only where the plan declares them public."""
    counts = torch.stack([torch.bincount(shard.train.labels, minlength=classes) for shard in shards])
    made = {
        "uniform": torch.ones(len(shards), classes),
        "client_size": counts.sum(1, keepdim=True).expand(-1, classes).float(),
        "class_count": counts.float(),
    }
    return made[plan.weights.kind]
