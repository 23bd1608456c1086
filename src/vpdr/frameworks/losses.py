"""Loss terms that several frameworks share, and the reliability of noisy prototypes that scales them."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.types import Prototypes, TrainBatch

MIN_VARIANCE = 1e-30  # avoids division by zero for prototypes without noise


def weighted_mean(values: Float[Tensor, " b"], weights: Float[Tensor, " b"]) -> Float[Tensor, ""]:
    """The mean over a batch; rows of weight 0 are ignored."""
    return (values * weights).sum() / weights.sum().clamp(min=1e-6)


def cross_entropy(batch: TrainBatch) -> Float[Tensor, ""]:
    """Cross-entropy of the client's head."""
    return weighted_mean(F.cross_entropy(batch.logits, batch.labels, reduction="none"), batch.weights)


def zero_loss(batch: TrainBatch) -> Float[Tensor, ""]:
    """Zero, with a zero gradient: a term for which there are no prototypes."""
    return weighted_mean(0 * batch.features.sum(dim=1), batch.weights)


def alignment_loss(batch: TrainBatch, prototypes: Prototypes) -> Float[Tensor, ""]:
    """Mean squared distance per coordinate of each feature to the one prototype of its class.

    Samples whose class has no prototype count in the mean, with the value 0.
    """
    if not len(prototypes.labels):
        return zero_loss(batch)
    match = same_class_mask(batch.labels, prototypes)
    target = prototypes.vectors[match.int().argmax(dim=1)]
    distance = (batch.features - target).square().mean(dim=1) * sample_reliability(batch, prototypes)
    return weighted_mean(distance * match.any(dim=1), batch.weights)


def same_class_mask(labels: Int[Tensor, " b"], prototypes: Prototypes) -> Bool[Tensor, "b p"]:
    """Whether each prototype has the label of each sample."""
    return labels[:, None] == prototypes.labels


def cosine_similarity(features: Float[Tensor, "b d"], vectors: Float[Tensor, "p d"]) -> Float[Tensor, "b p"]:
    """Cosine of each feature and each prototype; 0 for a zero vector."""
    return F.normalize(features, dim=1) @ F.normalize(vectors.type_as(features), dim=1).T


def log_positive_mass(logits: Float[Tensor, "*b p"], is_positive: Bool[Tensor, "*b p"]) -> Float[Tensor, "*b"]:
    """Log of the softmax probability of all positives together; 0 for a row without positives."""
    included = is_positive | ~is_positive.any(dim=-1, keepdim=True)
    return logits.masked_fill(~included, -torch.inf).logsumexp(dim=-1) - logits.logsumexp(dim=-1)


def sample_reliability(batch: TrainBatch, prototypes: Prototypes) -> Float[Tensor, " b"]:
    """The reliability of the prototypes of each sample's class; 1 where their noise is not published."""
    by_class = class_reliability(prototypes, int(batch.logits.shape[1]))
    return by_class[batch.labels].type_as(batch.features)


def class_reliability(prototypes: Prototypes, classes: int) -> Float[Tensor, " c"]:
    """Signal / (signal + noise) of each class, from published numbers alone.

    Where the server cannot tell a class from the others, its prototype is close to their mean: the
    reliability is close to 0, and the class adds nothing to the loss.
    """
    ones = torch.ones(classes, dtype=torch.float64)
    if prototypes.variances is None or not len(prototypes.labels):
        return ones
    signal = between_class_energy(prototypes)
    reliability = signal / (signal + prototypes.variances.double()).clamp(min=MIN_VARIANCE)
    count = torch.zeros(classes, dtype=torch.float64).index_add_(0, prototypes.labels, torch.ones_like(reliability))
    total = torch.zeros(classes, dtype=torch.float64).index_add_(0, prototypes.labels, reliability)
    return torch.where(count > 0, total / count.clamp(min=1), ones)


def between_class_energy(prototypes: Prototypes) -> Float[Tensor, " p"]:
    """The squared distance of each prototype from the mean of all prototypes, per coordinate."""
    vectors = prototypes.vectors.double()
    return (vectors - vectors.mean(dim=0)).square().mean(dim=1)
