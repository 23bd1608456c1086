"""One stage: the only place where the mechanism touches the data."""

import dataclasses
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.mechanisms.noise import NoiseSource
from vpdr.mechanisms.perturb import NoisyRows, Scale, noisy_rows, noisy_share
from vpdr.mechanisms.rapp.seen import Seen
from vpdr.mechanisms.rapp.stages import Stage
from vpdr.privacy.terms import Adjacency
from vpdr.prototypes import ClassSums
from vpdr.types import Features, Summary

_AT_ONCE = 1000  # samples whose residuals exist at the same time: they fit into a fast cache
_FADING = 0.1  # with several centres a class samples change rows: earlier stages soon speak of other groups


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewpoint:
    """From where a stage looks. Public, and fixed before the data are touched."""

    centres: Float[Tensor, "p r"]
    radius: float
    per_class: int
    adjacency: Adjacency  # the one whose bounds apply: see `counting_adjacency`
    total: int | None  # samples of the client, where public


def counting_adjacency(stated: Adjacency, per_class: int) -> Adjacency:
    """Which relation bounds the rows.

    With several centres a class a sample that keeps its label may still change its row, and the number of
    samples in a row is private: what holds for a changed label holds for it.
    """
    if per_class > 1 and stated is Adjacency.REPLACE_SAME_LABEL:
        return Adjacency.REPLACE_ONE
    return stated


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What a stage computes from the data, before noise. Private."""

    summary: Summary  # sums of clipped residuals, and how many there are, row by row
    share: Float[Tensor, ""]  # Σ over samples of min(|residual|²/4R², 1)


def glimpse(features: Features, view: Viewpoint) -> Glimpse:
    """All that depends on the data.

    Guarantee: let R be the view's radius, whatever it and the centres are. (sums/R, counts) moves by what
    `ClassSums` states under the view's adjacency, because a clipped residual is a function of one sample and
    at most R long; `share` moves by at most 1, because a sample adds between 0 and 1 to it.
    """
    rows = assigned(features, view.centres, view.per_class)
    sums, lengths = torch.zeros_like(view.centres), []
    for group, vectors in zip(rows.split(_AT_ONCE), features.vectors.split(_AT_ONCE), strict=True):
        away = view.centres.index_select(0, group).neg_().add_(vectors)
        norms: Tensor = away.norm(dim=1, keepdim=True)
        lengths.append(norms / (2 * view.radius))
        sums.index_add_(0, group, away.mul_(view.radius / norms.clamp_(min=view.radius)))
    share = torch.cat(lengths).square_().clamp_(max=1).sum()
    everyone, sizes = torch.arange(len(sums)), torch.bincount(rows, minlength=len(sums))
    return Glimpse(Summary(sums, everyone, sizes), share)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stage tells of the data. Public."""

    rows: NoisyRows  # sums and counts
    share: Float[Tensor, ""] | None  # None where no second moment was paid for


def outcome(features: Features, view: Viewpoint, stage: Stage, noise: NoiseSource) -> Outcome:
    """Sums of residuals clipped around the centres, counts, and their second moment, each with its noise.

    Guarantee: the events of `stage` under the view's adjacency, for any centres and any radius: noise on
    what `glimpse` bounds, of a scale that does not depend on the data.
    """
    found, rule = glimpse(features, view), ClassSums(classes=len(view.centres))
    scale = Scale(
        multiplier=stage.sums.multiplier,
        clip_norm=view.radius,
        adjacency=view.adjacency,
        reach=torch.ones(features.vectors.shape[1], dtype=torch.float64),
    )
    rows = noisy_rows(found.summary, rule, scale, noise)
    moment = stage.moment
    return Outcome(rows, None if moment is None else noisy_share(found.share, moment.multiplier, noise))


def look(features: Features, seen: Seen, view: Viewpoint, stage: Stage, noise: NoiseSource) -> Seen:
    """The outcome of a stage, added to what was seen before; beyond `outcome` it is post-processing."""
    found = outcome(features, view, stage, noise)
    told, precision = found.rows, found.rows.stds[0] ** -2
    kept = 1.0 if view.per_class == 1 else _FADING
    fresh = dataclasses.replace(
        seen,
        stage=seen.stage + 1,
        weight=kept * seen.weight + precision,
        sums=kept * seen.sums + precision * told.rows,
        centred=kept * seen.centred + precision * view.centres,
        counts=kept * seen.counts + precision * view.radius**2 * told.sizes,
        counted=kept * seen.counted + precision * view.radius**2,
        centres=view.centres,
    )
    return fresh if found.share is None else _with_moment(fresh, found.share, view, stage)


def _with_moment(seen: Seen, share: Float[Tensor, ""], view: Viewpoint, stage: Stage) -> Seen:
    """The noisy second moment, weighed against what was known of it before."""
    if stage.moment is None:
        return seen
    size = float(seen.counts.sum() / seen.counted) if view.total is None else float(view.total)
    unit = 4 * view.radius**2 / max(size, 1.0)
    weight = (unit * stage.moment.multiplier) ** -2
    total = seen.moment_weight + weight
    moment = (seen.moment * seen.moment_weight + unit * share * weight) / total
    return dataclasses.replace(seen, moment=moment.clamp(min=1e-6 * view.radius**2), moment_weight=total)


def assigned(features: Features, centres: Float[Tensor, "p r"], per_class: int) -> Int[Tensor, " n"]:
    """The row of each sample: its class, or the nearest released centre of its class."""
    if per_class == 1:
        return features.labels
    first = features.labels * per_class
    apart = [(features.vectors - centres[first + number]).norm(dim=1) for number in range(per_class)]
    return first + torch.stack(apart, dim=1).argmin(dim=1)
