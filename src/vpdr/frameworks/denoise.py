"""What a server makes of uploads whose noise is published. Post-processing: it costs no privacy."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.frameworks import ops
from vpdr.frameworks.pool import Pool
from vpdr.prototypes.shrinkage import Shrunk, blup
from vpdr.types import Prototypes

_LEAST_SHARE = 1e-6  # of the mean share; below, a client has no say in its class


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Uploads without what is most likely noise, and one prototype a class with what is left of it."""

    each: Prototypes  # as many rows as were uploaded; no variances: they are all trusted alike
    overall: Prototypes


def cleaned(told: Pool, classes: int) -> Cleaned:
    """Uploads and their average, weighed by public shares and by precision where noise is published.

    Where every client sent one row for each class of the public list with its variance, clients and classes
    are read together (`blup`). Otherwise the uploads stay as they are.
    """
    shrunk = _shrunk(told, classes)
    if shrunk is None:
        weights = ops.combined_weights(told.prototypes, told.shares)
        return Cleaned(told.prototypes, ops.average(told.prototypes, weights))
    labels = torch.arange(classes)
    each = Prototypes(shrunk.each.flatten(0, 1), told.prototypes.labels)
    return Cleaned(each, Prototypes(shrunk.shared, labels, shrunk.variances))


def _shrunk(told: Pool, classes: int) -> Shrunk | None:
    given = told.prototypes
    clients = len(given.labels) // classes
    if given.variances is None or not clients:
        return None
    if not torch.equal(given.labels, torch.arange(classes).repeat(clients)):
        return None
    shape = (clients, classes)
    noise = given.variances.reshape(shape) / _relative(told.shares).reshape(shape)
    return blup(given.vectors.reshape(*shape, -1), noise)


def _relative(shares: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
    """Shares around 1: who is to count more is read as if it knew more."""
    mean = shares.mean()
    return (shares / torch.where(mean > 0, mean, 1.0)).clamp(min=_LEAST_SHARE)


def told_with(prototypes: Prototypes, overall: Prototypes) -> Prototypes:
    """As it is broadcast, with what is unknown of each class where the server knows that."""
    if overall.variances is None:
        return ops.single(prototypes)
    table = torch.zeros(int(overall.labels.max()) + 1, dtype=torch.float64)
    table[overall.labels] = overall.variances.double()
    return Prototypes(prototypes.vectors.float(), prototypes.labels, table[prototypes.labels].float())
