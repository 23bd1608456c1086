"""Small private trainings."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from tests.unit.federation.conftest import tiny
from vpdr.client import Client, Samples, Shard
from vpdr.config import RunConfig
from vpdr.federation import build
from vpdr.mechanisms import SeededNoise

PRIVATE = ("train.privacy=dpsgd", "release.encoder=personal", "budget.epsilon=8")


class NoNoise:
    """A noise source without noise."""

    reproducible = True

    def rounded_gaussian(self, scales: Tensor) -> Tensor:
        return torch.zeros_like(scales)

    def discrete_laplace(self, scales: Tensor) -> Tensor:
        return torch.zeros_like(scales)


def private(*settings: str) -> RunConfig:
    return tiny(*PRIVATE, *settings)


def with_train(client: Client, train: Samples, **changes: Any) -> Client:
    """A fresh client like this one, with other samples."""
    return dataclasses.replace(client, shard=Shard(train, client.shard.test), **changes)


def client_and_broadcast(config: RunConfig) -> tuple[Client, Any]:
    """A client before its first training, and a broadcast for it."""
    federation = build(config)
    uploads = {client.id: client.release(1) for client in federation.clients}
    broadcast, _ = federation.server.aggregate(uploads, federation.server.init_state(), 1)
    return federation.clients[0], broadcast


def encoder_parameters(client: Client) -> Tensor:
    return torch.cat([each.detach().flatten() for each in client.model.encoder.parameters()])


def seeded(seed: int = 0) -> SeededNoise:
    return SeededNoise(torch.Generator().manual_seed(seed))
