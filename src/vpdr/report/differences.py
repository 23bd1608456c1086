"""Paired differences to the baseline, and whether the seeds can tell them from zero."""

from collections.abc import Mapping
from typing import Any

from vpdr.report.summary import interval

DUST = 1e-9  # what rounding leaves of zero
OWN, ALL, NEAREST, FUSED = "own.framework", "all.framework", "all.nearest_cosine", "all.fused"
READINGS = {
    OWN: "With the framework's own predictor, on own classes",
    ALL: "With the framework's own predictor, on all classes",
    NEAREST: "With the nearest shared prototype, on all classes",
}


def difference(setting: Mapping[str, Any], method: str, baseline: str | None, metric: str) -> Any:
    """A method minus the baseline on one reading, seed by seed; None where they share no seed.

    A baseline that shares nothing has no prototypes to compare with, so that the nearest shared prototype is
    compared with the baseline's own predictor: that is the choice a client has. The fused predictor is
    compared with the baseline's, which reads the client's own means if nothing is shared.
    """
    methods = setting["methods"]
    if baseline is None or method == baseline or baseline not in methods:
        return None
    mine = by_seed(methods[method], metric)
    own_predictor = metric == NEAREST or (metric == FUSED and FUSED not in methods[baseline]["metrics"])
    other = by_seed(methods[baseline], ALL if own_predictor else metric)
    shared = sorted(set(mine) & set(other))
    return interval([mine[seed] - other[seed] for seed in shared]) if shared else None


def by_seed(summary: Mapping[str, Any], metric: str) -> dict[int, float]:
    """The values of one metric by seed."""
    measured = summary["metrics"].get(metric)
    return dict(zip(summary["seeds"], measured["values"], strict=True)) if measured else {}


def verdict(measured: Mapping[str, Any]) -> int | None:
    """+1 above zero, -1 below, 0 where the interval covers zero; None for a single seed."""
    if measured["low"] is None:
        return None
    return int(measured["low"] > DUST) - int(measured["high"] < -DUST)


def same_scopes(setting: Mapping[str, Any]) -> bool:
    """Whether own and all classes are the same thing here: every client holds every class."""
    return all(by_seed(each, OWN) == by_seed(each, ALL) for each in setting["methods"].values())


def released(privacy: Mapping[str, Any]) -> bool:
    """Whether anything left a client."""
    return any(privacy["releases"].values())


def private(privacy: Mapping[str, Any]) -> bool:
    """Whether something was released under a finite budget."""
    return released(privacy) and privacy["level"] != "not private"
