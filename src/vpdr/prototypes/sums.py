"""Class sums with noisy counts: a release whose shape and noise do not depend on the data."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.privacy.terms import Adjacency, Basis
from vpdr.prototypes.means import sums_by_row
from vpdr.types import Summary

_UNIT = {
    Adjacency.REPLACE_SAME_LABEL: 2.0,  # one block moves by at most 2R, no count moves
    Adjacency.REPLACE_ONE: 2.0,  # label kept: 2R; label changed: two blocks by R and two counts by 1
    Adjacency.ADD_REMOVE: math.sqrt(2),  # one block by R and one count by 1
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassSums:
    """Sums of clipped features for every class of a public list, present or not.

    Guarantee: (sums/R, counts) has joint l2 sensitivity 2 under replace-one and √2 under add-remove, so
    counts are hidden at no extra cost; under replace-same-label counts are public and stay exact.
    """

    basis: ClassVar[Basis] = Basis.PROVED  # summation is linear, and its shape is fixed

    classes: int

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise InvalidInput(f"class sums need the public number of classes, got {self.classes}")

    def __call__(self, vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Summary:
        """One sum per class of the list; a class without samples has the sum 0."""
        if len(labels) and int(labels.max()) >= self.classes:
            raise InvalidInput(f"labels must be below {self.classes}, got {int(labels.max())}")
        sizes = torch.bincount(labels, minlength=self.classes)
        return Summary(sums_by_row(vectors, labels, self.classes), torch.arange(self.classes), sizes)

    def sensitivity(
        self, adjacency: Adjacency, clip_norm: float, sizes: Int[Tensor, " p"]
    ) -> Float[Tensor, " p"]:
        """2R or √2·R, whatever the counts are."""
        return torch.full((len(sizes),), _UNIT[adjacency] * clip_norm, dtype=torch.float64)

    @staticmethod
    def hides_counts(adjacency: Adjacency) -> bool:
        """Counts are public only where a neighbour cannot change them."""
        return adjacency is not Adjacency.REPLACE_SAME_LABEL

    def finish(self, vectors: Float[Tensor, "p d"], sizes: Float[Tensor, " p"]) -> Float[Tensor, "p d"]:
        """Sum over count; a count that noise made smaller than one sample is read as one."""
        return vectors / sizes.clamp(min=1)[:, None]

    def variances(self, stds: Float[Tensor, " p"], sizes: Float[Tensor, " p"]) -> Float[Tensor, " p"] | None:
        """Published: the noise of a sum is the same for all data, and the count that divides it is either
        noisy already or public by the adjacency.
        """
        return (stds / sizes.clamp(min=1)).square()
