"""Noisy prototypes of many clients and classes, read together: what looks like noise is taken out.

All of it is post-processing of released numbers and costs no privacy. It never fails: a client that stopped
here would tell the server something about numbers of which it has only paid the noise.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

_ROUNDS = 4  # of weights and components; they settle within two
_LARGEST = 1e12  # ratio of two variances beyond which a prototype says nothing
_FLOOR = 1e-4  # of the noise in a class: classes that seem equal keep an order, and next to no energy
_SMALLEST = 1e-30  # noise-free prototypes would otherwise have infinite weight
_FARTHEST = 1e60  # so that squares of sums of squares are numbers


@dataclass(frozen=True, slots=True)
class Components:
    """Energy per coordinate of what all share, of a class, of a client, and of a class at one client."""

    grand: float
    classes: float
    clients: float
    rest: float


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
    return _usable(Shrunk(each, shared, unknown.clamp(min=0) + left, found))


def _usable(solved: Shrunk) -> Shrunk | None:
    parts = (solved.each, solved.shared, solved.variances)
    return solved if all(bool(part.isfinite().all()) for part in parts) else None


def _as_told(estimates: Float[Tensor, "m c d"], noise: Float[Tensor, "m c"], found: Components) -> Shrunk:
    """Nothing is taken for noise; a class is the mean of its estimates, by what each of them knows."""
    weights = 1 / noise
    share = weights / weights.sum(dim=0)
    return Shrunk(estimates, (share[..., None] * estimates).sum(dim=0), 1 / weights.sum(dim=0), found)


def _design(clients: int, classes: int) -> Float[Tensor, "n k"]:
    """Which effects each prototype has, client after client: the grand mean, its class, its client."""
    row = torch.arange(clients * classes)
    every = torch.ones(len(row), 1, dtype=torch.float64)
    of_class = torch.nn.functional.one_hot(row % classes, classes).double()
    of_client = torch.nn.functional.one_hot(row // classes, clients).double()
    return torch.cat([every, of_class, of_client], dim=1)


def fitted_components(estimates: Float[Tensor, "m c d"], noise: Float[Tensor, "m c"]) -> Components:
    """Four variances by the method of moments, none negative, and that of the classes never quite 0.

    Sums over everything, over classes, over clients and over nothing each have an expected energy that is
    linear in the variances; the sums are weighted by how much is known of each entry.
    """
    energy = estimates.square().mean(dim=2)
    trust = noise.square().reciprocal()
    spread = max(float(((energy - noise) * trust).sum() / trust.sum()), 0.0)
    found = torch.zeros(4, dtype=torch.float64)
    for _ in range(_ROUNDS):
        weights = 1 / (noise + spread)
        weights = weights / weights.max()
        overlap, observed = _moments(estimates, weights, noise)
        scale = overlap.diagonal()
        found = _not_negative(overlap / scale[:, None], observed / scale)
        spread = float(found[1:].sum())
    grand, by_class, by_client, rest = found.tolist()
    least = _FLOOR * float((1 / (1 / noise).sum(dim=0)).median())
    return Components(grand, max(by_class, least), by_client, rest)


def _not_negative(overlap: Float[Tensor, "4 4"], observed: Float[Tensor, "4"]) -> Float[Tensor, "4"]:
    """The best variances without a negative one; all is rest where none are found."""
    try:
        return torch.from_numpy(nnls(overlap.numpy(), observed.numpy())[0])
    except (RuntimeError, ValueError):
        return torch.stack([*torch.zeros(3, dtype=torch.float64), observed[3].nan_to_num().clamp(min=0)])


def _moments(
    estimates: Float[Tensor, "m c d"], weights: Float[Tensor, "m c"], noise: Float[Tensor, "m c"]
) -> tuple[Float[Tensor, "4 4"], Float[Tensor, "4"]]:
    """What each variance adds to each of the four energies, and the energies without the noise."""
    weighted = weights[..., None] * estimates
    sums = (weighted.sum(dim=(0, 1)), weighted.sum(dim=0), weighted.sum(dim=1), weighted)
    energies = torch.stack([part.square().sum() for part in sums]) / estimates.shape[2]
    every, single = weights.sum().square(), weights.square().sum()
    by_class, by_client = weights.sum(dim=0).square().sum(), weights.sum(dim=1).square().sum()
    overlap = torch.stack(
        [
            torch.stack([every, by_class, by_client, single]),
            torch.stack([by_class, by_class, single, single]),
            torch.stack([by_client, single, by_client, single]),
            torch.stack([single, single, single, single]),
        ]
    )
    return overlap, energies - (weights.square() * noise).sum()
