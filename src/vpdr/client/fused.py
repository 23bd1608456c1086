"""The head where a client has learnt, the shared prototypes where it has not. Private: it stays there."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client.client import Client
from vpdr.client.parts import Samples
from vpdr.prototypes import ClassMeans
from vpdr.types import Prototypes

_TRIED = torch.logspace(-3, 3, 61, dtype=torch.float64)  # widths, relative to the usual squared distance


def fused(
    client: Client, test: Samples, logits: Float[Tensor, "m c"], anchors: Prototypes | None
) -> Int[Tensor, " m"]:
    """The class of each sample by head and anchors together, without knowing whether the client has it.

    The anchors give every class a probability, from squared distances in units of a width that makes the
    client's own training samples most likely: noisy anchors, whose width comes out large, prefer no class.
    What falls on the classes that the client has is divided anew among them by the head alone.
    Where nothing is shared the same rule reads the client's own means: what it could do alone.
    """
    train, classes = client.shard.train, client.habits.classes
    known = _completed(client, anchors)
    if not len(known.labels):
        return logits.argmax(dim=1)
    far = class_distances(client.released_features(test), known, classes)
    if not len(train.labels):
        return far.argmin(dim=1)
    width = fitted_width(class_distances(client.released_features(train), known, classes), train.labels)
    learnt = client.model.head(client.personal_features(train)).double()
    told = likelihood(logits.double(), learnt)
    return combined((-far / width).softmax(dim=1), told, held(train.labels, classes)).argmax(dim=1)


def held(labels: Int[Tensor, " n"], classes: int) -> Float[Tensor, " c"]:
    """How far the client has each class: its samples over an equal share of all its samples, at most 1.

    A head that saw one class ten times as often as another does not know the other one, so a class counts
    as held by its share and not as soon as there is a sample of it.
    """
    counts = torch.bincount(labels, minlength=classes).double()
    return (counts * classes / counts.sum()).clamp(max=1.0)


def likelihood(logits: Float[Tensor, "m c"], learnt: Float[Tensor, "n c"]) -> Float[Tensor, "m c"]:
    """Logarithms of the head's probabilities over those that it gives the training samples on average.

    The latter and not the classes' frequencies: a head that is hardly trained does not know these yet.
    """
    rows, classes = learnt.shape
    usual = (learnt.softmax(dim=1).sum(dim=0) + 1) / (rows + classes)
    return logits.log_softmax(dim=1) - usual.log()


def combined(
    guess: Float[Tensor, "m c"], told: Float[Tensor, "m c"], share: Float[Tensor, " c"]
) -> Float[Tensor, "m c"]:
    """Probabilities: the anchors' guess, of which the held share is divided anew by the head's likelihood.

    Where a client has all classes in equal numbers the anchors therefore decide nothing.
    """
    divided = (told + share.log()).softmax(dim=1)
    return (1 - share) * guess + (share * guess).sum(dim=1, keepdim=True) * divided


def class_distances(
    features: Float[Tensor, "n d"], anchors: Prototypes, classes: int
) -> Float[Tensor, "n c"]:
    """The squared distance to the nearest anchor of each class; infinite where a class has none."""
    apart = torch.cdist(features.double(), anchors.vectors.double()).square()
    out = torch.full((len(features), classes), torch.inf, dtype=torch.float64)
    rows = anchors.labels.expand(len(features), -1)
    return out.scatter_reduce(1, rows, apart, reduce="amin")


def fitted_width(apart: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> float:
    """The width under which the anchors give these labels the largest probability."""
    usual = apart.gather(1, labels[:, None]).mean().clamp(min=1e-12)
    fits = [
        (-apart / (usual * width)).log_softmax(dim=1).gather(1, labels[:, None]).mean() for width in _TRIED
    ]
    return float(usual * _TRIED[int(torch.stack(fits).argmax())])


def _completed(client: Client, anchors: Prototypes | None) -> Prototypes:
    """The anchors, and the client's own clean mean of a class that has none."""
    own = ClassMeans()(client.released_features(client.shard.train).double(), client.shard.train.labels)
    if anchors is None:
        return Prototypes(own.vectors, own.labels)
    alone = ~torch.isin(own.labels, anchors.labels)
    vectors = torch.cat([anchors.vectors.double(), own.vectors[alone]])
    return Prototypes(vectors, torch.cat([anchors.labels, own.labels[alone]]))
