"""The Fréchet distance between two clouds of features, each read as a Gaussian."""

import torch
from jaxtyping import Float
from torch import Tensor

RIDGE = 1e-6  # added to both covariances of a pooled distance, so that few points have one


def frechet(
    first: tuple[Float[Tensor, " d"], Float[Tensor, "d d"]],
    second: tuple[Float[Tensor, " d"], Float[Tensor, "d d"]],
) -> float:
    """`|m₁ - m₂|² + Tr(S₁ + S₂ - 2 (S₁S₂)^½)` of two means and covariances."""
    (mean, spread), (other, scatter) = first, second
    values, vectors = torch.linalg.eigh(spread.double())
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    shared = torch.linalg.eigvalsh(root @ scatter.double() @ root).clamp(min=0).sqrt().sum()
    apart = (mean.double() - other.double()).square().sum()
    return float(apart + spread.double().trace() + scatter.double().trace() - 2 * shared)


def moments(points: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """Mean and covariance (ddof 1); one point has no spread."""
    mean = points.double().mean(0)
    away = points.double() - mean
    return mean, away.T @ away / max(len(points) - 1, 1)


def to_class(point: Float[Tensor, " d"], real: Float[Tensor, "n d"]) -> float:
    """The distance of a single reconstruction to a class: with no spread of its own the root vanishes."""
    mean = real.double().mean(0)
    spread = (real.double() - mean).square().sum() / max(len(real) - 1, 1)
    return float((point.double() - mean).square().sum() + spread)


def pooled(made: Float[Tensor, "p d"], real: Float[Tensor, "n d"]) -> float:
    """All reconstructions of a client against all its features; NaN for fewer than two."""
    if min(len(made), len(real)) < 2:
        return float("nan")
    ridge = RIDGE * torch.eye(made.shape[1], dtype=torch.float64)
    (mean, spread), (other, scatter) = moments(made), moments(real)
    return frechet((mean, spread + ridge), (other, scatter + ridge))
