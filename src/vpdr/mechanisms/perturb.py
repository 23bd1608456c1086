"""Gaussian noise on a summary: the one place where it is added."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.mechanisms.base import Occasion
from vpdr.mechanisms.noise import NoiseSource
from vpdr.privacy.terms import Adjacency, Counts, Noise, Terms
from vpdr.prototypes import Summariser
from vpdr.types import Prototypes, Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much noise: a multiple of the sensitivity, shaped over coordinates."""

    multiplier: float
    clip_norm: float
    adjacency: Adjacency
    reach: Float[Tensor, " d"]  # noise of each coordinate, relative to the isotropic one


@dataclass(frozen=True, slots=True)
class Noised:
    """A summary after noise, with the standard deviation that each row received (before `reach`)."""

    prototypes: Prototypes
    stds: Float[Tensor, " p"]


@dataclass(frozen=True, slots=True)
class NoisyRows:
    """Rows and counts after noise, before anything is divided."""

    rows: Float[Tensor, "p d"]
    sizes: Float[Tensor, " p"]
    stds: Float[Tensor, " p"]


def noisy_rows(summary: Summary, rule: Summariser, scale: Scale, noise: NoiseSource) -> NoisyRows:
    """Add Gaussian noise to each row, and to each count that is to stay private.

    Guarantee: one Gaussian event of `scale.multiplier`, provided that the summary was made from features
    whose groups of coordinates were clipped so that reach is κ/√w on a group of radius κR with Σw = 1
    (isotropic: reach 1), and that the summariser's sensitivity is a bound.
    """
    unit = rule.sensitivity(scale.adjacency, scale.clip_norm, summary.sizes)
    stds = scale.multiplier * unit
    rows = summary.vectors + stds[:, None] * scale.reach * noise.normal(*summary.vectors.shape)
    sizes = summary.sizes.double()
    if rule.hides_counts(scale.adjacency):
        sizes = sizes + stds / scale.clip_norm * noise.normal(len(sizes))
    return NoisyRows(rows, sizes, stds)


def noisy_share(value: Float[Tensor, ""], multiplier: float, noise: NoiseSource) -> Float[Tensor, ""]:
    """A sum to which each sample adds between 0 and 1, with noise.

    Guarantee: one Gaussian event of `multiplier` under every adjacency.
    """
    return value + multiplier * noise.normal(1)[0]


def perturb(summary: Summary, scale: Scale, occasion: Occasion) -> Noised:
    """Noisy rows, finished by the occasion's rule into prototypes.

    Guarantee: that of `noisy_rows`; the rest is post-processing.
    """
    return finished(noisy_rows(summary, occasion.summarise, scale, occasion.noise), summary, scale, occasion)


def finished(told: NoisyRows, summary: Summary, scale: Scale, occasion: Occasion) -> Noised:
    """From noisy rows to prototypes; post-processing."""
    rule = occasion.summarise
    variances = rule.variances(told.stds * scale.reach.square().mean().sqrt(), told.sizes)
    return Noised(sendable(rule.finish(told.rows, told.sizes), summary, variances), told.stds)


def sendable(
    finished: Float[Tensor, "p d"], summary: Summary, variances: Float[Tensor, " p"] | None = None
) -> Prototypes:
    """What leaves the client: vectors in single precision and their labels, no sizes.

    Published variances say how much noise a vector holds; the summariser decides whether they may be.
    """
    return Prototypes(single(finished), summary.labels, None if variances is None else single(variances))


def single(values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """In single precision, and finite: what is beyond its largest number becomes that number."""
    return torch.nan_to_num(values.float())


def terms(adjacency: Adjacency, occasion: Occasion) -> Terms:
    """Under which conditions the release is meant."""
    hidden = occasion.summarise.hides_counts(adjacency)
    return Terms(
        adjacency=adjacency,
        encoder=occasion.encoder,
        counts=Counts.PRIVATE if hidden else Counts.PUBLIC,
        basis=occasion.summarise.basis,
        noise=Noise.SEEDED if occasion.noise.reproducible else Noise.SYSTEM,
    )


def noise_to_signal(summary: Summary, noised: Noised, reach: Float[Tensor, " d"]) -> float:
    """The median over prototypes of samples that exist: expected noise norm over clean norm."""
    held = summary.sizes > 0
    signal, noise = summary.vectors[held].norm(dim=1), noised.stds[held] * reach.norm()
    ratio = torch.where(signal > 0, noise / signal.clamp(min=1e-300), torch.inf)
    return float(ratio.median()) if len(ratio) else 0.0
