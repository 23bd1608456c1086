"""Gaussian blobs: labelled features for tests and documentation, drawn in a millisecond."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.rng import Streams

_CENTRE_SPREAD = 2.0


class BlobSplit(NamedTuple):
    """Training and test samples of one client."""

    train_x: Float[Tensor, "n d"]
    train_y: Int[Tensor, " n"]
    test_x: Float[Tensor, "m d"]
    test_y: Int[Tensor, " m"]


def make_blobs(
    clients: int, classes: int, dim: int, samples_per_class: int, streams: Streams, *, shift: float = 0.5
) -> tuple[BlobSplit, ...]:
    """Gaussian features around class centres, shifted by one vector for each client.

    The class centres are the same for all clients; samples have unit variance around their shifted centre.

    Args:
        clients: the number of clients.
        classes: the number of classes.
        dim: the dimension of the features.
        samples_per_class: the number of training samples of each class, and as many for testing.
        streams: the random streams to draw from.
        shift: the standard deviation of each entry of a client's shift.

    Returns:
        The samples of each client.

    Raises:
        InvalidInput: a number is zero.

    >>> first, second = make_blobs(2, classes=3, dim=4, samples_per_class=5, streams=Streams(0))
    >>> first.train_x.shape
    torch.Size([15, 4])
    """
    if min(clients, classes, dim, samples_per_class) < 1:
        raise InvalidInput(
            "expected at least one client, class, dimension and sample, got "
            f"{clients}, {classes}, {dim} and {samples_per_class}; raise the zero"
        )
    centres = _CENTRE_SPREAD * torch.randn(classes, dim, generator=streams.generator("blobs centres"))
    labels = torch.arange(classes).repeat_interleave(samples_per_class)
    splits = []
    for client in range(clients):
        rng = streams.generator("blobs samples", client=client)
        shifted = centres + shift * torch.randn(dim, generator=rng)
        train = shifted[labels] + torch.randn(len(labels), dim, generator=rng)
        test = shifted[labels] + torch.randn(len(labels), dim, generator=rng)
        splits.append(BlobSplit(train, labels.clone(), test, labels.clone()))
    return tuple(splits)
