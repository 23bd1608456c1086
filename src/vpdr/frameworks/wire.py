"""Prototypes as named arrays and back, bit for bit."""

from collections.abc import Mapping

from torch import Tensor

from vpdr.types import Prototypes


def packed(name: str, prototypes: Prototypes) -> dict[str, Tensor]:
    """The arrays of one set of prototypes."""
    return {f"{name}.{part}": array for part, array in prototypes.arrays().items()}


def unpacked(name: str, arrays: Mapping[str, Tensor]) -> Prototypes:
    """The set of prototypes that was packed under this name."""
    mine = f"{name}."
    return Prototypes.from_arrays(
        {key.removeprefix(mine): a for key, a in arrays.items() if key.startswith(mine)}
    )
