"""The stronger membership score: a Gaussian likelihood ratio with reference data that it never scores.

If x is one of the n samples behind a class mean p, then p is shifted towards x by (φ(x) - μ)/n; if not, it
scatters around μ. Both worlds have nearly the same covariance, V = Σ (1/n + 1/m) + s² I, where m reference
samples gave μ and s is the noise of the release. With a = (φ(x) - μ)/n the ratio is aᵀV⁻¹(p - μ) - ½ aᵀV⁻¹a.

μ, Σ and s come from non-members and from the upload itself. Non-members are divided into folds, and each
candidate is judged with the folds that it is not in, so that without a leak members and non-members look
alike. Σ has a few directions, found once on the path that everybody knows, and is round beyond them.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.attacks.candidates import FOLDS, Candidates
from vpdr.types import Prototypes

DIRECTIONS = 16
SHRINK = 0.1  # part of Σ that is taken to be round: few samples overstate its leading directions


@dataclass(frozen=True, slots=True)
class Shapes:
    """Σ without each fold, as shares of its trace: leading directions, and what is left per coordinate."""

    axes: Float[Tensor, "f d r"]
    shares: Float[Tensor, "f r"]
    rest: Float[Tensor, " f"]


@dataclass(frozen=True, slots=True)
class Seen:
    """All candidates through the adversary's encoder, with what clipping does to each of them."""

    features: Float[Tensor, "s d"]
    scale: Float[Tensor, " s"]
    norms: Float[Tensor, " s"]  # squared, after clipping


def shapes_of(who: Candidates, public: Float[Tensor, "o d"]) -> Shapes:
    """The shape of Σ without each fold, from the non-members' public features."""
    start = len(who.members)
    owner = who.owner[start:]
    found = []
    for _, others in who.folds:
        known = torch.ones(len(owner), dtype=torch.bool)
        known[others.start - start : others.stop - start] = False
        found.append(_shape(_residuals(public[known], owner[known], len(who.classes))))
    axes, shares = (torch.stack(each) for each in zip(*found, strict=True))
    return Shapes(axes, shares, (1 - shares.sum(1)).clamp(min=1e-6) / public.shape[1])


def log_ratios(who: Candidates, shapes: Shapes, seen: Seen, told: Prototypes) -> Float[Tensor, " s"]:
    """The score of every candidate; 0 where its class has no prototype of its own or no reference."""
    rows, single = _single_rows(who, told)
    means, counts, traces = _references(who, seen)
    usable = single & (counts > 0)
    away = (told.vectors[rows] - means).masked_fill(~usable[:, :, None], 0)
    weights = traces[:, None] * (1 / who.sizes + 1 / counts.clamp(min=1))
    level, damping, pulls = _inverse(shapes, away, weights)
    probes = torch.cat([shapes.axes.transpose(1, 2), pulls, means], dim=1)
    met = torch.empty(len(seen.features), probes.shape[1])
    for probe, parts in zip(probes, who.folds, strict=True):
        for part in parts:
            torch.mm(seen.features[part], probe.T, out=met[part])
    met *= seen.scale[:, None]
    directions, classes = shapes.axes.shape[2], len(who.classes)
    own = (directions + who.owner)[:, None]
    lean = met.gather(1, own)[:, 0] - (means * pulls).sum(2).flatten()[who.cell]
    apart = seen.norms - 2 * met.gather(1, own + classes)[:, 0] + means.square().sum(2).flatten()[who.cell]
    centres = (means @ shapes.axes).flatten(0, 1)[who.cell]
    along = ((met[:, :directions] - centres).square() * damping.flatten(0, 1)[who.cell]).sum(1)
    share = (1 / who.sizes)[who.owner]
    ratios = share * lean - share.square() * (apart - along) / level.flatten()[who.cell] / 2
    return ratios.masked_fill(~usable.flatten()[who.cell], 0)


def _references(
    who: Candidates, seen: Seen
) -> tuple[Float[Tensor, "f c d"], Float[Tensor, "f c"], Float[Tensor, " f"]]:
    """Class means, their sizes, and the trace of Σ, from the non-members of all folds but one."""
    classes, start = len(who.classes), len(who.members)
    dealt = who.dealt * seen.scale[start:, None]
    sums = (dealt.T @ seen.features[start:]).unflatten(0, (FOLDS, classes))
    counts = who.dealt.sum(0).unflatten(0, (FOLDS, classes))
    energy = (seen.norms[start:] @ who.dealt).unflatten(0, (FOLDS, classes)).sum(1)
    counts = counts.sum(0) - counts
    means = (sums.sum(0) - sums) / counts.clamp(min=1)[:, :, None]
    inner = energy.sum() - energy - (counts * means.square().sum(2)).sum(1)
    free = (counts.sum(1) - (counts > 0).sum(1)).clamp(min=1)  # each mean has used up one
    return means, counts, inner.clamp(min=0) / free


def _inverse(
    shapes: Shapes, away: Float[Tensor, "f c d"], weights: Float[Tensor, "f c"]
) -> tuple[Float[Tensor, "f c"], Float[Tensor, "f c r"], Float[Tensor, "f c d"]]:
    """V of every fold and class: its level, how much less V⁻¹ is along the axes, and V⁻¹(p - μ)."""
    noise = ((away.square().sum(2) - weights) / away.shape[2]).clamp(min=0)  # what sampling leaves open
    level = (weights * shapes.rest[:, None] + noise).clamp(min=1e-12)
    leading = weights[:, :, None] * shapes.shares[:, None]
    damping = leading / (level[:, :, None] + leading)
    along = ((away @ shapes.axes) * damping) @ shapes.axes.transpose(1, 2)
    return level, damping, (away - along) / level[:, :, None]


def _residuals(vectors: Float[Tensor, "m d"], owner: Int[Tensor, " m"], classes: int) -> Float[Tensor, "m d"]:
    """Vectors without the means of their classes."""
    sums = torch.zeros(classes, vectors.shape[1]).index_add_(0, owner, vectors)
    counts = torch.bincount(owner, minlength=classes).clamp(min=1)
    return vectors - (sums / counts[:, None])[owner]


def _shape(residuals: Float[Tensor, "m d"]) -> tuple[Float[Tensor, "d r"], Float[Tensor, " r"]]:
    """The leading directions and their shares of the trace; without samples there are none."""
    dim = residuals.shape[1]
    count = min(DIRECTIONS, dim - 1)
    axes, shares = torch.zeros(dim, count), torch.zeros(count)
    total = residuals.square().sum()
    if len(residuals) and float(total) > 0:
        found = min(count, len(residuals))
        wide = len(residuals) <= dim  # the smaller of the two products has the same leading values
        values, vectors = torch.linalg.eigh(residuals @ residuals.T if wide else residuals.T @ residuals)
        values, vectors = values[-found:].clamp(min=1e-12), vectors[:, -found:]
        axes[:, :found] = residuals.T @ vectors / values.sqrt() if wide else vectors
        shares[:found] = (1 - SHRINK) * values / total
    return axes, shares


def _single_rows(who: Candidates, told: Prototypes) -> tuple[Int[Tensor, " c"], Bool[Tensor, " c"]]:
    """Which prototype is each class's, and whether it is the only one."""
    same = told.labels[None] == who.classes[:, None]
    return same.int().argmax(1), same.sum(1) == 1
