"""Shrinkage of noisy prototypes: the best linear prediction (BLUP) of the clean ones.

A noisy prototype is modelled as a grand mean, an effect of its class, an effect of its client, a residual,
and noise of known variance. The variances of the four components are fitted to the prototypes themselves.
Shapes: m clients, c classes, d dimensions, k = 1 + c + m effects.
"""

from dataclasses import dataclass

import torch
from scipy.optimize import nnls

from vpdr.types import Float, Tensor

_ITERATIONS = 4  # of weights and components; they converge within two
_MIN_CLASS_SHARE = 1e-4  # of the noise of a class: keeps apart classes that seem equal, with negligible energy
_MAX_NOISE_RATIO = 1e12  # ratio of two variances beyond which a prototype has no information
_MIN_NOISE = 1e-30  # noise-free prototypes would otherwise have infinite weight
_MAX_ABS_COORDINATE = 1e60  # so that squares of sums of squares are finite


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Variance per coordinate of the grand mean, of a class, of a client, and of a class at one client."""

    grand: float
    classes: float
    clients: float
    residual: float


@dataclass(frozen=True, slots=True)
class BlupResult:
    """The best linear prediction of each clean prototype, and of each class at the clients that hold it.

    `per_class` is the grand mean, the effect of the class, and the residual at those clients: where every
    class is with one client, the effects of class and client cannot be separated.
    """

    per_client: Float[Tensor, "m c d"]
    per_class: Float[Tensor, "c d"]
    per_class_variances: Float[Tensor, " c"]  # error variance of `per_class`, per coordinate
    components: VarianceComponents
    # the covariance of the errors of `per_client`, per coordinate
    effects: Float[Tensor, "k k"]  # covariance of the grand mean, the classes and the clients
    effect_weight: Float[Tensor, "m c"]  # how much of an error in its effects a prediction keeps
    own_variance: Float[Tensor, "m c"]  # what each prediction adds to that, independently of the others

    def variance_of_means(self, weights: Float[Tensor, "m c"]) -> Float[Tensor, " c"]:
        """The error variance of the mean of each class over clients, for these weights."""
        passed = weights * self.effect_weight
        of_class = passed.sum(dim=0)
        loadings = torch.cat([of_class[:, None], of_class.diag(), passed.T], dim=1)
        common = ((loadings @ self.effects) * loadings).sum(dim=1)
        return common.clamp(min=0) + (weights.square() * self.own_variance).sum(dim=0)


def blup(estimates: Float[Tensor, "m c d"], variances: Float[Tensor, "m c"]) -> BlupResult:
    """P = K (K + V)⁻¹ Y: the shrunken prototypes, each weighted by its precision.

    Y are the noisy prototypes and V their noise; K follows from the four variance components. A class that a
    client does not have comes with a large variance, and is predicted from the others. Solved through the
    effects (Henderson's equations), so that the cost grows with clients + classes and not their product.
    Where the signal is so far above the noise that double precision cannot solve them, the estimates are
    returned unchanged.
    """
    limit = _MAX_ABS_COORDINATE
    observed = torch.nan_to_num(estimates.double()).clamp(-limit, limit)
    noise = torch.nan_to_num(variances.double(), nan=limit**2).clamp(_MIN_NOISE, limit**2)
    noise = noise.clamp(max=_MAX_NOISE_RATIO * float(noise.min()))
    components = fit_variance_components(observed, noise)
    solution = _solve_mixed_model(observed, noise, components)
    if solution is not None:
        return solution
    weights = 1 / noise
    share = weights / weights.sum(dim=0)
    return BlupResult(
        per_client=observed,
        per_class=(share[..., None] * observed).sum(dim=0),
        per_class_variances=1 / weights.sum(dim=0),
        components=components,
        effects=torch.zeros(1 + sum(noise.shape), 1 + sum(noise.shape), dtype=torch.float64),
        effect_weight=torch.zeros_like(noise),
        own_variance=noise,
    )


def fit_variance_components(estimates: Float[Tensor, "m c d"], noise: Float[Tensor, "m c"]) -> VarianceComponents:
    """The four variances by the method of moments, none negative, and that of the classes never quite 0.

    Sums over everything, over classes, over clients and over nothing each have an expected energy that is
    linear in the variances; the entries of the sums are weighted by their precision.
    """
    energy = estimates.square().mean(dim=2)
    precision = noise.square().reciprocal()
    spread = max(float(((energy - noise) * precision).sum() / precision.sum()), 0.0)
    fitted = torch.zeros(4, dtype=torch.float64)
    for _ in range(_ITERATIONS):
        weights = 1 / (noise + spread)
        weights = weights / weights.max()
        weighted = weights[..., None] * estimates
        sums = (weighted.sum(dim=(0, 1)), weighted.sum(dim=0), weighted.sum(dim=1), weighted)
        energies = torch.stack([part.square().sum() for part in sums]) / estimates.shape[2]
        moments = energies - (weights.square() * noise).sum()
        total, single = weights.sum().square(), weights.square().sum()
        by_class, by_client = weights.sum(dim=0).square().sum(), weights.sum(dim=1).square().sum()
        rows = [  # what each variance adds to each of the four energies
            [total, by_class, by_client, single],
            [by_class, by_class, single, single],
            [by_client, single, by_client, single],
            [single, single, single, single],
        ]
        coefficients = torch.stack([torch.stack(row) for row in rows])
        scale = coefficients.diagonal()
        try:
            fitted = torch.from_numpy(nnls((coefficients / scale[:, None]).numpy(), (moments / scale).numpy())[0])
        except (RuntimeError, ValueError):  # the solver failed: all is residual
            residual = (moments / scale)[3].nan_to_num().clamp(min=0)
            fitted = torch.stack([*torch.zeros(3, dtype=torch.float64), residual])
        spread = float(fitted[1:].sum())
    least = _MIN_CLASS_SHARE * float((1 / (1 / noise).sum(dim=0)).median())
    return VarianceComponents(
        grand=float(fitted[0]),
        classes=max(float(fitted[1]), least),
        clients=float(fitted[2]),
        residual=float(fitted[3]),
    )


def _solve_mixed_model(
    estimates: Float[Tensor, "m c d"], noise: Float[Tensor, "m c"], components: VarianceComponents
) -> BlupResult | None:
    """Henderson's equations; None where rounding makes the solution useless."""
    clients, classes, dim = estimates.shape
    rows = estimates.reshape(-1, dim)
    weights = 1 / (components.residual + noise.flatten())
    row = torch.arange(clients * classes)  # client after client
    grand = torch.ones(len(row), 1, dtype=torch.float64)
    of_class = torch.nn.functional.one_hot(row % classes, classes).double()
    of_client = torch.nn.functional.one_hot(row // classes, clients).double()
    design = torch.cat([grand, of_class, of_client], dim=1)  # the effects of each prototype
    sizes = [components.grand, *[components.classes] * classes, *[components.clients] * clients]
    roots = torch.tensor(sizes, dtype=torch.float64).sqrt()
    inner = roots[:, None] * (design.T @ (weights[:, None] * design)) * roots
    factor, failed = torch.linalg.cholesky_ex(inner + torch.eye(len(roots), dtype=torch.float64))
    if int(failed):
        return None
    covariance = roots[:, None] * torch.cholesky_inverse(factor) * roots
    effects = covariance @ (design.T @ (weights[:, None] * rows))
    fixed = design @ effects
    residual = (components.residual * weights)[:, None] * (rows - fixed)

    share = weights.reshape(clients, classes, 1)
    share = share / share.sum(dim=0)  # of the clients that hold the class
    per_class = effects[0] + effects[1 : classes + 1]
    per_class = per_class + (share * residual.reshape(clients, classes, dim)).sum(dim=0)
    own = covariance[1 : classes + 1, 1 : classes + 1].diagonal()
    effect_variance = covariance[0, 0] + 2 * covariance[0, 1 : classes + 1] + own
    by_client = share[..., 0].square() * components.residual * noise * weights.reshape(clients, classes)
    per_class_variances = effect_variance.clamp(min=0) + by_client.sum(dim=0)

    effect_weight = noise * weights.reshape(clients, classes)
    result = BlupResult(
        per_client=(fixed + residual).reshape(clients, classes, dim),
        per_class=per_class,
        per_class_variances=per_class_variances,
        components=components,
        effects=covariance,
        effect_weight=effect_weight,
        own_variance=components.residual * effect_weight,
    )
    parts = (result.per_client, result.per_class, result.per_class_variances)
    return result if all(bool(part.isfinite().all()) for part in parts) else None
