"""The public linear map into the space in which sums are released, and back."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.privacy.accountants import accountant_named
from vpdr.privacy.budget import Budget

_FEWEST = 64  # below, classes that are apart begin to fall together
_ENOUGH = 0.2  # what the noise may do to a distance, relative to the square of a class radius


@dataclass(frozen=True, slots=True)
class Geometry:
    """u = (z - offset) B / scales: fixed before the data are seen.

    Guarantee: it is public, so it changes no sensitivity. Noise that is equal in all coordinates of u is
    elliptical in z, small where `scales` is small.
    """

    basis: Float[Tensor, "d r"]  # orthonormal columns
    scales: Float[Tensor, " r"]  # root mean square 1
    offset: Float[Tensor, " d"]

    @classmethod
    def plain(cls, dim: int) -> "Geometry":
        """The feature space itself."""
        return cls(
            torch.eye(dim, dtype=torch.float64),
            torch.ones(dim, dtype=torch.float64),
            torch.zeros(dim, dtype=torch.float64),
        )

    @classmethod
    def random(cls, dim: int, kept: int, rng: torch.Generator) -> "Geometry":
        """A uniformly drawn subspace of `kept` dimensions."""
        if not 1 <= kept <= dim:
            raise InvalidInput(f"a release of {dim} dimensions can keep 1 to {dim} of them, got {kept}")
        if kept == dim:
            return cls.plain(dim)
        basis = torch.nn.init.orthogonal_(torch.empty(dim, kept, dtype=torch.float64), generator=rng)
        return cls(basis, torch.ones(kept, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64))

    @classmethod
    def of_projection(cls, weight: Float[Tensor, "d p"], bias: Float[Tensor, " d"]) -> "Geometry":
        """Elliptical noise from the frozen projection alone: directions that it stretches get more.

        Features vary about as s² along a left singular vector of singular value s; noise is least in sum
        where a direction's scale is √s. Directions outside of its reach hold no signal and are left out.
        """
        left, values, _ = torch.linalg.svd(weight.double(), full_matrices=False)
        reached = values > 1e-9 * values[0]
        scales = (values[reached] / values[reached].mean()).sqrt()
        return cls(left[:, reached].contiguous(), scales, bias.double())

    @property
    def dims(self) -> tuple[int, int]:
        """Of the features, and of the release."""
        return self.basis.shape[0], self.basis.shape[1]

    @property
    def shrinks(self) -> float:
        """How much shorter a vector of no special direction becomes."""
        return math.sqrt(self.dims[1] / self.dims[0])

    def into(self, vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
        """Sample by sample, in single precision as features come.

        A sample that overflows becomes the zero vector: it must have a length that can be clipped.
        """
        if self.is_plain:
            return vectors
        columns = (self.basis / self.scales).float()
        mapped = (vectors.float() @ columns).sub_(self.offset.float() @ columns)
        if not bool(mapped.sum().isfinite()):
            mapped = torch.where(mapped.isfinite().all(dim=1, keepdim=True), mapped, 0.0)
        return mapped.double()

    def back(self, vectors: Float[Tensor, "n r"]) -> Float[Tensor, "n d"]:
        """The point of the feature space that is meant."""
        if self.is_plain:
            return vectors
        return self.offset + (vectors * self.scales) @ self.basis.T

    @property
    def is_plain(self) -> bool:
        """Whether nothing is mapped."""
        same = self.dims[0] == self.dims[1] and not bool(self.offset.any())
        return same and torch.equal(self.basis, torch.eye(self.dims[0], dtype=torch.float64))


def release_dim(dim: int, budget: Budget, expected: int) -> int:
    """How many dimensions a release should have, from public numbers alone.

    `expected` is the number of samples of one class at one client as the plan declares it, 0 if it does not.
    A random subspace of r dimensions shortens distances between classes, radii and noise alike. What it
    saves is the squared noise in a distance, which spreads by √(2r)·(2/(μn))² class radii: r is the largest
    dimension at which that stays below a fifth. Without a declared number nothing is dropped.
    """
    if expected <= 0:
        return dim
    noise = (2 * accountant_named("exact").multiplier(budget, 1) / expected) ** 2
    return max(min(dim, math.floor((_ENOUGH / noise) ** 2 / 2)), min(_FEWEST, dim))
