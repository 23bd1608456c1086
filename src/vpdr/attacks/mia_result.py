"""From scores of clients and rounds to what is reported: mean, spread, chance, and the difference."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vpdr.attacks.candidates import Candidates
from vpdr.attacks.roc import METRICS, Ranking

ENOUGH = 100  # non-members that a rate of 1 % takes
LIMIT = 2.04  # of Student's t at as many degrees of freedom as there are permutations, for 95 %
TAIL = ("tpr_at_1fpr", "tpr_at_1fpr_nearest")
ADVERSARIES = ("distance", "likelihood")
AT_ONCE = 300_000  # labelled candidates that are looked at together


@dataclass(frozen=True, slots=True)
class Scores:
    """One client's candidates and their scores, round by round."""

    who: Candidates
    rounds: Sequence[int]
    values: Float[Tensor, "t a s"]
    told: Bool[Tensor, "t c"]
    fresh: Sequence[bool]

    def accumulated(self) -> "Scores":
        """Likelihood ratios added up over all uploads that were new."""
        new = torch.tensor(self.fresh)
        total = self.values[new, 1].sum(0)[None, None]
        return Scores(self.who, [0], total, self.told.any(0, keepdim=True), [True])


@dataclass(slots=True)
class Reading:
    """One adversary's metrics: by round, the mean over clients; the first row is the truth."""

    by_round: dict[int, list[Tensor]]  # of [k 5], one a client
    curves: list[Tensor]

    def table(self) -> Float[Tensor, "t k 5"]:
        """Means over clients."""
        return torch.stack([torch.stack(each).mean(0) for each in self.by_round.values()])


def readings_of(kept: Mapping[str, Scores], adversary: int, *, pool: bool = True) -> tuple[Reading, Reading]:
    """Macro over classes, and all classes of a client pooled (labels are permuted within their class)."""
    macro, pooled = Reading({}, []), Reading({}, [])
    for scores in kept.values():
        who = scores.who
        size = max(1, AT_ONCE // who.labellings.numel())
        for start in range(0, len(scores.rounds), size):
            part = slice(start, start + size)
            tables = scores.values[part, adversary][:, who.place]
            told = scores.told[part]
            for t, found in zip(scores.rounds[part], _macro(who, tables, told), strict=True):
                macro.by_round.setdefault(t, []).append(found)
            ranking = _pooled(who, tables, told, chance=pool)
            metrics = ranking.metrics() if pool else ()
            for t, found in zip(scores.rounds[part], metrics, strict=pool):
                pooled.by_round.setdefault(t, []).append(found)
            macro.curves.append(ranking.curves().mean(0))
    return macro, pooled


def _macro(
    who: Candidates, tables: Float[Tensor, "t c n"], told: Bool[Tensor, "t c"]
) -> list[Float[Tensor, "k 5"]]:
    rounds = len(tables)
    labels = who.labellings.repeat(rounds, 1, 1)
    found = Ranking(tables.flatten(0, 1), labels, who.present.repeat(rounds, 1)).metrics()
    return [each[there].mean(0) for each, there in zip(found.unflatten(0, (rounds, -1)), told, strict=True)]


def _pooled(
    who: Candidates, tables: Float[Tensor, "t c n"], told: Bool[Tensor, "t c"], *, chance: bool
) -> Ranking:
    """Rounds share their candidates, so that they fit into one table; a class without prototype is absent."""
    real = who.present.flatten()
    labels = (
        (who.labellings if chance else who.labellings[..., :1])
        .flatten(0, 1)[real]
        .expand(len(tables), -1, -1)
    )
    classes = torch.arange(len(who.classes)).repeat_interleave(who.present.sum(1))
    return Ranking(tables.flatten(1)[:, real], labels, told[:, classes])


def result_of(kept: Mapping[str, Scores]) -> dict[str, Any]:
    """What the record says about membership."""
    others = [count for each in kept.values() for count in each.who.outsiders.tolist()]
    few = sum(count < ENOUGH for count in others)
    note = f"fewer than {ENOUGH} non-members in {few} of {len(others)} classes: meaningless there"
    scored = _scored(kept) if kept else {}
    read = {
        name: {
            "summary": summary(macro, note if few else None),
            "pooled": summary(pooled, None) if pooled.by_round else {},
            "roc": torch.stack(macro.curves).mean(0).tolist(),
        }
        for name, (macro, pooled) in scored.items()
    }
    main = read.pop("distance", {"summary": {}, "pooled": {}, "roc": []})
    return {
        "rounds": _rounds(kept, scored),
        **main,
        "stronger": read,
        "non_members": {"smallest": min(others, default=0), "classes": len(others), "too_few": few},
    }


def _scored(kept: Mapping[str, Scores]) -> dict[str, tuple[Reading, Reading]]:
    """The paper's adversary, and the stronger ones where they scored; one round of them is not pooled."""
    found = {ADVERSARIES[0]: readings_of(kept, 0)}
    if all(each.values.shape[1] > 1 for each in kept.values()):
        total = {name: each.accumulated() for name, each in kept.items()}
        found[ADVERSARIES[1]] = readings_of(kept, 1, pool=False)
        found["accumulated"] = readings_of(total, 0)
    return found


def _rounds(
    kept: Mapping[str, Scores], scored: Mapping[str, tuple[Reading, Reading]]
) -> list[dict[str, Any]]:
    """The means over clients and every client's own values, without chance."""
    out = []
    for t in sorted({t for each in kept.values() for t in each.rounds}):
        clients = [name for name, each in kept.items() if t in each.rounds]
        found = {name: scored[name][0].by_round[t] for name in ADVERSARIES if name in scored}
        out.append(
            {
                "round": t,
                "mean": {name: _named(torch.stack(each).mean(0)[0]) for name, each in found.items()},
                "clients": {
                    client: {name: _named(each[index][0]) for name, each in found.items()}
                    for index, client in enumerate(clients)
                },
            }
        )
    return out


def summary(reading: Reading, note: str | None) -> dict[str, Any]:
    """Every metric: mean and std over rounds, chance, and the difference with its 95 % interval.

    The interval is how far chance alone scatters: without a leak it covers 0 in 19 of 20 runs.
    """
    table = reading.table()
    means, spread = table.mean(0), table[:, 0].std(0, correction=0)
    null, scatter = means[1:].mean(0), means[1:].std(0)
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
