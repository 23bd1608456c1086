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
_REACHED = 1e-9  # of the largest singular value: what is smaller is rounding
_ROWS, _COLUMNS = 1024, 64  # of a feature matrix that are mapped at once: they fit into a fast cache
_GROUP = 256  # rows are filled up to a multiple of it
_ENOUGH = 0.2  # what the noise may do to a distance, relative to the square of a class radius


@dataclass(frozen=True, slots=True)
class Geometry:
    """u = (z - offset) @ inward, and z = offset + u @ outward: fixed before the data are seen.

    Guarantee: it is public and linear in one sample, so it changes no sensitivity: samples are clipped after
    it. Noise that is equal in all coordinates of u has the covariance outwardᵀ·outward in z.
    """

    inward: Float[Tensor, "d r"]
    outward: Float[Tensor, "r d"]  # inward @ outward is a projection of the feature space
    offset: Float[Tensor, " d"]
    shrinks: float  # how much shorter a typical z - offset becomes

    @classmethod
    def plain(cls, dim: int) -> "Geometry":
        """The feature space itself."""
        same = torch.eye(dim, dtype=torch.float64)
        return cls(same, same, torch.zeros(dim, dtype=torch.float64), 1.0)

    @classmethod
    def random(cls, dim: int, kept: int, rng: torch.Generator) -> "Geometry":
        """A uniformly drawn subspace of `kept` dimensions."""
        if not 1 <= kept <= dim:
            raise InvalidInput(f"a release of {dim} dimensions can keep 1 to {dim} of them, got {kept}")
        if kept == dim:
            return cls.plain(dim)
        basis = torch.nn.init.orthogonal_(torch.empty(dim, kept, dtype=torch.float64), generator=rng)
        return cls(basis, basis.T, torch.zeros(dim, dtype=torch.float64), math.sqrt(kept / dim))

    @classmethod
    def of_projection(
        cls,
        weight: Float[Tensor, "d p"],
        bias: Float[Tensor, " d"] | None = None,
        *,
        within: "Geometry | None" = None,
    ) -> "Geometry":
        """Elliptical noise from the frozen projection alone: directions that it stretches get more.

        Features vary about as s² along a left singular vector of singular value s; noise is least in sum
        where a direction's scale is √s. Directions outside of its reach hold no signal and are left out.
        A subspace `within` which to stay is taken as it is, less what is out of reach, with the projection's
        singular values as seen from inside. The projection's strongest directions instead would hold more of
        the signal and of the noise alike, and would not even be unique where singular values are equal.
        """
        left, values, _ = torch.linalg.svd(weight.double(), full_matrices=False)
        reached = values > _REACHED * values[0]
        if not bool(reached.any()):
            raise InvalidInput("expected a projection that reaches something, got zeros; use another one")
        basis, strong = left[:, reached], values[reached]
        if within is not None and within.dims[1] < len(strong):
            basis = torch.linalg.qr(basis @ (basis.T @ within.inward)).Q
            turn, strong, _ = torch.linalg.svd(basis.T @ weight.double(), full_matrices=False)
            basis = basis @ turn
        scales = (strong / strong.mean()).sqrt()
        # Equal noise looks the same from everywhere, so u may be turned: a triangle is half of the work.
        turn, triangle = torch.linalg.qr((basis / scales).T)
        # left open by the factorisation, so that machines may differ
        signs = torch.where(triangle.diagonal() < 0, -1.0, 1.0).double()
        turn, triangle = turn * signs, signs[:, None] * triangle
        offset = torch.zeros(len(weight), dtype=torch.float64) if bias is None else bias.double()
        shrinks = float(strong.sum() / (math.sqrt(len(strong)) * values.norm()))
        return cls(triangle.T.contiguous(), turn.T @ (basis * scales).T, offset, shrinks)

    @property
    def dims(self) -> tuple[int, int]:
        """Of the features, and of the release."""
        return self.inward.shape[0], self.inward.shape[1]

    @property
    def spread(self) -> float:
        """The mean variance over the coordinates of z where each coordinate of u has the variance 1."""
        return float(self.outward.square().sum()) / self.dims[0]

    def into(self, vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
        """Sample by sample, in single precision as features come.

        A sample that overflows becomes the zero vector: it must have a length that can be clipped.
        """
        if self.is_plain:
            return vectors
        parts, offset = _parts(self.inward), self.offset.float()
        # Whole groups of rows and columns: how a row of a small product is rounded would depend on how many
        # there are, and on its place among them.
        mapped = torch.empty(_GROUP * math.ceil(len(vectors) / _GROUP), _COLUMNS * len(parts))
        for rows, out in zip(vectors.split(_ROWS), mapped.split(_ROWS), strict=True):
            moved = torch.zeros(len(out), self.dims[0])
            moved[: len(rows)] = rows
            moved -= offset
            for (first, part), columns in zip(parts, out.split(_COLUMNS, dim=1), strict=True):
                torch.mm(moved[:, first:], part, out=columns)
        if not bool(mapped.sum().isfinite()):
            mapped = torch.where(mapped.isfinite().all(dim=1, keepdim=True), mapped, 0.0)
        return mapped[: len(vectors), : self.dims[1]].contiguous()

    def back(self, vectors: Float[Tensor, "n r"]) -> Float[Tensor, "n d"]:
        """The point of the feature space that is meant."""
        return vectors if self.is_plain else self.offset + vectors.double() @ self.outward

    @property
    def is_plain(self) -> bool:
        """Whether nothing is mapped."""
        same = self.dims[0] == self.dims[1] and not bool(self.offset.any())
        return same and torch.equal(self.inward, torch.eye(self.dims[0], dtype=torch.float64))


def _parts(inward: Float[Tensor, "d r"]) -> list[tuple[int, Float[Tensor, "k c"]]]:
    """Its columns in groups, each from the first row on that is not zero in all of them."""
    parts = []
    for columns in inward.float().split(_COLUMNS, dim=1):
        first = int(columns.any(dim=1).int().argmax())
        whole = torch.zeros(len(columns) - first, _COLUMNS)
        whole[:, : columns.shape[1]] = columns[first:]
        parts.append((first, whole))
    return parts


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
