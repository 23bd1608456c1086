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
    part of the reply but measurements that the owner lets out anyway: neither what was paid, nor the terms of
    later releases, nor, where training is private, their encoder. The owner finds it in the log.
    """
    try:
        losses = dict(client.finetune(heard, t))
        _check_health(client, losses)
    except Exception as error:  # noqa: BLE001 - it may depend on samples
        note(f"round {t} was not learnt from: {type(error).__name__}: {error}")
        return _restored(client, heard, anew), {}
    return client, losses


def _restored(failed: Client, heard: Any, anew: Callable[[], Client]) -> Client:
    """The client before the failure, with all that was paid for since.

    A private encoder goes on from the steps that it has taken, however many: they are outputs. To take them
    back because of a loss, a head or a clean feature would be a choice between outputs that nobody paid for.
    """
    client = anew()
    client.ledger.entries = list(failed.ledger.entries)  # training is paid before it can fail, and stays paid
    client.heard = heard  # it is public, and what later releases may build on
    if client.trainer and failed.trainer:
        client.model.encoder.load_state_dict(failed.model.encoder.state_dict())
        client.trainer.resume(failed.trainer.state())
    return client


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
    """Finite settings and broadcasts can still break a model; then it is not kept.

    Where training is private this judges the head alone, which makes no release.
    """
    if not all(math.isfinite(value) for value in losses.values()):
        raise _Broken("the losses are not finite")
    judged = [client.model.head] if client.trainer else [client.model.encoder, client.model.head]
    for part in judged:
        if not all(bool(torch.isfinite(values).all()) for values in part.state_dict().values()):
            raise _Broken("the model did not survive it")
    if client.trainer:
        return
    if not bool(torch.isfinite(client.personal_features(client.shard.train)).all()):
        raise _Broken("the encoder's features are not finite")
