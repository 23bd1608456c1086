"""Validation of received data: broadcasts on the client, uploads and metadata on the server."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vpdr.client import Client
from vpdr.errors import InvalidInput
from vpdr.flower.messages import RoundReply
from vpdr.flower.owner import Refusal, RefusalCode
from vpdr.privacy import LedgerEntry, entry_from_dict
from vpdr.types import Prototypes, TrainBatch

MAX_BROADCAST_COORDINATE = 1e6  # of a global prototype
MAX_PROTOTYPES_PER_CLASS = 1000  # in one upload
MAX_METRIC_VALUES = 1000  # in one reply
_METRIC_DEPTHS = {"losses": 1, "accuracy": 2, "features": 1, "release": 1, "epsilon": 0, "seconds": 1}


def validate_broadcast(client: Client, arrays: Mapping[str, Tensor]) -> Any:
    """Decode a broadcast and check that the client can use it; no sample is read.

    Raises:
        Refusal: `broadcast`.

    Guarantee: a refusal depends on the broadcast, the number of classes and the dimension only.
    """
    try:
        if not all(bool(torch.isfinite(array).all()) for array in arrays.values()):
            raise Refusal(RefusalCode.BROADCAST, "not all values are finite")
        broadcast = client.framework.unpack(arrays)
        prototypes = client.framework.global_prototypes(broadcast)
        if prototypes is not None and not _shapes_fit(prototypes, client):
            raise Refusal(RefusalCode.BROADCAST, "prototypes of unknown classes or another dimension")
        _dry_run_losses(client, broadcast)
        _check_feature_map(client, broadcast)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise Refusal(RefusalCode.BROADCAST, str(error)) from error
    return broadcast


def _shapes_fit(prototypes: Prototypes, client: Client) -> bool:
    dim, vectors, labels = _feature_dim(client), prototypes.vectors, prototypes.labels
    if vectors.ndim != 2 or labels.ndim != 1 or vectors.shape != (len(labels), dim):
        return False
    if not len(labels):
        return True
    if float(vectors.abs().max()) > MAX_BROADCAST_COORDINATE:
        return False
    return int(labels.min()) >= 0 and int(labels.max()) < client.train_config.classes


def _feature_dim(client: Client) -> int:
    return client.shard.train.frozen_features.shape[1]


@torch.no_grad()
def _dry_run_losses(client: Client, broadcast: Any) -> None:
    """Compute the losses on artificial batches: all classes together, and each class alone.

    Otherwise a broadcast that fails for one class only would reveal whether the client has that class.
    """
    all_classes = torch.arange(client.train_config.classes)
    for labels in (all_classes, *all_classes.split(1)):
        rows = torch.ones(len(labels), _feature_dim(client))
        logits = torch.zeros(len(labels), client.train_config.classes)
        batch = TrainBatch(rows, logits, labels, rows, torch.ones(len(labels)))
        for name, value in client.framework.losses(batch, broadcast).items():
            if not bool(torch.isfinite(value)):
                raise Refusal(RefusalCode.BROADCAST, f"the loss {name!r} is not finite")


@torch.no_grad()
def _check_feature_map(client: Client, broadcast: Any) -> None:
    """Apply the feature map of later releases to artificial rows; it must keep their shape."""
    feature_map, rows = client.framework.feature_map(broadcast), torch.ones(2, _feature_dim(client))
    if feature_map is not None and feature_map(rows).shape != rows.shape:
        raise Refusal(RefusalCode.BROADCAST, "the feature map changes the shape of features")


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadValidator:
    """The public shape of uploads; others are dropped, with the reason in the record."""

    classes: int
    dim: int
    max_norm: float

    def reason_to_reject(self, upload: Prototypes) -> str | None:
        """Why an upload cannot be used, or None."""
        vectors, labels, variances = upload.vectors, upload.labels, upload.variances
        if vectors.ndim != 2 or vectors.shape[1] != self.dim or labels.shape != vectors.shape[:1]:
            return "shape"
        if vectors.dtype != torch.float32 or labels.dtype != torch.int64:
            return "kind of numbers"
        if len(labels) > self.classes * MAX_PROTOTYPES_PER_CLASS:
            return "too many"
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            return "labels"
        if not bool(torch.isfinite(vectors).all()):
            return "not finite"
        if bool((vectors.double().norm(dim=1) > self.max_norm).any()):
            return "norm"
        if variances is not None and (variances.shape != labels.shape or not bool((variances >= 0).all())):
            return "variances"
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyMetadata:
    """The metadata of a reply."""

    classes: int
    no_upload_reason: str  # a refusal code, or empty
    entries: tuple[LedgerEntry, ...]  # receipts that are new to the server
    metrics: Mapping[str, Any]
    release_seconds: float


def parse_metadata(reply: RoundReply) -> ReplyMetadata | None:
    """The metadata of a reply, or None if they are invalid."""
    data = reply.metadata
    try:
        if type(data["classes"]) is not int or data["classes"] < 1 or data["why"] not in ("", *RefusalCode):
            return None
        return ReplyMetadata(
            classes=data["classes"],
            no_upload_reason=data["why"],
            entries=tuple(entry_from_dict(entry) for entry in data["entries"]),
            metrics=_parse_metrics(data["measured"]),
            release_seconds=float(data["seconds"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, InvalidInput):
        return None


def _parse_metrics(data: Any) -> dict[str, Any]:
    """Numbers under known names, nested as deep as each name allows."""
    if not isinstance(data, dict) or len(_leaves(data)) > MAX_METRIC_VALUES:
        raise InvalidInput(f"expected a table of at most {MAX_METRIC_VALUES} metrics")
    return {name: _parse_numbers(data[name], depth) for name, depth in _METRIC_DEPTHS.items() if name in data}


def _leaves(value: Any) -> list[Any]:
    """All values of nested dictionaries."""
    if not isinstance(value, dict):
        return [value]
    return [leaf for inner in value.values() for leaf in _leaves(inner)]


def _parse_numbers(value: Any, depth: int) -> Any:
    if depth == 0:
        is_number = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        if not is_number or (isinstance(value, float) and math.isinf(value)):
            raise InvalidInput(f"expected a number, got {type(value).__name__}")
        return value
    if not isinstance(value, dict) or not all(isinstance(key, str) and len(key) < 64 for key in value):
        raise InvalidInput("expected numbers by name")
    return {key: _parse_numbers(inner, depth - 1) for key, inner in value.items()}
