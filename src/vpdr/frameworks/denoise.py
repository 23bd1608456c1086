"""What a server makes of uploads whose noise is published. Post-processing: it costs no privacy."""

from dataclasses import dataclass

import torch

from vpdr.frameworks import ops
from vpdr.frameworks.pool import Pool
from vpdr.prototypes.shrinkage import Shrunk, blup
from vpdr.types import Prototypes

_LEAST_TRUST = 1e-9


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Uploads without what is most likely noise, and one prototype a class with what is left of it."""

    each: Prototypes  # as many rows as were uploaded; no variances: they are all trusted alike
    overall: Prototypes


def cleaned(told: Pool, classes: int) -> Cleaned:
    """Uploads and their average, weighed by public shares and by precision where noise is published.

    Where every client sent one row for each class of the public list with its variance, clients and classes
    are read together (`blup`): the average is what all clients share of a class or, where the plan weighs
    clients, the weighted mean of what is left of their uploads. Otherwise the uploads stay as they are.
    """
    shrunk = _shrunk(told, classes)
    if shrunk is None:
        weights = ops.combined_weights(told.prototypes, told.shares)
        return Cleaned(told.prototypes, ops.average(told.prototypes, weights))
    each = Prototypes(shrunk.each.flatten(0, 1), told.prototypes.labels)
    shared = shrunk.shared
    if len(told.shares.unique()) > 1 and bool((told.shares.reshape(-1, classes).sum(dim=0) > 0).all()):
        shared = ops.average(each, ops.combined_weights(each, told.shares)).vectors
    return Cleaned(each, Prototypes(shared, torch.arange(classes), shrunk.variances))


def _shrunk(told: Pool, classes: int) -> Shrunk | None:
    given = told.prototypes
    clients = len(given.labels) // classes
    if given.variances is None or not clients:
        return None
    if not torch.equal(given.labels, torch.arange(classes).repeat(clients)):
        return None
    shape = (clients, classes)
    return blup(given.vectors.reshape(*shape, -1), given.variances.reshape(shape))


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
