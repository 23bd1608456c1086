"""A noise source that is silent, to learn what a mechanism would say without noise."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Silence:
    """Every draw is the middle of its distribution.

    Guarantee: none. What is released with it never leaves the audit.
    """

    @property
    def reproducible(self) -> bool:
        """Nothing is drawn at all."""
        return True

    def normal(self, *shape: int) -> Float[Tensor, "..."]:
        """The median of a Gaussian."""
        return torch.zeros(shape, dtype=torch.float64)

    def uniform(self, *shape: int) -> Float[Tensor, "..."]:
        """The median of the unit interval."""
        return torch.full(shape, 0.5, dtype=torch.float64)
