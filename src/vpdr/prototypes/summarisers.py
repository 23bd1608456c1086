"""Summarisers: from clipped features to class means, class sums or clusters, each with its sensitivity."""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from vpdr.privacy import Adjacency, guarantee
from vpdr.types import Float, Int, Real, Summary, Tensor
from vpdr.validation import InvalidInput


class NoSensitivity(InvalidInput):
    """The summariser has no finite bound under this adjacency, so no noise can make it private."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SummariserConfig:
    """All settings from which `from_config` of a summariser may choose."""

    classes: int  # the public number of classes
    min_count: int  # the least number of samples of a class that is summarised


@dataclass(frozen=True, slots=True, repr=False)  # as for features
class Rows:
    """Which samples are added up in each row of a summary. Private."""

    index: Int[Tensor, " n"]  # the row of each sample; the number of rows for a sample that is left out
    labels: Int[Tensor, " p"]
    sizes: Int[Tensor, " p"]  # the number of samples of each row

    def sum(self, vectors: Real[Tensor, "n d"]) -> Real[Tensor, "p d"]:
        """The sum of each row, in the type of the vectors: exact for integers."""
        return sums_by_row(vectors, self.index, len(self.labels) + 1)[:-1]


@runtime_checkable
class Summariser(Protocol):
    """Says which clipped features are added up in which prototype, and bounds what one sample can do to them.

    A mechanism adds the features up itself, in whole numbers: a summariser cannot round.

    Guarantee: let s be `sensitivity(adjacency, R, sizes)` for a summary of features of norm at most R.
    Between neighbours, Σ over rows of |change of row|² / s² is at most 1; where `counts_are_private`, the sum
    also holds |change of size|² / (s/R)². So noise of std σ·s on each row, and of σ·s/R on each size, is one
    Gaussian event of multiplier σ. Where no such s exists, `sensitivity` raises `NoSensitivity`.
    """

    basis: ClassVar[guarantee.SensitivityBasis]  # whether the bound is proved, or only as published

    @classmethod
    def from_config(cls, config: SummariserConfig) -> "Summariser":
        """The summariser with the settings of a configuration."""

    def __call__(self, vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Summary:
        """The sum of each row over its divisor: what `sensitivity` is about, before noise."""

    def assign(self, vectors: Real[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Rows:
        """The row of each sample; the unit of the vectors must not matter."""

    def divisors(self, sizes: Int[Tensor, " p"]) -> Int[Tensor, " p"]:
        """The public numbers by which sums are divided: the sizes for means, 1 for sums."""

    def sensitivity(self, adjacency: Adjacency, clip_norm: float, sizes: Int[Tensor, " p"]) -> Float[Tensor, " p"]:
        """The unit of noise of each row."""

    @staticmethod
    def counts_are_private(adjacency: Adjacency) -> bool:
        """Whether sizes are private and must be released with noise of their own."""

    def postprocess(self, vectors: Float[Tensor, "p d"], sizes: Float[Tensor, " p"]) -> Float[Tensor, "p d"]:
        """From noisy rows and (noisy) sizes to prototypes; post-processing, so it costs nothing."""

    def variances(self, stds: Float[Tensor, " p"], sizes: Float[Tensor, " p"]) -> Float[Tensor, " p"] | None:
        """The noise per coordinate of each prototype, where it may be published; post-processing."""


class RowSummariser:
    """Base of all summarisers: the clean rows follow from their samples."""

    __slots__ = ()

    def __call__(self, vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Summary:
        """The sum of each row over its divisor."""
        rows = self.assign(vectors, labels)
        return Summary(rows.sum(vectors) / self.divisors(rows.sizes)[:, None], rows.labels, rows.sizes)

    def assign(self, vectors: Real[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Rows:
        """As `Summariser.assign`."""
        raise NotImplementedError

    def divisors(self, sizes: Int[Tensor, " p"]) -> Int[Tensor, " p"]:
        """As `Summariser.divisors`."""
        raise NotImplementedError


class PublicCounts(RowSummariser):
    """Base of summarisers with public counts: sizes set the noise, and a noisy row is the prototype."""

    __slots__ = ()

    quantity = "prototypes"  # what has no sensitivity under other adjacencies, and why
    reason = "counts are public"

    def sensitivity(self, adjacency: Adjacency, clip_norm: float, sizes: Int[Tensor, " p"]) -> Float[Tensor, " p"]:
        """Δ = 2R/n."""
        if adjacency is not Adjacency.REPLACE_SAME_LABEL:
            raise NoSensitivity(f"{self.quantity} have no sensitivity under {adjacency}: {self.reason}; use class sums")
        return 2 * clip_norm / sizes.double()

    def divisors(self, sizes: Int[Tensor, " p"]) -> Int[Tensor, " p"]:
        return sizes

    @staticmethod
    def counts_are_private(adjacency: Adjacency) -> bool:  # noqa: ARG004 - the protocol asks for it
        return False

    def postprocess(self, vectors: Float[Tensor, "p d"], sizes: Float[Tensor, " p"]) -> Float[Tensor, "p d"]:
        return vectors

    def variances(self, stds: Float[Tensor, " p"], sizes: Float[Tensor, " p"]) -> Float[Tensor, " p"] | None:
        """Not published: the noise would reveal the counts to a server that does not have them."""
        return None


_JOINT_SENSITIVITY = {
    Adjacency.REPLACE_SAME_LABEL: 2.0,  # one sum moves by at most 2R, no count moves
    Adjacency.REPLACE_ONE: 2.0,  # same label: one sum by 2R; other label: two sums by R and two counts by 1
    Adjacency.ADD_REMOVE: math.sqrt(2),  # one sum by R and one count by 1
}


def sums_by_row(vectors: Real[Tensor, "n d"], rows: Int[Tensor, " n"], count: int) -> Real[Tensor, "p d"]:
    """The sum of all vectors that belong to each row."""
    return torch.zeros(count, vectors.shape[1], dtype=vectors.dtype).index_add_(0, rows, vectors)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassMeans(PublicCounts):
    """Class means (K = 1), for clients whose class counts are public.

    Args:
        min_count: classes with fewer samples are left out, which reveals only public counts.

    Guarantee: under replace-same-label one mean moves by at most 2R/n and no other moves. When a label may
    change, or a sample may be added or removed, n itself is private while it sets the scale of the noise and
    decides which classes appear, so there is no bound.

    >>> ClassMeans()(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), torch.tensor([7, 7])).vectors
    tensor([[2., 1.]])
    """

    basis: ClassVar[guarantee.SensitivityBasis] = guarantee.SensitivityBasis.PROVED  # averaging is linear
    quantity = "class means"
    reason = "their noise would give the class counts away"

    min_count: int = 1

    def __post_init__(self) -> None:
        if self.min_count < 1:
            raise InvalidInput(f"min_count must be at least 1, got {self.min_count}")

    @classmethod
    def from_config(cls, config: SummariserConfig) -> "ClassMeans":
        """The summariser with the `min_count` of a configuration."""
        return cls(min_count=config.min_count)

    def assign(self, vectors: Real[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Rows:
        """One row for each class that has enough samples."""
        classes, rows, sizes = labels.unique(return_inverse=True, return_counts=True)
        enough = sizes >= self.min_count
        index = torch.where(enough, enough.cumsum(0) - 1, int(enough.sum()))[rows]
        return Rows(index, classes[enough], sizes[enough])


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassSums(RowSummariser):
    """Sums of clipped features for every class of a public list, present or not, with noisy counts.

    The shape and the noise of the release do not depend on the data.

    Args:
        classes: the public number of classes.

    Guarantee: (sums/R, counts) has joint l2 sensitivity 2 under replace-one and √2 under add-remove, so
    counts are hidden at no extra cost; under replace-same-label counts are public and stay exact.

    >>> ClassSums(classes=3)(torch.ones(4, 2), torch.tensor([0, 0, 0, 2])).sizes
    tensor([3, 0, 1])
    """

    basis: ClassVar[guarantee.SensitivityBasis] = (
        guarantee.SensitivityBasis.PROVED
    )  # summation is linear, and its shape is fixed

    classes: int

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise InvalidInput(f"class sums need the public number of classes, got {self.classes}")

    @classmethod
    def from_config(cls, config: SummariserConfig) -> "ClassSums":
        """The summariser for the `classes` of a configuration."""
        return cls(classes=config.classes)

    def assign(self, vectors: Real[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Rows:
        """One row per class of the list; a class without samples has the sum 0."""
        if len(labels) and int(labels.max()) >= self.classes:
            raise InvalidInput(f"labels must be below {self.classes}, got {int(labels.max())}")
        return Rows(labels, torch.arange(self.classes), torch.bincount(labels, minlength=self.classes))

    def divisors(self, sizes: Int[Tensor, " p"]) -> Int[Tensor, " p"]:
        return torch.ones_like(sizes)

    def sensitivity(self, adjacency: Adjacency, clip_norm: float, sizes: Int[Tensor, " p"]) -> Float[Tensor, " p"]:
        """2R or √2·R, whatever the counts are."""
        return torch.full((len(sizes),), _JOINT_SENSITIVITY[adjacency] * clip_norm, dtype=torch.float64)

    @staticmethod
    def counts_are_private(adjacency: Adjacency) -> bool:
        """Counts are public only where a neighbour cannot change them."""
        return adjacency is not Adjacency.REPLACE_SAME_LABEL

    def postprocess(self, vectors: Float[Tensor, "p d"], sizes: Float[Tensor, " p"]) -> Float[Tensor, "p d"]:
        """Sum over count; a noisy count below one sample is read as one."""
        return vectors / sizes.clamp(min=1)[:, None]

    def variances(self, stds: Float[Tensor, " p"], sizes: Float[Tensor, " p"]) -> Float[Tensor, " p"] | None:
        """Published: the noise of a sum is the same for all data, and its count is noisy or public."""
        return (stds / sizes.clamp(min=1)).square()


class _ClusterCentroids(PublicCounts):
    """What both clusterings share: centroids per class, and a sensitivity that is only claimed.

    Guarantee: none. One sample can move the boundaries of all others and even change the number of
    centroids, so 2R/n_k is not a bound; it is what the paper uses (Sec. 4.1).
    """

    __slots__ = ()

    # a counter-example is known: docs/privacy.md
    basis: ClassVar[guarantee.SensitivityBasis] = guarantee.SensitivityBasis.AS_PUBLISHED
    quantity = "cluster centroids"
    reason = "not even a claim is published"

    @classmethod
    def from_config(cls, config: SummariserConfig) -> "_ClusterCentroids":  # noqa: ARG003 - the protocol asks for it
        """The defaults: nothing of the configuration is read."""
        return cls()

    def assign(self, vectors: Real[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Rows:
        """One row for each cluster of every class, one class after the other."""
        index, owners, sizes, count = torch.empty_like(labels), [labels[:0]], [labels[:0]], 0
        for label in labels.unique().tolist():
            own = labels == label
            clusters = self.assign_clusters(vectors[own].double())
            _, rows, members = clusters.unique(return_inverse=True, return_counts=True)
            index[own] = count + rows
            owners.append(torch.full((len(members),), label))
            sizes.append(members)
            count += len(members)
        return Rows(index, torch.cat(owners), torch.cat(sizes))

    def assign_clusters(self, vectors: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """The cluster of each feature of one class."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class FinchClusters(_ClusterCentroids):
    """FINCH within each class (FedPLVM).

    Args:
        early_exit: drop links longer than the longest of the first level, as the published code does.

    Guarantee: none beyond the paper's claim; receipts say `as published`.

    >>> import torch
    >>> summary = FinchClusters()(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> int(summary.sizes.sum())
    4
    """

    early_exit: bool = False

    def assign_clusters(self, vectors: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """The coarsest FINCH partition."""
        return finch(vectors, early_exit=self.early_exit)


@dataclass(frozen=True, kw_only=True, slots=True)
class KMeansClusters(_ClusterCentroids):
    """⌈rate · n⌉ k-means centroids per class (MPFT, as the paper describes it).

    Args:
        rate: the number of centroids of a class relative to its samples, in (0, 1].
        seed: of the initial centroids.

    Guarantee: none beyond the paper's claim; receipts say `as published`.

    >>> import torch
    >>> summary = KMeansClusters()(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> int(summary.sizes.sum())
    4
    """

    rate: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InvalidInput(f"the clustering rate must lie in (0, 1], got {self.rate:g}")

    def assign_clusters(self, vectors: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Lloyd's algorithm, from a fixed seed."""
        from sklearn.cluster import KMeans

        count = math.ceil(self.rate * len(vectors) - 1e-9)
        distinct = len(vectors.unique(dim=0))  # k-means cannot separate equal points
        fit = KMeans(n_clusters=min(count, distinct), n_init=1, random_state=self.seed).fit(vectors.numpy())
        return torch.as_tensor(fit.labels_, dtype=torch.int64)


def finch(points: Float[Tensor, "n d"], *, early_exit: bool = False) -> Int[Tensor, " n"]:
    """The FINCH cluster of each point, by cosine distance, without a number of clusters (Sarfraz et al., 2019).

    It is the coarsest partition that still has more than one cluster, or one cluster if there is none. With
    `early_exit` links longer than the longest of the first level are dropped, as in the published code.
    """
    partition, longest = _link_nearest(points, None)
    limit = longest if early_exit and len(points) > 2 else None
    while (count := int(partition.max()) + 1) > 2:
        centroids = sums_by_row(points, partition, count) / torch.bincount(partition, minlength=count)[:, None]
        merged, _ = _link_nearest(centroids, limit)
        coarser = merged[partition]
        remaining = int(coarser.max()) + 1
        if remaining == 1 or remaining == count:
            break
        partition = coarser
        if remaining == count - 1:
            break
    return partition


def _link_nearest(points: Float[Tensor, "n d"], max_length: float | None) -> tuple[Int[Tensor, " n"], float]:
    """Link every point to its nearest other one; the connected components, and the longest link."""
    count = len(points)
    if count == 1:
        return torch.zeros(1, dtype=torch.int64), 0.0
    norms = points.norm(dim=1, keepdim=True)
    unit = points / torch.where(norms > 0, norms, 1.0)  # a zero vector is at distance 1 from everything
    distance = (1 - unit @ unit.T).fill_diagonal_(torch.inf)
    length, nearest = distance.min(dim=1)  # the smallest index on ties
    keep = torch.ones(count, dtype=torch.bool) if max_length is None else length <= max_length
    rows = torch.arange(count)[keep]
    links = coo_matrix((torch.ones(len(rows)), (rows, nearest[keep])), shape=(count, count))
    # two points with the same nearest point are already connected through it
    _, labels = connected_components(links, directed=False)
    return torch.as_tensor(labels, dtype=torch.int64), float(length.max())
