"""Membership inference: was a sample among those behind the uploaded prototype? The attack `mia`.

Three adversaries score the same uploads. `distance` is the paper's: members are nearer to their prototype. Two
stronger ones are optional: `likelihood` is the Gaussian likelihood ratio of one round, and `accumulated` adds the
ratios of all rounds, which is what an adversary with every upload can do. Every metric stands beside its
distribution under permuted memberships, which is what an attack without any information would achieve.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from vpdr.attacks.base import AttackContext, CheckpointState
from vpdr.client import Client, Samples, Shard
from vpdr.federation import RoundUploads
from vpdr.records import AttackedRound, AttackMetric, AttackResult, StrongerAdversary
from vpdr.rng import Streams
from vpdr.types import Bool, Float, Float64, Int, Prototypes, Tensor

MAX_CANDIDATES = 800  # members, and non-members, of each class
FOLDS = 3  # cross-fitting: the reference data of a likelihood ratio never contain the scored candidate
PERMUTATIONS = 31
MAX_DIRECTIONS = 16
SHRINKAGE = 0.1  # share of Σ that is taken to be isotropic: few samples overstate its leading directions

MEMBERSHIP_METRICS = ("auc", "tpr_at_1fpr", "tpr_at_1fpr_nearest", "advantage", "f1")
ADVERSARIES = ("distance", "likelihood")
INVERSE_FPR = 100  # a false positive rate of 1 %
ROC_POINTS = 101  # points of a stored ROC curve
MIN_NON_MEMBERS = 100  # fewer cannot resolve a false positive rate of 1 %
T_95 = 2.04  # 97.5 % quantile of Student's t, degrees of freedom as many as permutations
CHUNK_SIZE = 300_000  # candidates times memberships that are ranked together


# Candidates: members and non-members of each class, the same in every round.


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Members, then non-members, each sorted by fold; `rows_by_class` lists those of each class (padded)."""

    classes: Int[Tensor, " c"]
    train_counts: Int[Tensor, " c"]  # number of training samples of each class, candidates or not
    member_rows: Int[Tensor, " a"]  # rows of the training set
    non_member_rows: Int[Tensor, " b"]  # rows of the test set
    class_index: Int[Tensor, " s"]  # index into `classes` of each candidate
    fold_class_index: Int[Tensor, " s"]  # fold and class as one number
    fold_slices: tuple[tuple[slice, slice], ...]  # members and non-members of each fold
    fold_class_one_hot: Float[Tensor, "o q"]  # fold and class of each non-member, one-hot
    rows_by_class: Int[Tensor, "c n"]
    mask: Bool[Tensor, "c n"]
    memberships: Bool[Tensor, "c n k"]  # the true one of each class, and random permutations of it

    @property
    def non_member_counts(self) -> Int[Tensor, " c"]:
        return torch.bincount(self.class_index[len(self.member_rows) :], minlength=len(self.classes))


def sample_candidates(shard: Shard, client: str, streams: Streams) -> Candidates | None:
    """Sample training and test rows of every class that has both; None if no class has."""
    train, test = shard.train.labels, shard.test.labels
    class_list = sorted(set(train.tolist()) & set(test.tolist()))
    if not class_list:
        return None
    (members, member_folds), (others, other_folds) = (
        _sample_rows(labels, class_list, streams.generator(f"side {i}", client=client))
        for i, labels in enumerate((train, test))
    )
    classes = torch.tensor(class_list)
    class_index = torch.searchsorted(classes, torch.cat([train[members], test[others]]))
    fold_class_index = torch.cat([member_folds, other_folds]) * len(classes) + class_index
    one_hot = torch.nn.functional.one_hot(fold_class_index[len(members) :], FOLDS * len(classes))
    # The candidates of each class, members first; padding repeats the first one.
    sizes = torch.bincount(class_index, minlength=len(classes))
    starts, steps = (sizes.cumsum(0) - sizes)[:, None], torch.arange(int(sizes.max()))
    mask = steps < sizes[:, None]
    rows_by_class = class_index.argsort(stable=True)[torch.where(mask, starts + steps, starts)]
    member_counts = torch.bincount(class_index[: len(members)], minlength=len(classes)).tolist()
    rng = streams.generator("chance", client=client)
    memberships = torch.zeros(*mask.shape, 1 + PERMUTATIONS, dtype=torch.bool)
    for index, (size, count) in enumerate(zip(sizes.tolist(), member_counts, strict=True)):
        memberships[index, :size] = permuted_memberships(count, size - count, rng)
    return Candidates(
        classes=classes,
        train_counts=torch.bincount(train)[classes],
        member_rows=members,
        non_member_rows=others,
        class_index=class_index,
        fold_class_index=fold_class_index,
        fold_slices=tuple(zip(_fold_slices(member_folds), _fold_slices(other_folds, offset=len(members)), strict=True)),
        fold_class_one_hot=one_hot.float(),
        rows_by_class=rows_by_class,
        mask=mask,
        memberships=memberships,
    )


def _sample_rows(
    labels: Int[Tensor, " x"], classes: Sequence[int], rng: torch.Generator
) -> tuple[Int[Tensor, " m"], Int[Tensor, " m"]]:
    """Random rows of every class, at most `MAX_CANDIDATES` each, with their folds; sorted by fold."""
    rows, folds = [], []
    for label in classes:
        of_class = (labels == label).nonzero()[:, 0]
        of_class = of_class[torch.randperm(len(of_class), generator=rng)][:MAX_CANDIDATES]
        rows.append(of_class)
        folds.append(torch.arange(len(of_class)) % FOLDS)
    fold = torch.cat(folds)
    order = fold.argsort(stable=True)
    return torch.cat(rows)[order], fold[order]


def _fold_slices(folds: Int[Tensor, " m"], offset: int = 0) -> list[slice]:
    ends = (torch.bincount(folds, minlength=FOLDS).cumsum(0) + offset).tolist()
    return [slice(start, end) for start, end in zip([offset, *ends[:-1]], ends, strict=True)]


def permuted_memberships(
    members: int, non_members: int, rng: torch.Generator, permutations: int = PERMUTATIONS
) -> Bool[Tensor, "n k"]:
    """The true membership (members first) in the first column, then `permutations` random ones.

    The same permutations serve every round. Rounds share their samples, and so their chance deviations; with
    common permutations the mean over rounds has a null distribution as well.
    """
    size = members + non_members
    draws = torch.rand(size, permutations, generator=rng, dtype=torch.float64)
    permuted = draws <= draws.kthvalue(members, dim=0).values
    truth = torch.arange(size)[:, None] < members
    return torch.cat([truth, permuted], dim=1)


# The likelihood ratio, with reference data that never contain the scored candidate.
#
# If x is one of the n samples behind a class mean p, then p is shifted towards x by (φ(x) - μ)/n; otherwise it
# scatters around μ. Both hypotheses have nearly the same covariance, V = Σ (1/n + 1/m) + s² I, where m reference
# samples gave μ and s is the noise of the release. With a = (φ(x) - μ)/n the log-likelihood ratio is
# aᵀV⁻¹(p - μ) - ½ aᵀV⁻¹a.
#
# μ, Σ and s are estimated from non-members and from the upload itself. Non-members are divided into folds, and each
# candidate is scored with the folds that it is not in, so that without a leak members and non-members have the same
# distribution of scores. Σ has a few leading directions, estimated once on frozen features, and is isotropic beyond.


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
    start, classes, dim = len(candidates.member_rows), len(candidates.classes), public_features.shape[1]
    size = min(MAX_DIRECTIONS, dim - 1)
    axes, shares = torch.zeros(FOLDS, dim, size), torch.zeros(FOLDS, size)  # padded with zeros
    for index, (_, fold) in enumerate(candidates.fold_slices):
        reference = torch.ones(len(public_features), dtype=torch.bool)
        reference[fold.start - start : fold.stop - start] = False
        vectors, class_index = public_features[reference], candidates.class_index[start:][reference]
        sums = torch.zeros(classes, dim).index_add_(0, class_index, vectors)
        counts = torch.bincount(class_index, minlength=classes).clamp(min=1)
        residuals = vectors - (sums / counts[:, None])[class_index]
        total = residuals.square().sum()
        if float(total) > 0:
            rank = min(size, len(residuals))
            wide = len(residuals) <= dim  # the smaller of the two products has the same leading eigenvalues
            values, directions = torch.linalg.eigh(residuals @ residuals.T if wide else residuals.T @ residuals)
            values, directions = values[-rank:].clamp(min=1e-12), directions[:, -rank:]
            axes[index, :, :rank] = residuals.T @ directions / values.sqrt() if wide else directions
            shares[index, :rank] = (1 - SHRINKAGE) * values / total
    return CovarianceModel(axes, shares, (1 - shares.sum(1)).clamp(min=1e-6) / dim)


def membership_log_ratios(
    candidates: Candidates, covariance: CovarianceModel, candidate_features: CandidateFeatures, upload: Prototypes
) -> Float[Tensor, " s"]:
    """The score of every candidate; 0 if its class has not exactly one prototype, or no reference samples."""
    cell = candidates.fold_class_index  # fold and class of each candidate
    is_own_class = upload.labels[None] == candidates.classes[:, None]
    means, counts, traces = _reference_statistics(candidates, candidate_features)
    usable = (is_own_class.sum(1) == 1) & (counts > 0)
    offsets = (upload.vectors[is_own_class.int().argmax(1)] - means).masked_fill(~usable[:, :, None], 0)
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


# The attack: it only computes scores during the run; all metrics are computed together at the end.


@dataclass(slots=True)
class _TargetClient:
    """One attacked client: its candidates, and their scores so far."""

    candidates: Candidates
    covariance: CovarianceModel | None = None  # only for likelihood ratios
    rounds: list[int] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)  # of each round: [a s], by adversary
    has_prototype: list[Tensor] = field(default_factory=list)  # of each round: which classes had a prototype
    is_new: list[bool] = field(default_factory=list)  # whether the upload differed from the one before
    last_vectors: Tensor | None = None


class MembershipAttack:
    """The membership attack on every client, over the configured rounds.

    It reads private samples to know the true memberships, so its results are for simulations only.
    """

    def __init__(self, context: AttackContext) -> None:
        self.config, self.streams = context.config, context.streams.fork("mia")
        self.targets: dict[str, _TargetClient | None] = {}
        self.seconds = 0.0
        self._saved_state: CheckpointState = {}

    def observe(self, round_uploads: RoundUploads) -> None:
        begin = time.perf_counter()
        for name, upload in round_uploads.uploads.items():
            client = round_uploads.clients[name]
            if client.id not in self.targets:
                self.targets[client.id] = self._make_target(client)
            target = self.targets[client.id]
            if target is not None and bool(torch.isin(target.candidates.classes, upload.labels).any()):
                self._score_upload(client, target, upload, round_uploads.round)
        self.seconds += time.perf_counter() - begin

    def _make_target(self, client: Client) -> _TargetClient | None:
        """A new target, with the scores of a checkpoint if there are any; None without candidates."""
        candidates = sample_candidates(client.shard, client.id, self.streams)
        if candidates is None:
            return None
        target = _TargetClient(candidates)
        if self.config.likelihood_ratio:
            public = client.shard.test.frozen_features[candidates.non_member_rows]
            clipped = public * _clip_scale(client, public.square().sum(1))[:, None]
            target.covariance = fit_covariance(candidates, clipped)
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
            scores.append(membership_log_ratios(candidates, target.covariance, clipped, upload).double())
        target.rounds.append(round)
        target.scores.append(torch.stack(scores))
        target.has_prototype.append(torch.isin(candidates.classes, upload.labels))
        target.is_new.append(target.last_vectors is None or not torch.equal(target.last_vectors, upload.vectors))
        target.last_vectors = upload.vectors

    def state_dict(self) -> CheckpointState:
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

    def load_state_dict(self, state: CheckpointState) -> None:
        """Restore the scores; candidates and permutations are drawn again from the same streams."""
        self.seconds, self._saved_state = float(state["seconds"]), state["targets"]

    def result(self) -> AttackResult:
        begin = time.perf_counter()
        scores = {
            name: MembershipScores(
                target.candidates,
                target.rounds,
                torch.stack(target.scores),
                torch.stack(target.has_prototype),
                target.is_new,
            )
            for name, target in self.targets.items()
            if target is not None and target.rounds
        }
        result = membership_result(scores, self.config.adversary_encoder)
        return replace(result, seconds=self.seconds + time.perf_counter() - begin)


def adversary_features(client: Client, samples: Samples, adversary_encoder: str) -> Float[Tensor, "n d"]:
    """Features of the samples under the adversary's encoder, in evaluation mode and unclipped."""
    trained = client.release_config.encoder_kind.is_trained_on_private_data
    if trained and adversary_encoder == "initial":
        return samples.frozen_features
    return client.released_features(samples)


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


def _clip_scale(client: Client, squared_norms: Float[Tensor, " s"]) -> Float[Tensor, " s"]:
    """The factor by which clipping scales features of these squared norms; 1 without privacy."""
    if not client.release_config.mechanism.traits.is_private:
        return torch.ones(len(squared_norms))
    return (client.release_config.clip_norm / squared_norms.sqrt().clamp(min=1e-12)).clamp(max=1)


# Metrics. `Ranking` computes all of them for many memberships at once; the rest averages over classes, clients and
# rounds, and reports each metric with its null value and an interval. Shapes: c problems, n candidates of each
# (padded), k memberships, of which the first is true.


class Ranking:
    """Candidates by decreasing score, and the number of true positives at each threshold.

    Every distinct score is a threshold. All memberships of a problem have the same number of members, with
    at least one member and one non-member. Masked candidates rank last, behind every threshold.
    """

    def __init__(
        self, scores: Float[Tensor, "c n"], memberships: Bool[Tensor, "c n k"], mask: Bool[Tensor, "c n"]
    ) -> None:
        lowest = torch.finfo(scores.dtype).min
        sorted_scores, order = scores.masked_fill(~mask, lowest).sort(1, descending=True)
        problems, positions = torch.arange(len(scores)), torch.arange(scores.shape[1])
        hits = memberships.flatten(0, 1)[(order + problems[:, None] * scores.shape[1]).flatten()]
        self.true_positives: Float[Tensor, "c n k"] = hits.reshape(memberships.shape).cumsum(1, dtype=torch.float32)
        self.ranks = (positions + 1).float()[None, :, None]
        self.sizes = mask.sum(1)
        self.n_members = self.true_positives[:, -1, :1]
        self.n_non_members = self.sizes[:, None] - self.n_members
        # Thresholds are the last ranks of equal scores.
        self.is_threshold = torch.ones_like(sorted_scores, dtype=torch.bool)
        self.is_threshold[:, :-1] = sorted_scores[:, 1:] != sorted_scores[:, :-1]
        self.is_threshold &= positions < self.sizes[:, None]
        self.is_threshold[problems, self.sizes - 1] = True
        self.tied_problems = (self.is_threshold.sum(1) != self.sizes).nonzero()[:, 0].tolist()

    def metrics(self) -> Float[Tensor, "c k 5"]:
        """AUC, TPR at 1 % FPR by two definitions, advantage, best F1: the order of `MEMBERSHIP_METRICS`."""
        members, others = self.n_members[:, None], self.n_non_members[:, None]
        # (TPR - FPR) · members · others in counts: exact in single precision
        gain = self._max_over_thresholds(self.true_positives * (members + others) - self.ranks * members)
        advantage = gain.double() / (self.n_members * self.n_non_members)
        best_f1 = self._max_over_thresholds(self.true_positives * (2 / (members + self.ranks)))
        at_most, nearest = self._true_positives_at_1fpr()
        columns = [self._auc(), at_most / self.n_members, nearest / self.n_members, advantage.clamp(min=0), best_f1]
        return torch.stack([column.double() for column in columns], dim=-1)

    def _max_over_thresholds(self, values: Float[Tensor, "c n k"]) -> Float[Tensor, "c k"]:
        """The largest value at a threshold; behind the last candidate all of these only decrease."""
        if self.tied_problems:
            values = values.masked_fill(~self.is_threshold[:, :, None], 0)
        return values.amax(1)

    def _auc(self) -> Float[Tensor, "c k"]:
        """The probability that a member scores above a non-member; ties count one half.

        The sum of true positives over ranks counts, for each member, all candidates that are not above it.
        """
        total = self.true_positives.sum(1, dtype=torch.float64)
        for row in self.tied_problems:
            total[row] = _interpolate_ties(self.true_positives[row], self.is_threshold[row]).sum(0, dtype=torch.float64)
        below = total - (self.true_positives.shape[1] - self.sizes[:, None]) * self.n_members
        return (below - self.n_members * (self.n_members + 1) / 2) / (self.n_members * self.n_non_members)

    def _true_positives_at_1fpr(self) -> tuple[Float[Tensor, "c k"], Float[Tensor, "c k"]]:
        """True positives at an FPR of at most 1 %, and at the ROC point nearest to 1 %.

        Of several nearest points the first counts, and (0, 0) is a point. Only the head of the ranking
        matters: behind it the FPR exceeds 2 % under every membership.
        """
        others = self.n_non_members[:, None]
        most = self.true_positives.amax(2, keepdim=True)
        head = int((self.ranks - most <= 2 * others / INVERSE_FPR + 1).sum(1).max()) + 1
        true_positives, is_threshold = self.true_positives[:, :head], self.is_threshold[:, :head, None]
        false_positives = self.ranks[:, :head] - true_positives
        allowed = is_threshold & (false_positives * INVERSE_FPR <= others)
        at_most = true_positives.masked_fill(~allowed, 0).amax(1)
        gaps = (false_positives * INVERSE_FPR - others).abs().masked_fill(~is_threshold, torch.inf)
        smallest = gaps.amin(1, keepdim=True)
        nearest = true_positives.masked_fill(gaps != smallest, torch.inf).amin(1)
        return at_most, nearest.masked_fill(smallest[:, 0] >= self.n_non_members, 0)

    def roc_curves(self) -> Float[Tensor, "c 101"]:
        """The largest TPR at FPR 0, 1 %, ..., 100 % under the true membership."""
        true_positives = self.true_positives[:, :, 0]
        fpr = (self.ranks[:, :, 0] - true_positives) / self.n_non_members
        tpr = (true_positives / self.n_members).masked_fill(~self.is_threshold, 0).cummax(1).values
        reached = fpr.masked_fill(~self.is_threshold, -1).cummax(1).values
        grid = (torch.linspace(0, 1, ROC_POINTS) + 1e-6).expand(len(true_positives), -1).contiguous()
        rank = torch.searchsorted(reached.contiguous(), grid, right=True) - 1
        return tpr.gather(1, rank.clamp(min=0)).masked_fill(rank < 0, 0)


def _interpolate_ties(true_positives: Float[Tensor, "n k"], is_threshold: Bool[Tensor, " n"]) -> Float[Tensor, "n k"]:
    """True positives at every rank, as if the members of each tie were spread evenly over it."""
    thresholds = torch.cat([torch.tensor([-1]), is_threshold.nonzero()[:, 0]])
    values = torch.cat([torch.zeros(1, true_positives.shape[1]), true_positives[is_threshold]])
    ranks = torch.arange(len(true_positives)).clamp(max=int(thresholds[-1]))
    upper = torch.searchsorted(thresholds, ranks)
    lower = upper - 1
    part = ((ranks - thresholds[lower]) / (thresholds[upper] - thresholds[lower]))[:, None]
    return values[lower] + part * (values[upper] - values[lower])


@dataclass(frozen=True, slots=True)
class MembershipScores:
    """The candidates of one client and their scores, round by round."""

    candidates: Candidates
    rounds: Sequence[int]
    values: Float[Tensor, "t a s"]
    has_prototype: Bool[Tensor, "t c"]
    is_new: Sequence[bool]

    def sum_over_rounds(self) -> "MembershipScores":
        """Likelihood ratios added up over all new uploads, as one round."""
        total = self.values[torch.tensor(self.is_new), 1].sum(0)[None, None]
        return MembershipScores(self.candidates, [0], total, self.has_prototype.any(0, keepdim=True), [True])


@dataclass(frozen=True, slots=True)
class AdversaryMetrics:
    """The metrics of one adversary under all memberships: one [k 5] for each round and client."""

    macro: dict[int, list[Tensor]] = field(default_factory=dict)  # means over classes
    pooled: dict[int, list[Tensor]] = field(default_factory=dict)  # all classes of a client in one ranking
    roc_curves: list[Tensor] = field(default_factory=list)


def compute_adversary_metrics(
    scores_by_client: Mapping[str, MembershipScores], adversary: int, *, with_pooled: bool = True
) -> AdversaryMetrics:
    """Rank the candidates of each class, and those of all classes (permuted within each class)."""
    metrics = AdversaryMetrics()
    for scores in scores_by_client.values():
        candidates, memberships, mask = scores.candidates, scores.candidates.memberships, scores.candidates.mask
        pooled_classes = torch.arange(len(candidates.classes)).repeat_interleave(mask.sum(1))
        pooled_memberships = (memberships if with_pooled else memberships[..., :1]).flatten(0, 1)[mask.flatten()]
        size = max(1, CHUNK_SIZE // memberships.numel())
        for start in range(0, len(scores.rounds), size):
            part = slice(start, start + size)
            rounds, has_prototype = scores.rounds[part], scores.has_prototype[part]
            tables = scores.values[part, adversary][:, candidates.rows_by_class]
            ranking = Ranking(tables.flatten(0, 1), memberships.repeat(len(rounds), 1, 1), mask.repeat(len(rounds), 1))
            by_round = ranking.metrics().unflatten(0, (len(rounds), -1))
            for round, values, present in zip(rounds, by_round, has_prototype, strict=True):
                metrics.macro.setdefault(round, []).append(values[present].mean(0))
            pooled = Ranking(  # one problem per round; classes without a prototype are masked
                tables.flatten(1)[:, mask.flatten()],
                pooled_memberships.expand(len(rounds), -1, -1),
                has_prototype[:, pooled_classes],
            )
            if with_pooled:
                for round, values in zip(rounds, pooled.metrics(), strict=True):
                    metrics.pooled.setdefault(round, []).append(values)
            metrics.roc_curves.append(pooled.roc_curves().mean(0))
    return metrics


def membership_result(scores_by_client: Mapping[str, MembershipScores], adversary_encoder: str) -> AttackResult:
    """All metrics of all adversaries, for the record; its time is not measured here.

    The rounds have the true metrics, of each client and as means. `likelihood` is not pooled.
    """
    metrics: dict[str, AdversaryMetrics] = {}
    if scores_by_client:
        metrics["distance"] = compute_adversary_metrics(scores_by_client, 0)
        if all(scores.values.shape[1] > 1 for scores in scores_by_client.values()):
            total = {name: scores.sum_over_rounds() for name, scores in scores_by_client.items()}
            metrics["likelihood"] = compute_adversary_metrics(scores_by_client, 1, with_pooled=False)
            metrics["accumulated"] = compute_adversary_metrics(total, 0)
    non_members = [
        count for scores in scores_by_client.values() for count in scores.candidates.non_member_counts.tolist()
    ]
    too_few = sum(count < MIN_NON_MEMBERS for count in non_members)
    note = f"fewer than {MIN_NON_MEMBERS} non-members in {too_few} of {len(non_members)} classes: meaningless there"
    adversaries = {
        name: StrongerAdversary(
            summary=summarise_membership(each.macro, note if too_few else None),
            pooled=summarise_membership(each.pooled, None) if each.pooled else {},
            roc=tuple(torch.stack(each.roc_curves).mean(0).tolist()),
        )
        for name, each in metrics.items()
    }
    rounds = []
    for round in sorted({round for scores in scores_by_client.values() for round in scores.rounds}):
        clients = [name for name, scores in scores_by_client.items() if round in scores.rounds]
        of_round = {name: metrics[name].macro[round] for name in ADVERSARIES if name in metrics}
        rounds.append(
            AttackedRound(
                round=round,
                mean={name: _metrics_to_dict(torch.stack(values).mean(0)[0]) for name, values in of_round.items()},
                clients={
                    client: {name: _metrics_to_dict(values[index][0]) for name, values in of_round.items()}
                    for index, client in enumerate(clients)
                },
            )
        )
    distance = adversaries.pop("distance", StrongerAdversary(summary={}, pooled={}, roc=()))
    return AttackResult(
        phi=adversary_encoder,
        rounds=tuple(rounds),
        summary=distance.summary,
        pooled=distance.pooled,
        roc=distance.roc,
        stronger=adversaries,
        non_members={"smallest": min(non_members, default=0), "classes": len(non_members), "too_few": too_few},
        seconds=0.0,
    )


def _metrics_to_dict(values: Float[Tensor, "5"]) -> dict[str, float]:
    return dict(zip(MEMBERSHIP_METRICS, values.tolist(), strict=True))


def summarise_membership(metrics_by_round: Mapping[int, list[Tensor]], note: str | None) -> dict[str, AttackMetric]:
    """For every metric: mean and std over rounds, null value, and the difference with its 95 % interval.

    The interval has the width of the null distribution: without a leak it covers 0 in 19 of 20 runs.
    """
    table = torch.stack([torch.stack(clients).mean(0) for clients in metrics_by_round.values()])
    means, stds = table.mean(0), table[:, 0].std(0, correction=0)
    nulls, null_stds = means[1:].mean(0), means[1:].std(0)
    summary = {}
    for column, metric in enumerate(MEMBERSHIP_METRICS):
        mean, null = float(means[0, column]), float(nulls[column])
        half_width = T_95 * float(null_stds[column]) * math.sqrt(1 + 1 / (len(means) - 1))
        summary[metric] = AttackMetric(
            mean=mean,
            std=float(stds[column]),
            null=null,
            corrected=mean - null,
            low=mean - null - half_width,
            high=mean - null + half_width,
            note=note if metric.startswith("tpr") else None,
        )
    return summary
