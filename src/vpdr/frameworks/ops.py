"""Tensor idioms shared by several frameworks: label masks on the client, averages on the server."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.prototypes.finch import finch
from vpdr.prototypes.means import sums_by_row
from vpdr.reduction import mean
from vpdr.types import Prototypes, Step

_SMALLEST_VARIANCE = 1e-30  # noise-free prototypes would otherwise have infinite weight


def task(step: Step) -> Float[Tensor, ""]:
    """Cross-entropy of the client's own head."""
    return mean(F.cross_entropy(step.logits, step.labels, reduction="none"), step.weights)


def nothing(step: Step) -> Float[Tensor, ""]:
    """Zero, but with a gradient, for when there is nothing to learn from."""
    return mean(0 * step.features.sum(dim=1), step.weights)


def same_class(labels: Int[Tensor, " b"], prototypes: Prototypes) -> Bool[Tensor, "b p"]:
    """Which prototypes belong to the class of each sample."""
    return labels[:, None] == prototypes.labels


def pull(step: Step, anchors: Prototypes) -> Float[Tensor, ""]:
    """Mean squared distance per coordinate of each feature to the one anchor of its own class.

    Samples without an anchor count in the mean, with the value 0.
    """
    if not len(anchors.labels):
        return nothing(step)
    match = same_class(step.labels, anchors)
    target = anchors.vectors[match.int().argmax(dim=1)]
    distance = (step.features - target).square().mean(dim=1) * trust(step, anchors)
    return mean(distance * match.any(dim=1), step.weights)


def trust(step: Step, anchors: Prototypes) -> Float[Tensor, " b"]:
    """How far each sample should follow the anchors of its class; 1 where their noise is not published."""
    table = class_trust(anchors, int(step.logits.shape[1]))
    return table[step.labels].type_as(step.features)


def class_trust(anchors: Prototypes, classes: int) -> Float[Tensor, " c"]:
    """Signal over signal and noise of each class, from published numbers alone.

    Where a server could not tell a class from the others its anchor is their mean, and nobody is drawn to it.
    """
    whole = torch.ones(classes, dtype=torch.float64)
    if anchors.variances is None or not len(anchors.labels):
        return whole
    clear = signal(anchors)
    share = clear / (clear + anchors.variances.double()).clamp(min=_SMALLEST_VARIANCE)
    count = torch.zeros(classes, dtype=torch.float64).index_add_(0, anchors.labels, torch.ones_like(share))
    total = torch.zeros(classes, dtype=torch.float64).index_add_(0, anchors.labels, share)
    return torch.where(count > 0, total / count.clamp(min=1), whole)


def signal(anchors: Prototypes) -> Float[Tensor, " p"]:
    """The squared distance of each anchor from the mean of all, per coordinate."""
    vectors = anchors.vectors.double()
    return (vectors - vectors.mean(dim=0)).square().mean(dim=1)


def cosine(features: Float[Tensor, "b d"], vectors: Float[Tensor, "p d"]) -> Float[Tensor, "b p"]:
    """Cosine of the angle between each feature and each prototype; 0 for a zero vector."""
    return F.normalize(features, dim=1) @ F.normalize(vectors.type_as(features), dim=1).T


def log_share(logits: Float[Tensor, "*b p"], positive: Bool[Tensor, "*b p"]) -> Float[Tensor, "*b"]:
    """Log of the probability that all positives have together; 0 where a row has none."""
    chosen = positive | ~positive.any(dim=-1, keepdim=True)
    return logits.masked_fill(~chosen, -torch.inf).logsumexp(dim=-1) - logits.logsumexp(dim=-1)


def combined_weights(prototypes: Prototypes, shares: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
    """The weight of each prototype in the average of its class: 1 in sum over the class.

    Public shares, times 1/variance where the noise is published. All 0 where the shares of a class are.
    """
    raw = shares.double()
    if prototypes.variances is not None:
        raw = raw / prototypes.variances.double().clamp(min=_SMALLEST_VARIANCE)
    _, rows = prototypes.labels.unique(return_inverse=True)
    total = sums_by_row(raw[:, None], rows, len(raw))[rows, 0]
    return torch.where(total > 0, raw / torch.where(total > 0, total, 1.0), 0.0)


def average(prototypes: Prototypes, weights: Float[Tensor, " p"]) -> Prototypes:
    """One prototype for each class in which somebody has weight, in double precision."""
    held = weights > 0
    classes, rows = prototypes.labels[held].unique(return_inverse=True)
    terms = weights[held, None] * prototypes.vectors[held].double()
    return Prototypes(sums_by_row(terms, rows, len(classes)), classes)


def centroids(prototypes: Prototypes, *, early_exit: bool) -> Prototypes:
    """FINCH within each class: the means of the clusters, with the variances that follow from averaging."""
    parts = [_rows(prototypes, torch.zeros_like(prototypes.labels, dtype=torch.bool))]
    for label in prototypes.labels.unique().tolist():
        own = _rows(prototypes, prototypes.labels == label)
        cluster = finch(own.vectors, early_exit=early_exit)
        sizes = cluster.bincount()[:, None]
        vectors = sums_by_row(own.vectors, cluster, len(sizes)) / sizes
        variances = None
        if own.variances is not None:
            variances = (sums_by_row(own.variances[:, None], cluster, len(sizes)) / sizes.square())[:, 0]
        parts.append(Prototypes(vectors, torch.full((len(sizes),), label), variances))
    return Prototypes.concat(parts)


def single(prototypes: Prototypes) -> Prototypes:
    """As it is broadcast: single precision, and no variances, which no client uses."""
    return Prototypes(prototypes.vectors.float(), prototypes.labels)


def _rows(prototypes: Prototypes, which: Bool[Tensor, " p"]) -> Prototypes:
    variances = None if prototypes.variances is None else prototypes.variances[which]
    return Prototypes(prototypes.vectors[which], prototypes.labels[which], variances)
