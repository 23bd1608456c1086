"""One prototype per class that the client holds: the mean of its features."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.privacy.terms import Adjacency, Basis
from vpdr.prototypes.base import CountsInTheOpen, only_for_same_label
from vpdr.types import Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassMeans(CountsInTheOpen):
    """Class means (K = 1), for clients whose class counts are public.

    Guarantee: under replace-same-label one mean moves by at most 2R/n and no other moves. When a label may
    change, or a sample may come and go, n itself is private while it sets the scale of the noise and decides
    which classes appear, so there is no bound.
    """

    basis: ClassVar[Basis] = Basis.PROVED  # averaging is linear

    min_count: int = 1  # classes with fewer samples are left out: a statement about public counts

    def __post_init__(self) -> None:
        if self.min_count < 1:
            raise InvalidInput(f"min_count must be at least 1, got {self.min_count}")

    def __call__(self, vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Summary:
        """The mean of each class that has enough samples."""
        classes, rows, sizes = labels.unique(return_inverse=True, return_counts=True)
        means = sums_by_row(vectors, rows, len(classes)) / sizes[:, None]
        enough = sizes >= self.min_count
        return Summary(means[enough], classes[enough], sizes[enough])

    def sensitivity(
        self, adjacency: Adjacency, clip_norm: float, sizes: Int[Tensor, " p"]
    ) -> Float[Tensor, " p"]:
        """Δ = 2R/n."""
        only_for_same_label(adjacency, "class means", "their noise would give the class counts away")
        return 2 * clip_norm / sizes.double()


def sums_by_row(vectors: Float[Tensor, "n d"], rows: Int[Tensor, " n"], count: int) -> Float[Tensor, "p d"]:
    """The sum of all vectors that belong to each row."""
    return torch.zeros(count, vectors.shape[1], dtype=vectors.dtype).index_add_(0, rows, vectors)
