"""The public projection into the space in which RAPP releases, and back."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.privacy import Budget, get_accountant

_MIN_DIMS = 64  # below, classes begin to overlap
_MAX_NOISE_RATIO = 0.2  # of the noise in a squared distance, relative to the square of a class radius
_ROW_CHUNK, _COLUMN_CHUNK = 1024, 64  # of a feature matrix that are projected at once: they fit into a cache
_ROW_MULTIPLE = 256  # rows are padded to a multiple of it


@dataclass(frozen=True, slots=True)
class ReleaseProjection:
    """u = z @ basis and z = u @ basis.T, for a basis with orthonormal columns: r of d dimensions.

    Args:
        basis: an orthonormal basis of the subspace; a square basis is read as the identity.

    Guarantee: the projection is public and fixed before the data are seen, and it is linear in one sample,
    so it changes no sensitivity: samples are clipped after it. Noise that is equal in all coordinates of u
    has the covariance basis @ basis.T in z.

    >>> projection = ReleaseProjection.random(512, 64, torch.Generator().manual_seed(0))
    >>> projection.dims, projection.project(torch.ones(3, 512)).shape
    ((512, 64), torch.Size([3, 64]))
    """

    basis: Float[Tensor, "d r"]

    @classmethod
    def identity(cls, dim: int) -> "ReleaseProjection":
        """The feature space itself."""
        return cls(torch.eye(dim, dtype=torch.float64))

    @classmethod
    def random(cls, dim: int, num_dims: int, rng: torch.Generator) -> "ReleaseProjection":
        """A uniformly drawn subspace of `num_dims` dimensions; the identity where that is all of them."""
        if not 1 <= num_dims <= dim:
            raise InvalidInput(f"a release of {dim} dimensions can keep 1 to {dim} of them, got {num_dims}")
        if num_dims == dim:
            return cls.identity(dim)
        return cls(torch.nn.init.orthogonal_(torch.empty(dim, num_dims, dtype=torch.float64), generator=rng))

    @property
    def dims(self) -> tuple[int, int]:
        """The dimension of the features, and that of the release."""
        return self.basis.shape[0], self.basis.shape[1]

    @property
    def is_identity(self) -> bool:
        """Whether features are released in their own space."""
        return self.dims[0] == self.dims[1]

    @property
    def norm_ratio(self) -> float:
        """How much shorter a typical feature becomes: √(r/d)."""
        return math.sqrt(self.dims[1] / self.dims[0])

    @property
    def mean_variance(self) -> float:
        """The mean variance over the coordinates of z where each coordinate of u has variance 1: r/d."""
        return float(self.basis.square().sum()) / self.dims[0]

    def project(self, vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
        """Project each sample, in single precision.

        How a row of a small matrix product is rounded depends on the number of rows and on its place among
        them; rows and columns are padded to whole chunks, so that a sample is projected to the same bits
        whatever the other samples are. A sample that overflows becomes the zero vector, which can be clipped.
        """
        if self.is_identity:
            return vectors
        blocks = [_pad_columns(block) for block in self.basis.float().split(_COLUMN_CHUNK, dim=1)]
        padded = _ROW_MULTIPLE * math.ceil(len(vectors) / _ROW_MULTIPLE)
        projected = torch.empty(padded, _COLUMN_CHUNK * len(blocks))
        for rows, out in zip(vectors.split(_ROW_CHUNK), projected.split(_ROW_CHUNK), strict=True):
            chunk = torch.zeros(len(out), self.dims[0])
            chunk[: len(rows)] = rows
            for block, columns in zip(blocks, out.split(_COLUMN_CHUNK, dim=1), strict=True):
                torch.mm(chunk, block, out=columns)
        if not bool(projected.sum().isfinite()):
            projected = torch.where(projected.isfinite().all(dim=1, keepdim=True), projected, 0.0)
        return projected[: len(vectors), : self.dims[1]].contiguous()

    def lift(self, vectors: Float[Tensor, "n r"]) -> Float[Tensor, "n d"]:
        """The points of the feature space, in double precision."""
        return vectors if self.is_identity else vectors.double() @ self.basis.T


def _pad_columns(block: Float[Tensor, "d c"]) -> Float[Tensor, "d k"]:
    padded = torch.zeros(len(block), _COLUMN_CHUNK)
    padded[:, : block.shape[1]] = block
    return padded


def default_release_dim(dim: int, budget: Budget, samples_per_class: int) -> int:
    """How many dimensions a release should have, from public numbers alone.

    A random subspace of r dimensions shortens distances between classes, radii and noise alike. What it
    saves is the squared noise in a distance, which spreads by √(2r)·(2/(μn))² class radii: r is the largest
    dimension at which that stays below a fifth. Without a declared number of samples nothing is dropped.

    Args:
        dim: the dimension of the features.
        budget: what one client may spend in all.
        samples_per_class: the declared number of samples of one class at one client; 0: not declared.
    """
    if samples_per_class <= 0:
        return dim
    noise = (2 * get_accountant("exact").noise_multiplier(budget, 1) / samples_per_class) ** 2
    return max(min(dim, math.floor((_MAX_NOISE_RATIO / noise) ** 2 / 2)), min(_MIN_DIMS, dim))
