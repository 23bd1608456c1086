"""What a client lets in from a server: broadcasts that fit its public shape, tried without any sample."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vpdr.client import Client
from vpdr.flower.refusals import Code, Refused
from vpdr.types import Prototypes, Step

MOST = 1e6  # of a coordinate that a client would be drawn to


def checked(client: Client, arrays: Mapping[str, Tensor]) -> Any:
    """The broadcast, if it can be one of this framework.

    Guarantee: whether it is refused depends on the broadcast, the number of classes and the dimension only.
    """
    try:
        if not all(bool(torch.isfinite(array).all()) for array in arrays.values()):
            raise Refused(Code.BROADCAST, "numbers that are not finite")
        heard = client.framework.unpack(arrays)
        anchors = client.framework.anchors(heard)
        if anchors is not None and not _plausible(anchors, client):
            raise Refused(Code.BROADCAST, "anchors of unknown classes or of another dimension")
        _rehearse(client, heard)
        _walk(client, heard)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise Refused(Code.BROADCAST, str(error)) from error
    return heard


def _plausible(anchors: Prototypes, client: Client) -> bool:
    width, labels = client.shard.train.public.shape[1], anchors.labels
    if anchors.vectors.ndim != 2 or labels.ndim != 1 or anchors.vectors.shape != (len(labels), width):
        return False
    if float(anchors.vectors.abs().max() if len(labels) else 0) > MOST:
        return False
    return not len(labels) or (int(labels.min()) >= 0 and int(labels.max()) < client.habits.classes)


@torch.no_grad()
def _rehearse(client: Client, heard: Any) -> None:
    """The framework's loss on made-up batches: all classes together, and each of them alone.

    A broadcast that only breaks on one class would otherwise tell a server whether a client has that class.
    """
    everything = torch.arange(client.habits.classes)
    for labels in (everything, *everything.split(1)):
        rows = torch.ones(len(labels), client.shard.train.public.shape[1])
        logits = torch.zeros(len(labels), client.habits.classes)
        step = Step(rows, logits, labels, rows, torch.ones(len(labels)))
        for name, value in client.framework.losses(step, heard).items():
            if not bool(torch.isfinite(value)):
                raise Refused(Code.BROADCAST, f"it makes the loss {name!r} infinite")


@torch.no_grad()
def _walk(client: Client, heard: Any) -> None:
    """The path that later releases would take, on made-up rows: it must lead to as many dimensions."""
    path, rows = client.framework.path(heard), torch.ones(2, client.shard.train.public.shape[1])
    if path is not None and path(rows).shape != rows.shape:
        raise Refused(Code.BROADCAST, "a path to features of another shape")
