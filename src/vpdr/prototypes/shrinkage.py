"""Noisy prototypes of many clients and classes, read together: what looks like noise is taken out.

All of it is post-processing of released numbers and costs no privacy. It never fails: a client that stopped
here would tell the server something about numbers of which it has only paid the noise.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.prototypes.components import Components, fitted_components

_LARGEST = 1e12  # ratio of two variances beyond which a prototype says nothing
_SMALLEST = 1e-30  # noise-free prototypes would otherwise have infinite weight
_FARTHEST = 1e60  # so that squares of sums of squares are numbers


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is still unknown of each guess, per coordinate."""

    effects: Float[Tensor, "k k"]  # covariance of the grand mean, the classes and the clients
    inherited: Float[Tensor, "m c"]  # how much of an error in its effects a guess keeps
    own: Float[Tensor, "m c"]  # what each guess adds to that, on its own

    def of_means(self, shares: Float[Tensor, "m c"]) -> Float[Tensor, " c"]:
        """The variance that is left in the mean of each class over clients, weighted by `shares`."""
        passed = shares * self.inherited
        of_class = passed.sum(dim=0)
        onto = torch.cat([of_class[:, None], of_class.diag(), passed.T], dim=1)
        common = ((onto @ self.effects) * onto).sum(dim=1)
        return common.clamp(min=0) + (shares.square() * self.own).sum(dim=0)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The best linear guess of each clean prototype, and of a class at the clients that know it.

    `shared` is the grand mean, what the class adds, and the rest at those clients: where every class is with
    one client, nobody can tell what belongs to the class and what to the client.
    """

    each: Float[Tensor, "m c d"]
    shared: Float[Tensor, "c d"]
    variances: Float[Tensor, " c"]  # what is still unknown of `shared`, per coordinate
    components: Components
    doubt: Doubt  # of `each`


def blup(estimates: Float[Tensor, "m c d"], variances: Float[Tensor, "m c"]) -> Shrunk:
    """P = K (K + V)⁻¹ Y: unbalanced classes and unequal clients weigh as much as they know.

    A prototype is a grand mean, what its class adds, what its client adds, a rest, and noise of the known
    variance V; K follows from four components that are fitted to the estimates themselves. A class that a
    client does not have comes with a large variance, and is filled in from the others. Solved through the
    effects (Henderson's equations), so that the work grows with clients + classes and not their product.
    Where signal is so far above noise that double precision cannot solve them, estimates stay as they are.
    """
    told = torch.nan_to_num(estimates.double()).clamp(-_FARTHEST, _FARTHEST)
    noise = torch.nan_to_num(variances.double(), nan=_FARTHEST**2).clamp(_SMALLEST, _FARTHEST**2)
    noise = noise.clamp(max=_LARGEST * float(noise.min()))
    found = fitted_components(told, noise)
    solved = _solved(told, noise, found)
    return _as_told(told, noise, found) if solved is None else solved


def _solved(
    estimates: Float[Tensor, "m c d"], noise: Float[Tensor, "m c"], found: Components
) -> Shrunk | None:
    """Henderson's equations; None where rounding has made them worthless."""
    clients, classes, dim = estimates.shape
    rows = estimates.reshape(-1, dim)
    weights = 1 / (found.rest + noise.flatten())
    design = _design(clients, classes)
    sizes = [found.grand, *[found.classes] * classes, *[found.clients] * clients]
    roots = torch.tensor(sizes, dtype=torch.float64).sqrt()
    inner = roots[:, None] * (design.T @ (weights[:, None] * design)) * roots
    factor, failed = torch.linalg.cholesky_ex(inner + torch.eye(len(roots), dtype=torch.float64))
    if int(failed):
        return None
    known = roots[:, None] * torch.cholesky_inverse(factor) * roots
    effects = known @ (design.T @ (weights[:, None] * rows))
    fixed = design @ effects
    rest = (found.rest * weights)[:, None] * (rows - fixed)
    share = weights.reshape(clients, classes, 1)
    share = share / share.sum(dim=0)  # of those who know the class
    shared = effects[0] + effects[1 : classes + 1] + (share * rest.reshape(clients, classes, dim)).sum(dim=0)
    own = known[1 : classes + 1, 1 : classes + 1].diagonal()
    unknown = known[0, 0] + 2 * known[0, 1 : classes + 1] + own
    left = (share[..., 0].square() * found.rest * noise * weights.reshape(clients, classes)).sum(dim=0)
    each = (fixed + rest).reshape(clients, classes, dim)
    inherited = noise * weights.reshape(clients, classes)
    doubt = Doubt(known, inherited, found.rest * inherited)
    return _usable(Shrunk(each, shared, unknown.clamp(min=0) + left, found, doubt))


def _usable(solved: Shrunk) -> Shrunk | None:
    parts = (solved.each, solved.shared, solved.variances)
    return solved if all(bool(part.isfinite().all()) for part in parts) else None


def _as_told(estimates: Float[Tensor, "m c d"], noise: Float[Tensor, "m c"], found: Components) -> Shrunk:
    """Nothing is taken for noise; a class is the mean of its estimates, by what each of them knows."""
    weights = 1 / noise
    share = weights / weights.sum(dim=0)
    effects = 1 + sum(noise.shape)
    doubt = Doubt(torch.zeros(effects, effects, dtype=torch.float64), torch.zeros_like(noise), noise)
    shared = (share[..., None] * estimates).sum(dim=0)
    return Shrunk(estimates, shared, 1 / weights.sum(dim=0), found, doubt)


def _design(clients: int, classes: int) -> Float[Tensor, "n k"]:
    """Which effects each prototype has, client after client: the grand mean, its class, its client."""
    row = torch.arange(clients * classes)
    every = torch.ones(len(row), 1, dtype=torch.float64)
    of_class = torch.nn.functional.one_hot(row % classes, classes).double()
    of_client = torch.nn.functional.one_hot(row // classes, clients).double()
    return torch.cat([every, of_class, of_client], dim=1)
