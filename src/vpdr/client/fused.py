"""The head where a client has learnt, the shared prototypes where it has not. Private: it stays there."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.client.client import Client
from vpdr.client.parts import Samples
from vpdr.prototypes import ClassMeans
from vpdr.types import Prototypes

_TRIED = torch.logspace(-3, 3, 61, dtype=torch.float64)  # widths, relative to the usual squared distance


def fused(
    client: Client, test: Samples, logits: Float[Tensor, "m c"], anchors: Prototypes
) -> Int[Tensor, " m"]:
    """The class of each sample by head and anchors together, without knowing whether the client has it.

    The anchors give every class a probability p, from squared distances in units of a width that makes the
    client's own training samples most likely. What falls on the classes that the client has is divided anew
    among them in proportion to p times the head's likelihood (its probability over the class's share of the
    training samples); the classes that it lacks keep their p. So noisy anchors, whose width comes out large,
    leave the decision to the head.
    """
    train = client.shard.train
    known = _completed(client, anchors)
    classes = client.habits.classes
    counts = torch.bincount(train.labels, minlength=classes).double()
    far = class_distances(client.released_features(test), known, classes)
    width = 1.0
    if len(train.labels):
        width = fitted_width(class_distances(client.released_features(train), known, classes), train.labels)
    return combined((-far / width).log_softmax(dim=1), logits.double(), counts).argmax(dim=1)


def combined(
    guess: Float[Tensor, "m c"], logits: Float[Tensor, "m c"], counts: Float[Tensor, " c"]
) -> Float[Tensor, "m c"]:
    """Log-probabilities: of the anchors, divided anew among the held classes by the head's likelihood."""
    held: Bool[Tensor, " c"] = counts > 0
    if not bool(held.any()):
        return guess
    mass = guess.masked_fill(~held, -torch.inf).logsumexp(dim=1, keepdim=True)
    prior = ((counts + 1) / (counts + 1).sum()).log()
    likelihood = (logits.log_softmax(dim=1) - prior).masked_fill(~held, -torch.inf)
    both = guess.clamp(min=-1e3) + likelihood  # a head may overrule the anchors among classes it knows
    return torch.where(held, mass + both.log_softmax(dim=1), guess)


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


def _completed(client: Client, anchors: Prototypes) -> Prototypes:
    """The anchors, and the client's own clean mean of a class that has none."""
    own = ClassMeans()(client.released_features(client.shard.train).double(), client.shard.train.labels)
    alone = ~torch.isin(own.labels, anchors.labels)
    vectors = torch.cat([anchors.vectors.double(), own.vectors[alone]])
    return Prototypes(vectors, torch.cat([anchors.labels, own.labels[alone]]))
