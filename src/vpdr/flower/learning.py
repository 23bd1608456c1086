"""Work on private samples whose failure must not shape a reply: training, and what is measured after it."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from vpdr.client import Client
from vpdr.engines.simulate import measures
from vpdr.errors import VpdrError

Note = Callable[[str], None]


def learnt(
    client: Client, heard: Any, t: int, anew: Callable[[], Client], note: Note
) -> tuple[Client, dict[str, float]]:
    """Fine-tune on a broadcast that was checked; where that fails, the client as it was before.

    Guarantee: whether training failed, which samples and a server's settings decide together, changes no
    part of the reply but measurements that the owner lets out anyway: neither what was paid nor the terms of
    later releases. The owner finds it in the log.
    """
    try:
        losses = dict(client.finetune(heard, t))
        _check_health(client, losses)
    except Exception as error:  # noqa: BLE001 - it may depend on samples
        note(f"round {t} was not learnt from: {type(error).__name__}: {error}")
        paid, client = client.ledger.entries, anew()
        client.ledger.entries = list(paid)  # training is paid for before it can fail, and stays paid
        client.heard = heard  # it is public, and what later releases may build on
        return client, {}
    return client, losses


def measured(client: Client, tested: bool, note: Note) -> dict[str, Any]:
    """What the client measures of itself, or empty tables where that fails."""
    try:
        return measures(client, tested)
    except Exception as error:  # noqa: BLE001 - as above
        note(f"nothing could be measured: {type(error).__name__}: {error}")
    return {**measures(client, tested=False), "release": {}}


class _Broken(VpdrError):
    """A model that must not be kept."""


@torch.no_grad()
def _check_health(client: Client, losses: Mapping[str, float]) -> None:
    """Finite settings and broadcasts can still break a model; then no release may be made with it."""
    if not all(math.isfinite(value) for value in losses.values()):
        raise _Broken("the losses are not finite")
    for part in (client.model.encoder, client.model.head):
        if not all(bool(torch.isfinite(values).all()) for values in part.state_dict().values()):
            raise _Broken("the model did not survive it")
    if not bool(torch.isfinite(client.personal_features(client.shard.train)).all()):
        raise _Broken("the encoder's features are not finite")
