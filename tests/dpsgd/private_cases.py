"""Small private trainings."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from tests.engines.conftest import tiny
from vpdr.client import Client, Samples, Shard
from vpdr.engines.build import build
from vpdr.mechanisms import SeededNoise
from vpdr.plan import Plan

PRIVATE = ("train.privacy=dpsgd", "release.encoder=personal", "budget.epsilon=8")


class Silent:
    """Noise that is none, to see what a step would be without it."""

    reproducible = True

    def normal(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64)

    def uniform(self, *shape: int) -> Tensor:
        return torch.full(shape, 0.5, dtype=torch.float64)


def private(*settings: str) -> Plan:
    return tiny(*PRIVATE, *settings)


def with_train(client: Client, train: Samples, **changes: Any) -> Client:
    """A fresh client like this one, with other samples."""
    return dataclasses.replace(client, shard=Shard(train, client.shard.test), **changes)


def answered(plan: Plan) -> tuple[Client, Any]:
    """A client before its first training, and a broadcast for it."""
    federation = build(plan)
    uploads = {client.id: client.release(1) for client in federation.clients}
    broadcast, _ = federation.server.generate(uploads, federation.server.start(), 1)
    return federation.clients[0], broadcast


def encoder_of(client: Client) -> Tensor:
    return torch.cat([each.detach().flatten() for each in client.model.encoder.parameters()])


def seeded(seed: int = 0) -> SeededNoise:
    return SeededNoise(torch.Generator().manual_seed(seed))
