"""Pooled features as inputs, for encoders that train nothing before their projection."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Vectors:
    """One vector a sample, in memory. Private."""

    rows: Float[Tensor, "n p"]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Int[Tensor, " m"]) -> "Vectors":
        """These samples only."""
        return Vectors(self.rows[rows])

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> Float[Tensor, "b p"]:
        """These vectors; there is nothing to augment."""
        return self.rows[rows]
