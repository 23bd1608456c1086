"""FINCH: clusters from first neighbours, without a number of clusters to choose (Sarfraz et al., 2019)."""

import torch
from jaxtyping import Float, Int
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from vpdr.prototypes.means import sums_by_row


def finch(points: Float[Tensor, "n d"], *, early_exit: bool = False) -> Int[Tensor, " n"]:
    """The coarsest partition that still has more than one cluster, or one cluster if there is none.

    `early_exit` drops links longer than the longest of the first level, as the published code does.
    """
    partition, longest = _link(points, None)
    limit = longest if early_exit and len(points) > 2 else None
    while (count := int(partition.max()) + 1) > 2:
        merged, _ = _link(_centroids(points, partition, count), limit)
        coarser = merged[partition]
        left = int(coarser.max()) + 1
        if left == 1 or left == count:
            break
        partition = coarser
        if left == count - 1:
            break
    return partition


def _link(points: Float[Tensor, "n d"], limit: float | None) -> tuple[Int[Tensor, " n"], float]:
    """Connect every point with its nearest other one; the components, and the longest link."""
    count = len(points)
    if count == 1:
        return torch.zeros(1, dtype=torch.int64), 0.0
    distance = _cosine_distance(points).fill_diagonal_(torch.inf)
    length, nearest = distance.min(dim=1)  # the smallest index on ties
    keep = torch.ones(count, dtype=torch.bool) if limit is None else length <= limit
    rows = torch.arange(count)[keep]
    links = coo_matrix((torch.ones(len(rows)), (rows, nearest[keep])), shape=(count, count))
    # sharing a nearest point already connects two points through it
    _, labels = connected_components(links, directed=False)
    return torch.as_tensor(labels, dtype=torch.int64), float(length.max())


def _cosine_distance(points: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """1 - cosine; a zero vector is at distance 1 from everything."""
    norms = points.norm(dim=1, keepdim=True)
    unit = points / torch.where(norms > 0, norms, 1.0)
    return 1 - unit @ unit.T


def _centroids(
    points: Float[Tensor, "n d"], partition: Int[Tensor, " n"], count: int
) -> Float[Tensor, "k d"]:
    """Means of the original members of each cluster."""
    return sums_by_row(points, partition, count) / torch.bincount(partition, minlength=count)[:, None]
