"""Fine-tuning and evaluation on private samples, whose failure must not change the reply."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from vpdr.client import Client, evaluate_client
from vpdr.errors import VpdrError

LogFunction = Callable[[str], None]


def finetune_or_restore(
    client: Client, broadcast: Any, round: int, reload_client: Callable[[], Client], log: LogFunction
) -> tuple[Client, dict[str, float]]:
    """Fine-tune on a validated broadcast; if that fails, return the client as it was before.

    Guarantee: samples and a server's settings together decide whether training fails, so a failure changes
    no part of the reply but metrics that the policy allows anyway: neither what was charged, nor the terms of
    later releases, nor, with DP-SGD, their encoder. It is recorded in the owner's log.
    """
    try:
        losses = dict(client.finetune(broadcast, round))
        _check_finite(client, losses)
    except Exception as error:  # noqa: BLE001 - it may depend on samples
        log(f"round {round}: fine-tuning failed: {type(error).__name__}: {error}")
        return _restore_client(client, broadcast, reload_client), {}
    return client, losses


def _restore_client(failed: Client, broadcast: Any, reload_client: Callable[[], Client]) -> Client:
    """The client before the failure, with everything that was charged since.

    An encoder trained with DP-SGD keeps the steps it has taken: they are private outputs. Undoing them
    because of a loss, a head or a noiseless feature would choose between outputs without being accounted for.
    """
    client = reload_client()
    client.ledger.entries = list(failed.ledger.entries)  # training is charged before it starts
    client.last_broadcast = broadcast  # public; later releases may use it
    if client.dpsgd_trainer and failed.dpsgd_trainer:
        client.model.encoder.load_state_dict(failed.model.encoder.state_dict())
        client.dpsgd_trainer.load_state_dict(failed.dpsgd_trainer.state_dict())
    return client


def evaluate_or_empty(client: Client, measure_accuracy: bool, log: LogFunction) -> dict[str, Any]:
    """The metrics of the client, or empty tables if the evaluation fails."""
    try:
        return evaluate_client(client, measure_accuracy)
    except Exception as error:  # noqa: BLE001 - it may depend on samples
        log(f"evaluation failed: {type(error).__name__}: {error}")
    return {**evaluate_client(client, measure_accuracy=False), "release": {}}


class _DivergedModel(VpdrError):
    """A model with values that are not finite."""


@torch.no_grad()
def _check_finite(client: Client, losses: Mapping[str, float]) -> None:
    """Raise if training diverged; with DP-SGD only the head is checked, which takes no part in releases."""
    if not all(math.isfinite(value) for value in losses.values()):
        raise _DivergedModel("the losses are not finite")
    modules = [client.model.head] if client.dpsgd_trainer else [client.model.encoder, client.model.head]
    for module in modules:
        if not all(bool(torch.isfinite(values).all()) for values in module.state_dict().values()):
            raise _DivergedModel("the model's parameters are not finite")
    if client.dpsgd_trainer:
        return
    if not bool(torch.isfinite(client.personal_features(client.shard.train)).all()):
        raise _DivergedModel("the encoder's features are not finite")
