"""MPFT's broadcast: a residual adapter and a head, as plain tensors."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.frameworks import ops
from vpdr.frameworks.training import Parameters
from vpdr.types import Prototypes

TRUST = "trust"
HEAD = ("hidden.weight", "hidden.bias", "out.weight", "out.bias")
_ADAPTER = ("down", "up")
_WIDE = ("down", "out.weight")


@dataclass(frozen=True, slots=True)
class Teacher:
    """The server's adapter and head; without parameters as long as there was nothing to train on."""

    parameters: Parameters


def adapted(
    model: Parameters, rows: Float[Tensor, "b d"], narrow: Tensor | float = 1.0
) -> Float[Tensor, "b d"]:
    """Rows through the adapter, each on its own; a mask of dropout only in training."""
    down, up = (model[name].to(rows) for name in _ADAPTER)
    return rows + F.linear(F.linear(rows, down).relu() * narrow, up)


def scores(model: Parameters, rows: Float[Tensor, "b d"], wide: Tensor | float = 1.0) -> Float[Tensor, "b c"]:
    """The head on features that the adapter has made; a mask of dropout only in training."""
    hidden = F.linear(rows, model["hidden.weight"], model["hidden.bias"]).relu() * wide
    return F.linear(hidden, model["out.weight"], model["out.bias"])


def check_teacher(arrays: Mapping[str, Tensor]) -> None:
    """All parameters, of shapes that fit each other; `trust`, if it is there, for every class."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if set(shapes) - {TRUST} != {*_ADAPTER, *HEAD} or any(len(shapes[name]) != 2 for name in _WIDE):
        raise InvalidInput(f"expected the parameters of a teacher, got {shapes}")
    (narrow, dim), (classes, hidden) = shapes["down"], shapes["out.weight"]
    expected: dict[str, tuple[int, ...]] = {"down": (narrow, dim)}
    expected |= {"up": (dim, narrow), "hidden.weight": (hidden, dim)}
    expected |= {"hidden.bias": (hidden,), "out.weight": (classes, hidden), "out.bias": (classes,)}
    if shapes != expected | ({TRUST: (classes,)} if TRUST in shapes else {}):
        raise InvalidInput(f"expected a teacher of shapes {expected}, got {shapes}")


def known_trust(overall: Prototypes, classes: int) -> Parameters:
    """How far the teacher is to be followed in each class, where the noise it learnt from is published."""
    if overall.variances is None:
        return {}
    return {TRUST: ops.class_trust(overall, classes).float()}
