"""From scores of clients and rounds to what is reported: mean, spread, chance, and the difference."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.attacks.roc import METRICS

ENOUGH = 100  # non-members that a rate of 1 % takes
LIMIT = 2.0  # of Student's t at 59 degrees of freedom, for 95 %
TAIL = ("tpr_at_1fpr", "tpr_at_1fpr_nearest")


@dataclass(slots=True)
class Tally:
    """Means over clients, added up over rounds; the first row is the truth, the others are chance."""

    rounds: list[dict[str, Any]] = field(default_factory=list)
    sums: dict[str, Tensor] = field(default_factory=dict)  # of [k 5], over rounds
    curves: dict[str, Tensor] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    _open: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    _t: int = 0

    def open(self, t: int) -> None:
        """A new round."""
        self._open, self._t = {}, t

    def add(self, name: str, client: str, found: Float[Tensor, "k 5"]) -> None:
        """One adversary's values for one client."""
        self._open.setdefault(name, {})[client] = found

    def draw(self, name: str, heights: Float[Tensor, "101"]) -> None:
        """One ROC curve, to be averaged."""
        self.curves[name] = self.curves.get(name, torch.zeros(len(heights))) + heights
        self.drawn[name] = self.drawn.get(name, 0) + 1

    def close(self) -> None:
        """Average over clients; a round in which nobody sent anything leaves nothing."""
        if not self._open:
            return
        entry: dict[str, Any] = {"round": self._t, "mean": {}, "clients": {}}
        for name, clients in self._open.items():
            mean = torch.stack(list(clients.values())).mean(0)
            self.sums[name] = self.sums.get(name, torch.zeros_like(mean)) + mean
            entry["mean"][name] = _named(mean[0])
            for client, found in clients.items():
                entry["clients"].setdefault(client, {})[name] = _named(found[0])
        self.rounds.append(entry)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "rounds": self.rounds,
            "sums": self.sums,
            "curves": self.curves,
            "drawn": self.drawn,
            "seconds": self.seconds,
        }

    @classmethod
    def resumed(cls, state: Mapping[str, Any]) -> "Tally":
        """From a checkpoint."""
        return cls(
            rounds=list(state["rounds"]),
            sums=dict(state["sums"]),
            curves=dict(state["curves"]),
            drawn=dict(state["drawn"]),
            seconds=float(state["seconds"]),
        )

    def names(self) -> list[str]:
        """The adversaries, without their pooled readings."""
        return [name for name in self.sums if not name.endswith(" pooled")]


def result_of(tally: Tally, total: Tally, others: Sequence[int], phi: str) -> dict[str, Any]:
    """What the record says about membership; `total` holds the adversary who kept every upload."""
    few = sum(count < ENOUGH for count in others)
    note = f"fewer than {ENOUGH} non-members in {few} of {len(others)} classes: meaningless there"
    adversaries = {name: (tally, name) for name in tally.names()} | {
        name: (total, name) for name in total.names()
    }
    read = {
        name: {
            "summary": summary(of, key, note if few else None),
            "pooled": summary(of, f"{key} pooled", None),
            "roc": (of.curves[key] / of.drawn[key]).tolist(),
        }
        for name, (of, key) in adversaries.items()
    }
    main = read.pop("distance", {"summary": {}, "pooled": {}, "roc": []})
    return {
        "phi": phi,
        "rounds": tally.rounds,
        **main,
        "stronger": read,
        "non_members": {"smallest": min(others, default=0), "classes": len(others), "too_few": few},
        "seconds": tally.seconds,
    }


def summary(tally: Tally, name: str, note: str | None) -> dict[str, Any]:
    """Every metric: mean and std over rounds, chance, and the difference with its 95 % interval.

    The interval is how far chance alone scatters: without a leak it covers 0 in 19 of 20 runs.
    """
    if name not in tally.sums:
        return {}
    count = len(tally.rounds)
    means = tally.sums[name] / count
    by_round = torch.tensor(
        [[each["mean"][name][m] for m in METRICS] for each in tally.rounds if name in each["mean"]]
    )
    null, scatter = means[1:].mean(0), means[1:].std(0)
    spread = by_round.double().std(0, correction=0)
    out: dict[str, Any] = {}
    for column, metric in enumerate(METRICS):
        mean, chance = float(means[0, column]), float(null[column])
        reach = LIMIT * float(scatter[column]) * math.sqrt(1 + 1 / (len(means) - 1))
        out[metric] = {
            "mean": mean,
            "std": float(spread[column]),
            "null": chance,
            "corrected": mean - chance,
            "low": mean - chance - reach,
            "high": mean - chance + reach,
        }
        if note is not None and metric in TAIL:
            out[metric]["note"] = note
    return out


def _named(values: Float[Tensor, "5"]) -> dict[str, float]:
    return dict(zip(METRICS, values.tolist(), strict=True))
