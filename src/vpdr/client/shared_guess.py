"""What the last broadcast says of a client's samples, class by class. Private: it stays there."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client.client import Client
from vpdr.client.parts import Samples
from vpdr.prototypes import ClassMeans
from vpdr.types import Prototypes

_TRIED = torch.logspace(-3, 3, 61, dtype=torch.float64)  # widths, relative to the usual distance
_FARTHEST = 1e200  # so that a difference of two of them, over any width, is a number


def shared_guess(client: Client, test: Samples) -> Float[Tensor, "m c"] | None:
    """Probabilities of each class by what was broadcast; None where nobody knows any class.

    They follow from distances in units of a width that makes the client's own training samples most likely:
    where what was shared is noise, the width comes out large and no class is preferred.
    """
    train, classes = client.shard.train, client.habits.classes
    judged, learnt = _judged(client, test), _judged(client, train)
    if judged is not None and learnt is not None:
        return (-judged / _width(learnt, train.labels, usual=1.0)).softmax(dim=1)
    seen = client.released_features(train)
    known = _completed(client, seen)
    if not len(known.labels):
        return None
    far = class_distances(client.released_features(test), known, classes)
    return (-far / fitted_width(class_distances(seen, known, classes), train.labels)).softmax(dim=1)


def class_distances(
    features: Float[Tensor, "n d"], anchors: Prototypes, classes: int
) -> Float[Tensor, "n c"]:
    """The squared distance to the nearest anchor of each class; beyond all others where a class has none."""
    apart = torch.cdist(features.double(), anchors.vectors.double()).square()
    out = torch.full((len(features), classes), torch.inf, dtype=torch.float64)
    rows = anchors.labels.expand(len(features), -1)
    return out.scatter_reduce(1, rows, apart, reduce="amin").nan_to_num(nan=_FARTHEST).clamp(max=_FARTHEST)


def fitted_width(apart: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> float:
    """The width under which the anchors give these labels the largest probability; 1 without any label."""
    right = apart.gather(1, labels[:, None])
    return _width(apart, labels, usual=float(right.mean().clamp(min=1e-12)) if len(labels) else 1.0)


def _width(apart: Float[Tensor, "n c"], labels: Int[Tensor, " n"], usual: float) -> float:
    """The best of some multiples of what is usual; without samples what is usual."""
    if not len(labels):
        return usual
    fits = [
        (-apart / (usual * width)).log_softmax(dim=1).gather(1, labels[:, None]).mean() for width in _TRIED
    ]
    return float(usual * _TRIED[int(torch.stack(fits).argmax())])


def _judged(client: Client, samples: Samples) -> Float[Tensor, "n c"] | None:
    """The negative scores of a model that was broadcast; None where prototypes are."""
    if client.heard is None:
        return None
    scores = client.framework.opinion(samples.public, client.heard)
    return None if scores is None else -scores.double().nan_to_num().clamp(min=-_FARTHEST, max=_FARTHEST)


def _completed(client: Client, seen: Float[Tensor, "n d"]) -> Prototypes:
    """The anchors, and the client's own clean mean of a class that has none."""
    own = ClassMeans()(seen.double(), client.shard.train.labels)
    anchors = client.anchors
    if anchors is None:
        return Prototypes(own.vectors, own.labels)
    alone = ~torch.isin(own.labels, anchors.labels)
    vectors = torch.cat([anchors.vectors.double(), own.vectors[alone]])
    return Prototypes(vectors, torch.cat([anchors.labels, own.labels[alone]]))
