"""From a plan to clients and a framework, for every engine."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.client import Client, Habits, Model, Shard
from vpdr.encoder import Adapter, make_head
from vpdr.engines.promises import ledger_of, promise_of
from vpdr.engines.shards import Progress, shards_of
from vpdr.frameworks import Framework
from vpdr.plan.combinations import framework_of, regulariser_of
from vpdr.plan.plan import Plan
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


def quiet(name: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def build(plan: Plan, progress: Progress = quiet) -> Federation:
    """Load the data and make every client as the plan says."""
    streams = Streams(plan.run.seed)
    shards, classes = shards_of(plan, streams, progress)
    framework = framework_of(plan, plan.framework.kind)
    promise = promise_of(plan, framework, classes, streams)
    start = _start(plan, classes, streams)
    clients = tuple(
        Client(
            id=name,
            shard=shards[name],
            model=copy.deepcopy(start),
            framework=framework,
            promise=promise,
            regulariser=regulariser_of(plan),
            ledger=ledger_of(plan, name),
            habits=_habits(plan, classes),
            streams=streams,
        )
        for name in sorted(shards)
    )
    return Federation(
        plan=plan,
        clients=clients,
        framework=framework,
        streams=streams,
        classes=classes,
        weights=_weights(plan, [shards[name] for name in sorted(shards)], classes),
    )


def _start(plan: Plan, classes: int, streams: Streams) -> Model:
    """The initial adapter and head: the same for all clients, as copies of one model."""
    model = plan.model
    adapter = Adapter(model.dim, model.width or 64, model.dropout, rng=streams.draw("adapter"))
    head = make_head(
        model.dim, classes, rng=streams.draw("head"), hidden=(model.hidden,), dropout=model.dropout
    )
    return Model(adapter.eval(), head.eval())


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
