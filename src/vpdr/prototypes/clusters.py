"""Several prototypes per class by clustering, with the published noise and its published word only."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.privacy.terms import Adjacency, Basis
from vpdr.prototypes.base import CountsInTheOpen, only_for_same_label
from vpdr.prototypes.finch import finch
from vpdr.prototypes.means import sums_by_row
from vpdr.types import Summary


class _Clusters(CountsInTheOpen):
    """What both clusterings share: centroids per class, and a sensitivity that is only claimed.

    Guarantee: none. One sample can move the boundaries of all others and even change the number of
    centroids, so 2R/n_k is not a bound; it is what the paper uses (Sec. 4.1).
    """

    __slots__ = ()

    basis: ClassVar[Basis] = Basis.AS_PUBLISHED  # a counter-example is known: docs/privacy.md

    def sensitivity(
        self, adjacency: Adjacency, clip_norm: float, sizes: Int[Tensor, " p"]
    ) -> Float[Tensor, " p"]:
        """Δ = 2R/n_k, as published."""
        only_for_same_label(adjacency, "cluster centroids", "not even a claim is published")
        return 2 * clip_norm / sizes.double()


@dataclass(frozen=True, kw_only=True, slots=True)
class FinchClusters(_Clusters):
    """FINCH within each class (FedPLVM)."""

    early_exit: bool = False

    def __call__(self, vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Summary:
        """Centroids of the coarsest FINCH partition of each class."""
        return _clustered(vectors, labels, lambda own: finch(own, early_exit=self.early_exit))


@dataclass(frozen=True, kw_only=True, slots=True)
class KMeansClusters(_Clusters):
    """⌈rate · n⌉ k-means centroids per class (MPFT, as the paper describes it)."""

    rate: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InvalidInput(f"the clustering rate must lie in (0, 1], got {self.rate:g}")

    def __call__(self, vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Summary:
        """Centroids of Lloyd's algorithm, from a fixed seed."""
        return _clustered(vectors, labels, self._assign)

    def _assign(self, own: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        from sklearn.cluster import KMeans  # a second of start-up that only this rule needs

        wanted = math.ceil(self.rate * len(own) - 1e-9)
        distinct = len(own.unique(dim=0))  # k-means cannot tell equal points apart
        fit = KMeans(n_clusters=min(wanted, distinct), n_init=1, random_state=self.seed).fit(own.numpy())
        return torch.as_tensor(fit.labels_, dtype=torch.int64)


def _clustered(
    vectors: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    assign: Callable[[Float[Tensor, "n d"]], Int[Tensor, " n"]],
) -> Summary:
    """The centroids of every class, one class after the other."""
    centroids, owners, sizes = [vectors[:0]], [labels[:0]], [labels[:0]]
    for label in labels.unique().tolist():
        own = vectors[labels == label]
        _, rows, members = assign(own).unique(return_inverse=True, return_counts=True)
        centroids.append(sums_by_row(own, rows, len(members)) / members[:, None])
        owners.append(torch.full((len(members),), label))
        sizes.append(members)
    return Summary(torch.cat(centroids), torch.cat(owners), torch.cat(sizes))
