"""Prototypes as named arrays and back, bit for bit."""

from collections.abc import Mapping

from torch import Tensor

from vpdr.types import Prototypes


def packed(name: str, prototypes: Prototypes) -> dict[str, Tensor]:
    """The arrays of one set of prototypes."""
    arrays = {f"{name}.vectors": prototypes.vectors, f"{name}.labels": prototypes.labels}
    if prototypes.variances is not None:
        arrays[f"{name}.variances"] = prototypes.variances
    return arrays


def unpacked(name: str, arrays: Mapping[str, Tensor]) -> Prototypes:
    """The set of prototypes that was packed under this name."""
    return Prototypes(arrays[f"{name}.vectors"], arrays[f"{name}.labels"], arrays.get(f"{name}.variances"))
