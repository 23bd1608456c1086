"""What a server makes of uploads whose noise is published. Post-processing: it costs no privacy."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.frameworks import ops
from vpdr.frameworks.pool import Pool
from vpdr.prototypes.shrinkage import blup
from vpdr.types import Prototypes

_LEAST_TRUST = 1e-9


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Uploads without what is most likely noise, and one prototype a class with what is left of it."""

    each: Prototypes  # as many rows as were uploaded; no variances: they are all trusted alike
    overall: Prototypes


def cleaned(told: Pool, classes: int) -> Cleaned:
    """Uploads and their average, weighed by public shares and by precision where noise is published.

    Where every client sent the same number of rows for each class of the public list with their variances,
    clients and classes are read together (`blup`): the average is what all clients share of a class or, where
    the plan weighs clients, the weighted mean of what is left of their uploads, with its own variance.
    Otherwise the uploads stay as they are.
    """
    layout = _layout(told, classes)
    given = told.prototypes
    if layout is None or given.variances is None:
        return Cleaned(given, ops.average(given, ops.combined_weights(given, told.shares)))
    shrunk = blup(layout.spread(given.vectors), layout.spread(given.variances))
    each = Prototypes(layout.joined(shrunk.each), given.labels)
    shared, variances = shrunk.shared, shrunk.variances
    if len(told.shares.unique()) > 1 and bool((layout.spread(told.shares).sum(dim=0) > 0).all()):
        weights = ops.combined_weights(each, told.shares)
        shared, variances = ops.average(each, weights).vectors, shrunk.doubt.of_means(layout.spread(weights))
    return Cleaned(each, Prototypes(shared, torch.arange(classes), variances))


@dataclass(frozen=True, slots=True)
class _Layout:
    """Rows of uploads: client after client, class after class, and the centres of a class together.

    Each centre of a client counts as a client of its own. Centres start from the same places and then follow
    the samples of their client, so that the same centre of two clients may stand for different groups: they
    have nothing in common but their class.
    """

    clients: int
    classes: int
    per_class: int

    def spread(self, rows: Float[Tensor, "p *d"]) -> Float[Tensor, "m c *d"]:
        """One column for each class."""
        shape = (self.clients, self.classes, self.per_class, *rows.shape[1:])
        return rows.reshape(shape).transpose(1, 2).flatten(0, 1)

    def joined(self, cells: Float[Tensor, "m c *d"]) -> Float[Tensor, "p *d"]:
        """The inverse of `spread`."""
        shape = (self.clients, self.per_class, self.classes, *cells.shape[2:])
        return cells.reshape(shape).transpose(1, 2).flatten(0, 2)


def _layout(told: Pool, classes: int) -> _Layout | None:
    """None where somebody sent other rows than the rest."""
    labels = told.prototypes.labels
    sizes = told.owners.unique(return_counts=True)[1]
    if len(sizes.unique()) != 1 or int(sizes[0]) < classes:
        return None
    found = _Layout(len(sizes), classes, int(sizes[0]) // classes)
    expected = torch.arange(classes).repeat_interleave(found.per_class).repeat(found.clients)
    return found if torch.equal(labels, expected) else None


def told_with(prototypes: Prototypes, overall: Prototypes) -> Prototypes:
    """As it is broadcast; where noise was published, with the variance that says how far to trust a class.

    Prototypes that were made from the uploads in another way than `overall` are as good as what they were
    made from: they get the variance at which `ops.class_trust` gives them the trust of their class.
    """
    if overall.variances is None or not len(prototypes.labels):
        return ops.single(prototypes)
    trust = ops.class_trust(overall, int(overall.labels.max()) + 1).clamp(min=_LEAST_TRUST)
    signal = ops.signal(prototypes)
    variances = signal * (1 / trust[prototypes.labels] - 1)
    return Prototypes(prototypes.vectors.float(), prototypes.labels, variances.float())
