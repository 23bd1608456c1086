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

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from vpdr.attacks.base import AttackContext, adversary_features
from vpdr.attacks.membership_metrics import FOLDS, Candidates, MembershipScores, membership_result, sample_candidates
from vpdr.client import Client
from vpdr.federation import RoundUploads
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


# Membership inference: was a sample among those behind the uploaded prototype? Three adversaries score the same
# uploads. `distance` is the paper's: members are nearer to their prototype. Two stronger ones are optional:
# `likelihood` is the Gaussian likelihood ratio of one round, and `accumulated` adds the ratios of all rounds, which
# is what an adversary with every upload can do. The kind is `mia`.


@dataclass(slots=True)
class _TargetClient:
    """One attacked client: its candidates, and their scores so far."""

    candidates: Candidates
    covariance: CovarianceModel | None  # only for likelihood ratios
    rounds: list[int] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)  # of each round: [a s], by adversary
    has_prototype: list[Tensor] = field(default_factory=list)  # of each round: which classes had a prototype
    is_new: list[bool] = field(default_factory=list)  # whether the upload differed from the one before
    last_vectors: Tensor | None = None

    def to_scores(self) -> MembershipScores:
        """The scores of all rounds."""
        return MembershipScores(
            self.candidates, self.rounds, torch.stack(self.scores), torch.stack(self.has_prototype), self.is_new
        )


class MembershipAttack:
    """The membership attack on every client, over the configured rounds.

    It reads private samples to know the true memberships, so its results are for simulations only. During the
    run it only computes scores; all metrics are computed together at the end.
    """

    def __init__(self, context: AttackContext) -> None:
        self.config, self.streams = context.config, context.streams.fork("mia")
        self.targets: dict[str, _TargetClient | None] = {}
        self.seconds = 0.0
        self._saved_state: Mapping[str, Any] = {}

    def observe(self, round_uploads: RoundUploads) -> None:
        """Score every candidate of every client against the client's upload."""
        begin = time.perf_counter()
        for name, upload in round_uploads.uploads.items():
            client = round_uploads.clients[name]
            target = self._target_for(client)
            if target is not None and bool(torch.isin(target.candidates.classes, upload.labels).any()):
                self._score_upload(client, target, upload, round_uploads.round)
        self.seconds += time.perf_counter() - begin

    def _target_for(self, client: Client) -> _TargetClient | None:
        if client.id not in self.targets:
            candidates = sample_candidates(client.shard, client.id, self.streams)
            self.targets[client.id] = None if candidates is None else self._make_target(client, candidates)
        return self.targets[client.id]

    def _make_target(self, client: Client, candidates: Candidates) -> _TargetClient:
        """A new target, with the scores of a checkpoint if there are any."""
        covariance = _fit_public_covariance(client, candidates) if self.config.likelihood_ratio else None
        target = _TargetClient(candidates, covariance)
        saved = self._saved_state.get(client.id)
        if saved is not None:
            target.rounds, target.is_new = list(saved["rounds"]), list(saved["fresh"])
            target.scores, target.has_prototype = list(saved["scores"]), list(saved["told"])
            target.last_vectors = saved["last"]
        return target

    def _score_upload(self, client: Client, target: _TargetClient, upload: Prototypes, round: int) -> None:
        candidates = target.candidates
        sides = ((client.shard.train, candidates.member_rows), (client.shard.test, candidates.non_member_rows))
        distances, features = [], []
        for samples, rows in sides:
            encoded = adversary_features(client, samples, self.config.adversary_encoder)
            distances.append(negative_distance(encoded, samples.labels, upload)[rows])
            features.append(encoded[rows])
        scores = [torch.cat(distances)]
        if target.covariance is not None:
            vectors = torch.cat(features)
            squared_norms = vectors.square().sum(1)
            scale = _clip_scale(client, squared_norms)
            clipped = CandidateFeatures(vectors, scale, squared_norms * scale.square())
            ratios = membership_log_ratios(candidates, target.covariance, clipped, upload)
            scores.append(ratios.double())
        target.rounds.append(round)
        target.scores.append(torch.stack(scores))
        target.has_prototype.append(torch.isin(candidates.classes, upload.labels))
        target.is_new.append(target.last_vectors is None or not torch.equal(target.last_vectors, upload.vectors))
        target.last_vectors = upload.vectors

    def state_dict(self) -> dict[str, Any]:
        """The scores of every client and round."""
        targets = {
            name: {
                "rounds": target.rounds,
                "fresh": target.is_new,
                "scores": target.scores,
                "told": target.has_prototype,
                "last": target.last_vectors,
            }
            for name, target in self.targets.items()
            if target is not None
        }
        return {"seconds": self.seconds, "targets": {**self._saved_state, **targets}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the scores; candidates and permutations are drawn again from the same streams."""
        self.seconds, self._saved_state = float(state["seconds"]), state["targets"]

    def result(self) -> dict[str, Any]:
        """For every adversary: mean and standard deviation over rounds beside the null values."""
        begin = time.perf_counter()
        scores = {
            name: target.to_scores() for name, target in self.targets.items() if target is not None and target.rounds
        }
        metrics = membership_result(scores)
        seconds = self.seconds + time.perf_counter() - begin
        return {"phi": self.config.adversary_encoder, **metrics, "seconds": seconds}


def negative_distance(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], prototypes: Prototypes
) -> Float64[Tensor, " n"]:
    """-|φ(x) - p|² to the nearest prototype of each sample's class; -inf if there is none.

    In double precision: under noise |p|² is so large that single precision would lose the other terms.
    """
    products = (features @ prototypes.vectors.T).double()
    scores = 2 * products - prototypes.vectors.double().square().sum(1)
    best: Tensor = scores.masked_fill(labels[:, None] != prototypes.labels, -torch.inf).amax(1)
    return best - features.square().sum(1)


def _fit_public_covariance(client: Client, candidates: Candidates) -> CovarianceModel:
    public = client.shard.test.frozen_features[candidates.non_member_rows]
    return fit_covariance(candidates, public * _clip_scale(client, public.square().sum(1))[:, None])


def _clip_scale(client: Client, squared_norms: Float[Tensor, " s"]) -> Float[Tensor, " s"]:
    """The factor by which clipping scales features of these squared norms; 1 without privacy."""
    if not client.release_config.mechanism.traits.is_private:
        return torch.ones(len(squared_norms))
    return (client.release_config.clip_norm / squared_norms.sqrt().clamp(min=1e-12)).clamp(max=1)
