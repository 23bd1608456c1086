"""Candidates of a membership attack: members and non-members of each class, the same in every round.

Beside the true membership, each class has random permutations of it. Scores under permuted memberships show
what an attack without any information would achieve.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.client import Shard
from vpdr.rng import Streams

MAX_CANDIDATES = 800  # members, and non-members, of each class
FOLDS = 3  # cross-fitting: the reference data of a likelihood ratio never contain the scored candidate
PERMUTATIONS = 31


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
    memberships: Bool[Tensor, "c n k"]

    @property
    def non_member_counts(self) -> Int[Tensor, " c"]:
        """Number of non-members of each class."""
        return torch.bincount(self.class_index[len(self.member_rows) :], minlength=len(self.classes))


def sample_candidates(shard: Shard, client: str, streams: Streams) -> Candidates | None:
    """Sample training and test rows of every class that has both; None if no class has."""
    sides = (shard.train, shard.test)
    present = [set(side.labels.tolist()) for side in sides]
    class_list = sorted(present[0] & present[1])
    if not class_list:
        return None
    (members, member_folds), (others, other_folds) = (
        _sample_rows(side.labels, class_list, streams.generator(f"side {i}", client=client))
        for i, side in enumerate(sides)
    )
    classes = torch.tensor(class_list)
    class_index = torch.searchsorted(classes, torch.cat([shard.train.labels[members], shard.test.labels[others]]))
    fold_class_index = torch.cat([member_folds, other_folds]) * len(classes) + class_index
    one_hot = torch.nn.functional.one_hot(fold_class_index[len(members) :], FOLDS * len(classes))
    rows_by_class, mask = _rows_by_class(class_index, len(classes))
    return Candidates(
        classes=classes,
        train_counts=torch.bincount(shard.train.labels)[classes],
        member_rows=members,
        non_member_rows=others,
        class_index=class_index,
        fold_class_index=fold_class_index,
        fold_slices=tuple(zip(_fold_slices(member_folds), _fold_slices(other_folds, offset=len(members)), strict=True)),
        fold_class_one_hot=one_hot.float(),
        rows_by_class=rows_by_class,
        mask=mask,
        memberships=_memberships(class_index, len(members), mask, streams.generator("chance", client=client)),
    )


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


def _rows_by_class(class_index: Int[Tensor, " s"], classes: int) -> tuple[Int[Tensor, "c n"], Bool[Tensor, "c n"]]:
    """The candidates of each class, members first; padding repeats the first one."""
    sizes = torch.bincount(class_index, minlength=classes)
    order = class_index.argsort(stable=True)
    starts = (sizes.cumsum(0) - sizes)[:, None]
    steps = torch.arange(int(sizes.max()))
    mask = steps < sizes[:, None]
    return order[torch.where(mask, starts + steps, starts)], mask


def _memberships(
    class_index: Int[Tensor, " s"], members: int, mask: Bool[Tensor, "c n"], rng: torch.Generator
) -> Bool[Tensor, "c n k"]:
    """True and permuted memberships of each class."""
    member_counts = torch.bincount(class_index[:members], minlength=len(mask)).tolist()
    by_class = [permuted_memberships(n, int(row.sum()) - n, rng) for n, row in zip(member_counts, mask, strict=True)]
    table = torch.zeros(*mask.shape, by_class[0].shape[1], dtype=torch.bool)
    for index, memberships in enumerate(by_class):
        table[index, : len(memberships)] = memberships
    return table


# Membership metrics, beside their distribution under permuted memberships. `Ranking` computes all metrics for many
# memberships at once: the true one, and random permutations of it. The rest of the module averages over classes,
# clients and rounds, and reports each metric with its null value and an interval. Shapes: c problems, n candidates
# of each (padded), k memberships, of which the first is true.


MEMBERSHIP_METRICS = ("auc", "tpr_at_1fpr", "tpr_at_1fpr_nearest", "advantage", "f1")
TPR_METRICS = ("tpr_at_1fpr", "tpr_at_1fpr_nearest")
ADVERSARIES = ("distance", "likelihood")
INVERSE_FPR = 100  # a false positive rate of 1 %
ROC_POINTS = 101  # points of a stored ROC curve
MIN_NON_MEMBERS = 100  # fewer cannot resolve a false positive rate of 1 %
T_95 = 2.04  # 97.5 % quantile of Student's t, degrees of freedom as many as permutations
CHUNK_SIZE = 300_000  # candidates times memberships that are ranked together


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
        offsets = torch.arange(len(scores))[:, None] * scores.shape[1]
        hits = memberships.flatten(0, 1)[(order + offsets).flatten()].reshape(memberships.shape)
        self.true_positives: Float[Tensor, "c n k"] = hits.cumsum(1, dtype=torch.float32)
        self.ranks = torch.arange(1, scores.shape[1] + 1, dtype=torch.float32)[None, :, None]
        self.sizes = mask.sum(1)
        self.n_members = self.true_positives[:, -1, :1]
        self.n_non_members = self.sizes[:, None] - self.n_members
        self.is_threshold = self._threshold_mask(sorted_scores)
        self.tied_problems = (self.is_threshold.sum(1) != self.sizes).nonzero()[:, 0].tolist()

    def _threshold_mask(self, sorted_scores: Float[Tensor, "c n"]) -> Bool[Tensor, "c n"]:
        """The last rank of each group of equal scores."""
        is_last = torch.ones_like(sorted_scores, dtype=torch.bool)
        is_last[:, :-1] = sorted_scores[:, 1:] != sorted_scores[:, :-1]
        is_last &= torch.arange(sorted_scores.shape[1]) < self.sizes[:, None]
        is_last[torch.arange(len(is_last)), self.sizes - 1] = True
        return is_last

    def metrics(self) -> Float[Tensor, "c k 5"]:
        """AUC, TPR at 1 % FPR by two definitions, advantage, best F1: the order of `MEMBERSHIP_METRICS`."""
        members, others = self.n_members[:, None], self.n_non_members[:, None]
        # (TPR - FPR) · members · others in counts: exact in single precision
        gain = self._max_over_thresholds(self.true_positives * (members + others) - self.ranks * members)
        advantage = gain.double() / (self.n_members * self.n_non_members)
        best_f1 = self._max_over_thresholds(self.true_positives * (2 / (members + self.ranks)))
        at_most, nearest = self._true_positives_at_1fpr()
        columns = [self.auc(), at_most / self.n_members, nearest / self.n_members, advantage.clamp(min=0), best_f1]
        return torch.stack([column.double() for column in columns], dim=-1)

    def _max_over_thresholds(self, values: Float[Tensor, "c n k"]) -> Float[Tensor, "c k"]:
        """The largest value at a threshold; behind the last candidate all of these only decrease."""
        if self.tied_problems:
            values = values.masked_fill(~self.is_threshold[:, :, None], 0)
        return values.amax(1)

    def auc(self) -> Float[Tensor, "c k"]:
        """The probability that a member scores above a non-member; ties count one half.

        The sum of true positives over ranks counts, for each member, all candidates that are not above it.
        """
        total = self.true_positives.sum(1, dtype=torch.float64)
        for row in self.tied_problems:
            interpolated = _interpolate_ties(self.true_positives[row], self.is_threshold[row])
            total[row] = interpolated.sum(0, dtype=torch.float64)
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
        new = torch.tensor(self.is_new)
        total = self.values[new, 1].sum(0)[None, None]
        return MembershipScores(self.candidates, [0], total, self.has_prototype.any(0, keepdim=True), [True])


@dataclass(slots=True)
class AdversaryMetrics:
    """The metrics of one adversary under all memberships."""

    by_round: dict[int, list[Tensor]]  # one [k 5] per client
    roc_curves: list[Tensor]

    def mean_over_clients(self) -> Float[Tensor, "t k 5"]:
        """Means over clients, by round."""
        return torch.stack([torch.stack(clients).mean(0) for clients in self.by_round.values()])


def membership_result(scores_by_client: Mapping[str, MembershipScores]) -> dict[str, Any]:
    """All metrics of all adversaries, for the record."""
    non_members = [
        count for scores in scores_by_client.values() for count in scores.candidates.non_member_counts.tolist()
    ]
    too_few = sum(count < MIN_NON_MEMBERS for count in non_members)
    note = f"fewer than {MIN_NON_MEMBERS} non-members in {too_few} of {len(non_members)} classes: meaningless there"
    metrics = _metrics_by_adversary(scores_by_client) if scores_by_client else {}
    adversaries = {
        name: {
            "summary": summarise_membership(macro, note if too_few else None),
            "pooled": summarise_membership(pooled, None) if pooled.by_round else {},
            "roc": torch.stack(macro.roc_curves).mean(0).tolist(),
        }
        for name, (macro, pooled) in metrics.items()
    }
    distance = adversaries.pop("distance", {"summary": {}, "pooled": {}, "roc": []})
    return {
        "rounds": _round_results(scores_by_client, metrics),
        **distance,
        "stronger": adversaries,
        "non_members": {"smallest": min(non_members, default=0), "classes": len(non_members), "too_few": too_few},
    }


def _metrics_by_adversary(
    scores_by_client: Mapping[str, MembershipScores],
) -> dict[str, tuple[AdversaryMetrics, AdversaryMetrics]]:
    """The paper's adversary, and the stronger ones if they were computed; `likelihood` is not pooled."""
    metrics = {ADVERSARIES[0]: compute_adversary_metrics(scores_by_client, 0)}
    if all(scores.values.shape[1] > 1 for scores in scores_by_client.values()):
        total = {name: scores.sum_over_rounds() for name, scores in scores_by_client.items()}
        metrics[ADVERSARIES[1]] = compute_adversary_metrics(scores_by_client, 1, with_pooled=False)
        metrics["accumulated"] = compute_adversary_metrics(total, 0)
    return metrics


def compute_adversary_metrics(
    scores_by_client: Mapping[str, MembershipScores], adversary: int, *, with_pooled: bool = True
) -> tuple[AdversaryMetrics, AdversaryMetrics]:
    """Macro means over classes, and all classes of a client pooled (permuted within each class)."""
    macro, pooled = AdversaryMetrics({}, []), AdversaryMetrics({}, [])
    for scores in scores_by_client.values():
        candidates = scores.candidates
        size = max(1, CHUNK_SIZE // candidates.memberships.numel())
        for start in range(0, len(scores.rounds), size):
            part = slice(start, start + size)
            tables = scores.values[part, adversary][:, candidates.rows_by_class]
            has_prototype = scores.has_prototype[part]
            macro_metrics = _macro_metrics(candidates, tables, has_prototype)
            for round, values in zip(scores.rounds[part], macro_metrics, strict=True):
                macro.by_round.setdefault(round, []).append(values)
            ranking = _pooled_ranking(candidates, tables, has_prototype, with_permutations=with_pooled)
            pooled_metrics = ranking.metrics() if with_pooled else ()
            for round, values in zip(scores.rounds[part], pooled_metrics, strict=with_pooled):
                pooled.by_round.setdefault(round, []).append(values)
            macro.roc_curves.append(ranking.roc_curves().mean(0))
    return macro, pooled


def _macro_metrics(
    candidates: Candidates, tables: Float[Tensor, "t c n"], has_prototype: Bool[Tensor, "t c"]
) -> list[Float[Tensor, "k 5"]]:
    rounds = len(tables)
    memberships = candidates.memberships.repeat(rounds, 1, 1)
    metrics = Ranking(tables.flatten(0, 1), memberships, candidates.mask.repeat(rounds, 1)).metrics()
    by_round = metrics.unflatten(0, (rounds, -1))
    return [values[mask].mean(0) for values, mask in zip(by_round, has_prototype, strict=True)]


def _pooled_ranking(
    candidates: Candidates,
    tables: Float[Tensor, "t c n"],
    has_prototype: Bool[Tensor, "t c"],
    *,
    with_permutations: bool,
) -> Ranking:
    """One problem per round with all classes; classes without a prototype are masked."""
    mask = candidates.mask.flatten()
    memberships = candidates.memberships if with_permutations else candidates.memberships[..., :1]
    memberships = memberships.flatten(0, 1)[mask].expand(len(tables), -1, -1)
    class_index = torch.arange(len(candidates.classes)).repeat_interleave(candidates.mask.sum(1))
    return Ranking(tables.flatten(1)[:, mask], memberships, has_prototype[:, class_index])


def _round_results(
    scores_by_client: Mapping[str, MembershipScores],
    metrics_by_adversary: Mapping[str, tuple[AdversaryMetrics, AdversaryMetrics]],
) -> list[dict[str, Any]]:
    """The true metrics of every round: means over clients, and those of each client."""
    results = []
    for round in sorted({round for scores in scores_by_client.values() for round in scores.rounds}):
        clients = [name for name, scores in scores_by_client.items() if round in scores.rounds]
        metrics = {
            name: metrics_by_adversary[name][0].by_round[round] for name in ADVERSARIES if name in metrics_by_adversary
        }
        results.append(
            {
                "round": round,
                "mean": {name: _metrics_to_dict(torch.stack(values).mean(0)[0]) for name, values in metrics.items()},
                "clients": {
                    client: {name: _metrics_to_dict(values[index][0]) for name, values in metrics.items()}
                    for index, client in enumerate(clients)
                },
            }
        )
    return results


def summarise_membership(metrics: AdversaryMetrics, note: str | None) -> dict[str, Any]:
    """For every metric: mean and std over rounds, null value, and the difference with its 95 % interval.

    The interval has the width of the null distribution: without a leak it covers 0 in 19 of 20 runs.
    """
    table = metrics.mean_over_clients()
    means, stds = table.mean(0), table[:, 0].std(0, correction=0)
    nulls, null_stds = means[1:].mean(0), means[1:].std(0)
    summary: dict[str, Any] = {}
    for column, metric in enumerate(MEMBERSHIP_METRICS):
        mean, null = float(means[0, column]), float(nulls[column])
        half_width = T_95 * float(null_stds[column]) * math.sqrt(1 + 1 / (len(means) - 1))
        summary[metric] = {
            "mean": mean,
            "std": float(stds[column]),
            "null": null,
            "corrected": mean - null,
            "low": mean - null - half_width,
            "high": mean - null + half_width,
        }
        if note is not None and metric in TPR_METRICS:
            summary[metric]["note"] = note
    return summary


def _metrics_to_dict(values: Float[Tensor, "5"]) -> dict[str, float]:
    return dict(zip(MEMBERSHIP_METRICS, values.tolist(), strict=True))
