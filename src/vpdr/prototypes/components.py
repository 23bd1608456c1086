"""How much of noisy prototypes is common to all, to a class, to a client, or to a class at one client."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

_ROUNDS = 4  # of weights and components; they settle within two
_FLOOR = 1e-4  # of the noise in a class: classes that seem equal keep an order, and next to no energy


@dataclass(frozen=True, slots=True)
class Components:
    """Energy per coordinate of what all share, of a class, of a client, and of a class at one client."""

    grand: float
    classes: float
    clients: float
    rest: float


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
