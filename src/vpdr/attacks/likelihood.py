"""Membership by a Gaussian likelihood ratio, with reference data that never contain the scored candidate.

If x is one of the n samples behind a class mean p, then p is shifted towards x by (φ(x) - μ)/n; otherwise it
scatters around μ. Both hypotheses have nearly the same covariance, V = Σ (1/n + 1/m) + s² I, where m
reference samples gave μ and s is the noise of the release. With a = (φ(x) - μ)/n the log-likelihood ratio is
aᵀV⁻¹(p - μ) - ½ aᵀV⁻¹a.

μ, Σ and s are estimated from non-members and from the upload itself. Non-members are divided into folds, and
each candidate is scored with the folds that it is not in, so that without a leak members and non-members have
the same distribution of scores. Σ has a few leading directions, estimated once on frozen features, and is
isotropic beyond them.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.attacks.candidates import FOLDS, Candidates
from vpdr.types import Prototypes

MAX_DIRECTIONS = 16
SHRINKAGE = 0.1  # share of Σ that is taken to be isotropic: few samples overstate its leading directions


@dataclass(frozen=True, slots=True)
class CovarianceModel:
    """Σ estimated without each fold, as shares of its trace: leading directions and the remainder."""

    axes: Float[Tensor, "f d r"]
    trace_shares: Float[Tensor, "f r"]
    residual_share: Float[Tensor, " f"]


@dataclass(frozen=True, slots=True)
class CandidateFeatures:
    """Features of all candidates under the adversary's encoder, and how clipping scales each of them."""

    features: Float[Tensor, "s d"]
    clip_scale: Float[Tensor, " s"]
    squared_norms: Float[Tensor, " s"]  # after clipping


def fit_covariance(candidates: Candidates, public_features: Float[Tensor, "o d"]) -> CovarianceModel:
    """Estimate the shape of Σ without each fold, from the non-members' public features."""
    start = len(candidates.member_rows)
    class_index = candidates.class_index[start:]
    directions = []
    for _, fold in candidates.fold_slices:
        reference = torch.ones(len(class_index), dtype=torch.bool)
        reference[fold.start - start : fold.stop - start] = False
        residuals = _class_residuals(public_features[reference], class_index[reference], len(candidates.classes))
        directions.append(_leading_directions(residuals))
    axes, shares = (torch.stack(parts) for parts in zip(*directions, strict=True))
    return CovarianceModel(axes, shares, (1 - shares.sum(1)).clamp(min=1e-6) / public_features.shape[1])


def membership_log_ratios(
    candidates: Candidates, covariance: CovarianceModel, candidate_features: CandidateFeatures, upload: Prototypes
) -> Float[Tensor, " s"]:
    """The score of every candidate; 0 if its class has not exactly one prototype, or no reference samples."""
    cell = candidates.fold_class_index  # fold and class of each candidate
    rows, is_single = _prototype_rows(candidates, upload)
    means, counts, traces = _reference_statistics(candidates, candidate_features)
    usable = is_single & (counts > 0)
    offsets = (upload.vectors[rows] - means).masked_fill(~usable[:, :, None], 0)
    weights = traces[:, None] * (1 / candidates.train_counts + 1 / counts.clamp(min=1))
    level, damping, solved = _solve_covariance(covariance, offsets, weights)
    # Products of each candidate with the axes, with V⁻¹(p - μ) and with μ of its fold, for all classes.
    probes = torch.cat([covariance.axes.transpose(1, 2), solved, means], dim=1)
    products = torch.empty(len(candidate_features.features), probes.shape[1])
    for probe, parts in zip(probes, candidates.fold_slices, strict=True):
        for part in parts:
            torch.mm(candidate_features.features[part], probe.T, out=products[part])
    products *= candidate_features.clip_scale[:, None]
    directions, classes = covariance.axes.shape[2], len(candidates.classes)
    own = (directions + candidates.class_index)[:, None]
    linear = products.gather(1, own)[:, 0] - (means * solved).sum(2).flatten()[cell]
    squared_distance = (
        candidate_features.squared_norms
        - 2 * products.gather(1, own + classes)[:, 0]
        + means.square().sum(2).flatten()[cell]
    )
    projected_means = (means @ covariance.axes).flatten(0, 1)[cell]
    along_axes = ((products[:, :directions] - projected_means).square() * damping.flatten(0, 1)[cell]).sum(1)
    share = (1 / candidates.train_counts)[candidates.class_index]
    ratios = share * linear - share.square() * (squared_distance - along_axes) / level.flatten()[cell] / 2
    return ratios.masked_fill(~usable.flatten()[cell], 0)


def _reference_statistics(
    candidates: Candidates, candidate_features: CandidateFeatures
) -> tuple[Float[Tensor, "f c d"], Float[Tensor, "f c"], Float[Tensor, " f"]]:
    """Class means, their sample counts, and the trace of Σ, from the non-members of all folds but one."""
    shape, start = (FOLDS, len(candidates.classes)), len(candidates.member_rows)
    one_hot = candidates.fold_class_one_hot
    weighted = one_hot * candidate_features.clip_scale[start:, None]
    sums = (weighted.T @ candidate_features.features[start:]).unflatten(0, shape)
    counts = one_hot.sum(0).unflatten(0, shape)
    energy = (candidate_features.squared_norms[start:] @ one_hot).unflatten(0, shape).sum(1)
    counts = counts.sum(0) - counts
    means = (sums.sum(0) - sums) / counts.clamp(min=1)[:, :, None]
    within = energy.sum() - energy - (counts * means.square().sum(2)).sum(1)
    degrees_of_freedom = (counts.sum(1) - (counts > 0).sum(1)).clamp(min=1)
    return means, counts, within.clamp(min=0) / degrees_of_freedom


def _solve_covariance(
    covariance: CovarianceModel, offsets: Float[Tensor, "f c d"], weights: Float[Tensor, "f c"]
) -> tuple[Float[Tensor, "f c"], Float[Tensor, "f c r"], Float[Tensor, "f c d"]]:
    """V of every fold and class: its isotropic level, how much V⁻¹ is damped along the axes, V⁻¹(p - μ)."""
    noise = ((offsets.square().sum(2) - weights) / offsets.shape[2]).clamp(min=0)  # unexplained by sampling
    level = (weights * covariance.residual_share[:, None] + noise).clamp(min=1e-12)
    leading = weights[:, :, None] * covariance.trace_shares[:, None]
    damping = leading / (level[:, :, None] + leading)
    along_axes = ((offsets @ covariance.axes) * damping) @ covariance.axes.transpose(1, 2)
    return level, damping, (offsets - along_axes) / level[:, :, None]


def _class_residuals(
    vectors: Float[Tensor, "m d"], class_index: Int[Tensor, " m"], classes: int
) -> Float[Tensor, "m d"]:
    """Vectors minus the means of their classes."""
    sums = torch.zeros(classes, vectors.shape[1]).index_add_(0, class_index, vectors)
    counts = torch.bincount(class_index, minlength=classes).clamp(min=1)
    return vectors - (sums / counts[:, None])[class_index]


def _leading_directions(residuals: Float[Tensor, "m d"]) -> tuple[Float[Tensor, "d r"], Float[Tensor, " r"]]:
    """The leading directions and their shares of the trace, padded with zeros."""
    dim = residuals.shape[1]
    size = min(MAX_DIRECTIONS, dim - 1)
    axes, shares = torch.zeros(dim, size), torch.zeros(size)
    total = residuals.square().sum()
    if len(residuals) and float(total) > 0:
        rank = min(size, len(residuals))
        wide = len(residuals) <= dim  # the smaller of the two products has the same leading eigenvalues
        values, vectors = torch.linalg.eigh(residuals @ residuals.T if wide else residuals.T @ residuals)
        values, vectors = values[-rank:].clamp(min=1e-12), vectors[:, -rank:]
        axes[:, :rank] = residuals.T @ vectors / values.sqrt() if wide else vectors
        shares[:rank] = (1 - SHRINKAGE) * values / total
    return axes, shares


def _prototype_rows(candidates: Candidates, upload: Prototypes) -> tuple[Int[Tensor, " c"], Bool[Tensor, " c"]]:
    """The row of each class's first prototype, and whether it is the only one."""
    same = upload.labels[None] == candidates.classes[:, None]
    return same.int().argmax(1), same.sum(1) == 1
