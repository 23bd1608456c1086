"""Membership metrics of many labellings at once: the true one, and those that chance could have drawn.

Shapes: c problems, n candidates in each (padded), k labellings; the first labelling is the truth.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

METRICS = ("auc", "tpr_at_1fpr", "tpr_at_1fpr_nearest", "advantage", "f1")
ONE_IN = 100  # a false positive rate of 1 %
GRID = 101  # points of a stored ROC curve


class Ranking:
    """Candidates by falling score, and how many members each threshold takes.

    Every distinct score is a threshold. Each labelling of a problem has the same number of members, and at
    least one of each kind. Absent candidates come last and stand behind every threshold.
    """

    def __init__(
        self, scores: Float[Tensor, "c n"], members: Bool[Tensor, "c n k"], present: Bool[Tensor, "c n"]
    ) -> None:
        lowest = torch.finfo(scores.dtype).min
        ranked, order = scores.masked_fill(~present, lowest).sort(1, descending=True)
        first = torch.arange(len(scores))[:, None] * scores.shape[1]
        hits = members.flatten(0, 1)[(order + first).flatten()].reshape(members.shape)
        self.taken: Float[Tensor, "c n k"] = hits.cumsum(1, dtype=torch.float32)
        self.seen = torch.arange(1, scores.shape[1] + 1, dtype=torch.float32)[None, :, None]
        self.sizes = present.sum(1)
        self.inside = self.taken[:, -1, :1]  # n1 of each problem
        self.outside = self.sizes[:, None] - self.inside  # n0
        self.ends = self._ends(ranked)
        self.ties = (self.ends.sum(1) != self.sizes).nonzero()[:, 0].tolist()  # problems with equal scores

    def _ends(self, ranked: Float[Tensor, "c n"]) -> Bool[Tensor, "c n"]:
        """Where a threshold can stand: behind the last of equal scores."""
        ends = torch.ones_like(ranked, dtype=torch.bool)
        ends[:, :-1] = ranked[:, 1:] != ranked[:, :-1]
        ends &= torch.arange(ranked.shape[1]) < self.sizes[:, None]
        ends[torch.arange(len(ends)), self.sizes - 1] = True
        return ends

    def metrics(self) -> Float[Tensor, "c k 5"]:
        """AUC (ties count one half), TPR at 1 % FPR in two readings, advantage, best F1."""
        inside, outside = self.inside[:, None], self.outside[:, None]
        whole = self._best(self.taken * (inside + outside) - self.seen * inside)  # exact: counts, not rates
        advantage = whole.double() / (self.inside * self.outside)
        best_f1 = self._best(self.taken * (2 / (inside + self.seen)))
        step, nearest = self._tail()
        found = [self.auc(), step / self.inside, nearest / self.inside, advantage.clamp(min=0), best_f1]
        return torch.stack([each.double() for each in found], dim=-1)

    def _best(self, values: Float[Tensor, "c n k"]) -> Float[Tensor, "c k"]:
        """The largest over thresholds; behind the last candidate all of these only fall."""
        return (values.masked_fill(~self.ends[:, :, None], 0) if self.ties else values).amax(1)

    def auc(self) -> Float[Tensor, "c k"]:
        """The chance that a member scores above a non-member; ties count one half.

        The sum over ranks of members taken so far counts, for each member, everybody who is not above it.
        """
        total = self.taken.sum(1, dtype=torch.float64)
        for row in self.ties:  # as if members came in evenly among equals
            total[row] = _straight(self.taken[row], self.ends[row]).sum(0, dtype=torch.float64)
        below = total - (self.taken.shape[1] - self.sizes[:, None]) * self.inside
        return (below - self.inside * (self.inside + 1) / 2) / (self.inside * self.outside)

    def _tail(self) -> tuple[Float[Tensor, "c k"], Float[Tensor, "c k"]]:
        """True positives where at most 1 % of the others are taken, and at the point nearest to 1 %.

        Of several nearest points the first counts, and (0, 0) is a point. Only the head of the ranking can
        matter: behind it every labelling has taken more than 2 % of the others.
        """
        outside = self.outside[:, None]
        most = self.taken.amax(2, keepdim=True)
        head = int((self.seen - most <= 2 * outside / ONE_IN + 1).sum(1).max()) + 1
        taken, counts = self.taken[:, :head], self.ends[:, :head, None]
        wrong = self.seen[:, :head] - taken
        step = taken.masked_fill(~(counts & (wrong * ONE_IN <= outside)), 0).amax(1)
        gaps = (wrong * ONE_IN - outside).abs().masked_fill(~counts, torch.inf)
        best = gaps.amin(1, keepdim=True)
        nearest = taken.masked_fill(gaps != best, torch.inf).amin(1)
        return step, nearest.masked_fill(best[:, 0] >= self.outside, 0)

    def curves(self) -> Float[Tensor, "c 101"]:
        """The largest TPR at FPR 0, 1 %, ..., 100 %, by the truth: curves that can be averaged."""
        taken, real = self.taken[:, :, 0], self.ends
        wrong = (self.seen[:, :, 0] - taken) / self.outside
        heights = (taken / self.inside).masked_fill(~real, 0).cummax(1).values
        points = wrong.masked_fill(~real, -1).cummax(1).values
        grid = (torch.linspace(0, 1, GRID) + 1e-6).expand(len(taken), -1).contiguous()
        at = torch.searchsorted(points.contiguous(), grid, right=True) - 1
        return heights.gather(1, at.clamp(min=0)).masked_fill(at < 0, 0)


def _straight(taken: Float[Tensor, "n k"], ends: Bool[Tensor, " n"]) -> Float[Tensor, "n k"]:
    """Members taken at every rank, if those inside a tie came in evenly."""
    marks = torch.cat([torch.tensor([-1]), ends.nonzero()[:, 0]])
    at = torch.cat([torch.zeros(1, taken.shape[1]), taken[ends]])
    ranks = torch.arange(len(taken)).clamp(max=int(marks[-1]))
    upper = torch.searchsorted(marks, ranks)
    lower = upper - 1
    part = ((ranks - marks[lower]) / (marks[upper] - marks[lower]))[:, None]
    return at[lower] + part * (at[upper] - at[lower])
