"""Which coordinates tell the classes apart (Sec. 4.2)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vpdr.prototypes import ClassMeans
from vpdr.types import Features, Prototypes

_SMALLEST_FLOOR = 1e-12
_FLOOR_SHARE = 1e-3


def anova_scores(features: Features) -> Float[Tensor, " d"]:
    """Between-class over within-class variance of every coordinate (Eq. 7 and 8).

    A client with one class, or with no more samples than classes, has no such ratio: all scores are 0.
    ζ is a thousandth of the median within-class variance; it may depend on the data because the scores are
    clipped to a fixed range before they are used.
    """
    vectors = features.vectors
    means = ClassMeans()(vectors, features.labels)
    classes, samples = len(means.labels), len(vectors)
    if classes < 2 or samples <= classes:
        return torch.zeros(vectors.shape[1], dtype=vectors.dtype)
    own = means.vectors[torch.searchsorted(means.labels, features.labels)]
    within = own.sub_(vectors).square_().sum(0) / (samples - classes)  # in place: memory is the cost here
    sizes = means.sizes.to(vectors)
    grand = sizes @ means.vectors / samples
    between = sizes @ (means.vectors - grand).square() / (classes - 1)
    floor = (_FLOOR_SHARE * within.median()).clamp(min=_SMALLEST_FLOOR)
    return torch.nan_to_num(between / (within + floor), nan=0.0)  # overflow of both tells nothing apart


def between_class_variance(heard: Prototypes) -> Float[Tensor, " d"]:
    """How far apart the classes of a broadcast are in each coordinate."""
    means = ClassMeans()(heard.vectors.double(), heard.labels).vectors
    return means.var(dim=0, unbiased=False)


def top(scores: Float[Tensor, " d"], kept: int) -> Bool[Tensor, " d"]:
    """The `kept` largest scores as a mask; ties go to the lower index."""
    order = scores.sort(descending=True, stable=True).indices[:kept]
    return torch.zeros(len(scores), dtype=torch.bool).index_fill_(0, order, True)
