"""The stronger membership score: a Gaussian likelihood ratio with reference data that it never scores.

If x is one of the n samples behind a class mean, the mean is shifted towards x by (φ(x) - μ)/n; if not, it
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

from vpdr.attacks.candidates import Candidates
from vpdr.types import Prototypes

FOLDS = 3
DIRECTIONS = 32
SHRINK = 0.1  # part of Σ that is taken to be round: few samples overstate its leading directions


@dataclass(frozen=True, slots=True)
class Shape:
    """Σ as shares of its trace: the leading directions, and what is left for every coordinate."""

    axes: Float[Tensor, "d r"]
    shares: Float[Tensor, " r"]
    rest: float


@dataclass(frozen=True, slots=True)
class Reference:
    """What the adversary prepares for one client: folds, shapes, and the public class sizes."""

    folds: Int[Tensor, " s"]
    judged: tuple[Int[Tensor, " j"], ...]  # whom each fold's reference judges
    others: Int[Tensor, " o"]  # the non-members
    sizes: Float[Tensor, " c"]  # n of each class; more than a server knows where counts are private
    shapes: tuple[Shape, ...]


def reference_of(
    who: Candidates, sizes: Int[Tensor, " c"], public: Float[Tensor, "s d"], rng: torch.Generator
) -> Reference:
    """Divide all candidates into folds within their class, and learn the shape without each fold."""
    folds = torch.empty(len(who.owner), dtype=torch.int64)
    for index in range(len(who.classes)):
        for kind in (True, False):
            rows = ((who.owner == index) & (who.member == kind)).nonzero()[:, 0]
            folds[rows] = torch.randperm(len(rows), generator=rng) % FOLDS
    shapes = tuple(_shape(_residuals(who, public, ~who.member & (folds != f))) for f in range(FOLDS))
    judged = tuple((folds == fold).nonzero()[:, 0] for fold in range(FOLDS))
    return Reference(folds, judged, (~who.member).nonzero()[:, 0], sizes.float(), shapes)


def log_ratios(
    who: Candidates, how: Reference, features: Float[Tensor, "s d"], told: Prototypes
) -> Float[Tensor, " s"]:
    """The score of every candidate; 0 where its class has no prototype of its own or no reference."""
    scores = torch.zeros(len(features))
    rows, single = _single_rows(who, told)
    sums = _FoldSums(who, how, features)
    for fold, shape in enumerate(how.shapes):
        means, counts, trace = sums.without(fold)
        usable = single & (counts > 0)
        away = (told.vectors[rows] - means).masked_fill(~usable[:, None], 0)
        weight = trace * (1 / how.sizes + 1 / counts.clamp(min=1))
        judged = how.judged[fold]
        owner = who.owner[judged]
        found = _View(shape, means, away, weight).ratio(features[judged], owner, how.sizes)
        scores[judged] = found.masked_fill(~usable[owner], 0)
    return scores


class _FoldSums:
    """Sums of the non-members by fold and class, so that leaving a fold out costs nothing."""

    def __init__(self, who: Candidates, how: Reference, features: Float[Tensor, "s d"]) -> None:
        classes = len(who.classes)
        known = features[how.others]
        cells = how.folds[how.others] * classes + who.owner[how.others]
        cut = (FOLDS, classes)
        zeros = torch.zeros(FOLDS * classes, known.shape[1])
        self.sums = zeros.index_add_(0, cells, known).reshape(*cut, -1)
        energy = torch.zeros(FOLDS * classes).index_add_(0, cells, known.square().sum(1))
        self.energy = energy.reshape(cut)
        self.counts = torch.bincount(cells, minlength=FOLDS * classes).float().reshape(cut)

    def without(self, fold: int) -> tuple[Float[Tensor, "c d"], Float[Tensor, " c"], Float[Tensor, ""]]:
        """Class means, their sizes, and the trace of Σ, from all folds but one."""
        kept = [other for other in range(FOLDS) if other != fold]
        counts = self.counts[kept].sum(0)
        means = self.sums[kept].sum(0) / counts.clamp(min=1)[:, None]
        inner = self.energy[kept].sum() - (counts * means.square().sum(1)).sum()
        free = (counts.sum() - (counts > 0).sum()).clamp(min=1)  # each mean has used up one
        return means, counts, inner.clamp(min=0) / free


class _View:
    """V⁻¹ of every class: round, but for the leading directions."""

    def __init__(
        self,
        shape: Shape,
        means: Float[Tensor, "c d"],
        away: Float[Tensor, "c d"],
        weight: Float[Tensor, " c"],
    ) -> None:
        noise = ((away.square().sum(1) - weight) / away.shape[1]).clamp(
            min=0
        )  # beyond what sampling explains
        self.level = (weight * shape.rest + noise).clamp(min=1e-12)
        leading = weight[:, None] * shape.shares
        self.damping = leading / (self.level[:, None] + leading)
        pull = (away - ((away @ shape.axes) * self.damping) @ shape.axes.T) / self.level[:, None]
        self.probes = torch.cat([shape.axes.T, pull, means])
        self.cuts = (len(self.probes) - 2 * len(means), len(means), len(means))
        self.centres = means @ shape.axes
        self.offsets = (means * pull).sum(1)
        self.norms = means.square().sum(1)

    def ratio(
        self, features: Float[Tensor, "m d"], owner: Int[Tensor, " m"], sizes: Float[Tensor, " c"]
    ) -> Float[Tensor, " m"]:
        """aᵀV⁻¹(p - μ) - ½ aᵀV⁻¹a with a = (z - μ)/n, all by one product with everything that z meets."""
        axes, pulls, means = (features @ self.probes.T).split(self.cuts, dim=1)
        own = owner[:, None]
        lean = pulls.gather(1, own)[:, 0] - self.offsets[owner]
        apart = features.square().sum(1) - 2 * means.gather(1, own)[:, 0] + self.norms[owner]
        along = ((axes - self.centres[owner]).square() * self.damping[owner]).sum(1)
        share = 1 / sizes[owner]
        ratio: Tensor = share * lean - share.square() * (apart - along) / self.level[owner] / 2
        return ratio


def _residuals(
    who: Candidates, features: Float[Tensor, "s d"], known: Bool[Tensor, " s"]
) -> Float[Tensor, "m d"]:
    """Known candidates without the means of their classes."""
    owner, vectors = who.owner[known], features[known]
    sums = torch.zeros(len(who.classes), vectors.shape[1]).index_add_(0, owner, vectors)
    counts = torch.bincount(owner, minlength=len(who.classes)).clamp(min=1)
    return vectors - (sums / counts[:, None])[owner]


def _shape(residuals: Float[Tensor, "m d"]) -> Shape:
    dim = residuals.shape[1]
    total = residuals.square().sum()
    if not len(residuals) or float(total) == 0:
        return Shape(torch.zeros(dim, 0), torch.zeros(0), 1 / dim)
    count = min(DIRECTIONS, dim - 1, len(residuals))
    if len(residuals) <= dim:
        found, vectors = torch.linalg.eigh(residuals @ residuals.T)
        values = found[-count:].clamp(min=1e-12)
        axes = residuals.T @ vectors[:, -count:] / values.sqrt()
    else:
        found, vectors = torch.linalg.eigh(residuals.T @ residuals)
        values, axes = found[-count:].clamp(min=0), vectors[:, -count:]
    shares = (1 - SHRINK) * values / total
    rest = max(float(1 - shares.sum()), 1e-6) / dim
    return Shape(axes, shares, rest)


def _single_rows(who: Candidates, told: Prototypes) -> tuple[Int[Tensor, " c"], Bool[Tensor, " c"]]:
    """Which prototype is each class's, and whether it is the only one."""
    same = told.labels[None] == who.classes[:, None]
    return same.int().argmax(1), same.sum(1) == 1
