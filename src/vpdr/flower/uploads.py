"""What a server lets in: uploads that can be prototypes, and facts that can be facts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from vpdr.errors import InvalidInput
from vpdr.flower.errand import Answer
from vpdr.flower.refusals import Code
from vpdr.privacy import Entry
from vpdr.privacy.entries import unpack_entry
from vpdr.types import Prototypes

MOST_PER_CLASS = 1000  # prototypes that one client may send of one class
MOST_NUMBERS = 1000  # measurements that one client may tell


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """The public shape of a run: whatever does not fit is dropped, with the reason in the record."""

    classes: int
    dim: int
    most_norm: float

    def fault(self, upload: Prototypes) -> str | None:
        """Why an upload cannot be used, or None."""
        vectors, labels, variances = upload.vectors, upload.labels, upload.variances
        if vectors.ndim != 2 or vectors.shape[1] != self.dim or labels.shape != vectors.shape[:1]:
            return "shape"
        if vectors.dtype != torch.float32 or labels.dtype != torch.int64:
            return "kind of numbers"
        if len(labels) > self.classes * MOST_PER_CLASS:
            return "too many"
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            return "labels"
        if not bool(torch.isfinite(vectors).all()):
            return "not finite"
        if bool((vectors.double().norm(dim=1) > self.most_norm).any()):
            return "norm"
        if variances is not None and (variances.shape != labels.shape or not bool((variances >= 0).all())):
            return "variances"
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a client tells besides its upload."""

    classes: int
    why: str  # a code where it had nothing to send
    entries: tuple[Entry, ...]  # receipts of its releases that the server did not know
    measured: Mapping[str, Any]
    seconds: float


def facts_of(answer: Answer) -> Facts | None:
    """The facts of an answer, or None where they are none."""
    told = answer.facts
    try:
        if type(told["classes"]) is not int or told["classes"] < 1 or told["why"] not in ("", *Code):
            return None
        return Facts(
            classes=told["classes"],
            why=told["why"],
            entries=tuple(unpack_entry(entry) for entry in told["entries"]),
            measured=_measured(told["measured"]),
            seconds=float(told["seconds"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, InvalidInput):
        return None


_NAMES = {"losses": 1, "accuracy": 2, "features": 1, "release": 1, "epsilon": 0, "seconds": 1}


def _measured(told: Any) -> dict[str, Any]:
    """Numbers under known names, at most as deep as each of them goes."""
    if not isinstance(told, dict) or len(json_leaves(told)) > MOST_NUMBERS:
        raise InvalidInput("expected measurements by name")
    return {name: _numbers(told[name], depth) for name, depth in _NAMES.items() if name in told}


def json_leaves(value: Any) -> list[Any]:
    """All values of nested tables."""
    if not isinstance(value, dict):
        return [value]
    return [leaf for inner in value.values() for leaf in json_leaves(inner)]


def _numbers(value: Any, depth: int) -> Any:
    if depth == 0:
        number = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        if not number or (isinstance(value, float) and math.isinf(value)):
            raise InvalidInput(f"expected a number, got {type(value).__name__}")
        return value
    if not isinstance(value, dict) or not all(isinstance(key, str) and len(key) < 64 for key in value):
        raise InvalidInput("expected numbers by name")
    return {key: _numbers(inner, depth - 1) for key, inner in value.items()}
