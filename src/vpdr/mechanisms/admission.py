"""The door of every mechanism: what comes in is checked before anything is computed from it."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.mechanisms.base import Array, Occasion
from vpdr.types import Features


def admit(vectors: Array, labels: Array, occasion: Occasion) -> Features:
    """Features in double precision on the CPU, or one line that names the client and what is wrong."""
    who = occasion.client
    rows, classes = _vectors(vectors, who), _labels(labels, who)
    if len(rows) != len(classes):
        raise InvalidInput(f"{who}: expected one label for each feature, got {len(rows)} and {len(classes)}")
    if len(classes) and int(classes.min()) < 0:
        raise InvalidInput(f"{who}: labels must not be negative, got {int(classes.min())}")
    if occasion.classes is not None and len(classes) and int(classes.max()) >= occasion.classes:
        raise InvalidInput(f"{who}: labels must be below {occasion.classes}, got {int(classes.max())}")
    return Features(rows, classes)


def _vectors(vectors: Array, who: str) -> Float[Tensor, "n d"]:
    found = _tensor(vectors, who, "features")
    if found.ndim != 2 or found.shape[1] == 0:
        raise InvalidInput(
            f"{who}: expected features of shape [samples, dimensions], got {list(found.shape)}"
        )
    if not found.is_floating_point():
        raise InvalidInput(f"{who}: expected features as floating-point numbers, got {found.dtype}")
    found = found.detach().to("cpu", torch.float64)
    # a finite sum proves all parts finite, and costs a tenth of looking at each of them
    if not bool(found.sum().isfinite()) and not bool(found.isfinite().all()):
        bad = int((~found.isfinite()).any(dim=1).sum())
        raise InvalidInput(
            f"{who}: {bad} of {len(found)} features hold NaN or infinity; nothing was released, "
            "check the data and the encoder that made them"
        )
    return found


def _labels(labels: Array, who: str) -> Int[Tensor, " n"]:
    found = _tensor(labels, who, "labels")
    if found.ndim != 1:
        raise InvalidInput(f"{who}: expected labels of shape [samples], got {list(found.shape)}")
    if found.is_floating_point() or found.is_complex() or found.dtype is torch.bool:
        raise InvalidInput(f"{who}: expected labels as integers, got {found.dtype}")
    return found.detach().to("cpu", torch.int64)


def _tensor(value: Any, who: str, what: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    try:
        return torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{who}: expected {what} as a torch or numpy array, got {type(value).__name__}"
        ) from error
