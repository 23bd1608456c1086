"""Gaussian blobs: features with labels for tests and documentation, made in a millisecond."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.rng import Streams

_CENTRE_SPREAD = 2.0


class Shard(NamedTuple):
    """One client's samples, split."""

    train_x: Float[Tensor, "n d"]
    train_y: Int[Tensor, " n"]
    test_x: Float[Tensor, "m d"]
    test_y: Int[Tensor, " m"]


def blobs(
    clients: int, classes: int, dim: int, samples: int, streams: Streams, *, shift: float = 0.5
) -> tuple[Shard, ...]:
    """One shard a client, with `samples` of each class in training and as many in test.

    The class centres are the same for all clients; each client moves all of its samples by one vector of
    its own, whose entries have the standard deviation `shift`. Samples scatter around it with unit variance.
    """
    if min(clients, classes, dim, samples) < 1:
        raise InvalidInput(
            "expected at least one client, class, dimension and sample, got "
            f"{clients}, {classes}, {dim} and {samples}; raise the zero"
        )
    centres = _CENTRE_SPREAD * torch.randn(classes, dim, generator=streams.draw("blobs centres"))
    labels = torch.arange(classes).repeat_interleave(samples)
    shards = []
    for client in range(clients):
        rng = streams.draw("blobs samples", client=client)
        moved = centres + shift * torch.randn(dim, generator=rng)
        train = moved[labels] + torch.randn(len(labels), dim, generator=rng)
        test = moved[labels] + torch.randn(len(labels), dim, generator=rng)
        shards.append(Shard(train, labels.clone(), test, labels.clone()))
    return tuple(shards)
