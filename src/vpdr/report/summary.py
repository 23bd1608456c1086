"""Several runs side by side: means, intervals over seeds, and paired differences."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.special import stdtrit

SUMMARY_VERSION = 1
CONFIDENCE = 0.95
ACCURACIES = ("framework", "head", "soft_clipped", "nearest", "nearest_cosine", "fused")
RELEASE_FIGURES = ("noise_to_signal", "overlap", "chance", "energy_ratio")


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean and 95 % t-interval; a single value has no interval."""
    count, mean = len(values), statistics.fmean(values)
    if count < 2:
        return {"mean": mean, "low": None, "high": None, "std": None, "values": list(values)}
    std = statistics.stdev(values)
    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * std / math.sqrt(count)
    return {"mean": mean, "low": mean - half, "high": mean + half, "std": std, "values": list(values)}


def metrics_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one run that comparisons are about."""
    found: dict[str, float] = {}
    for scope in ("own", "all"):
        for name in ACCURACIES:
            average = record["final"][scope].get(name, {}).get("average")
            if average is not None:
                found[f"{scope}.{name}"] = average
    for name in RELEASE_FIGURES:
        values = released(record, name)
        if values:
            found[name] = statistics.fmean(values)
    if (error := last_error(record)) is not None:
        found["relative_error"] = error
    for kind, attack in record.get("attacks", {}).items():
        known = {name: value["mean"] for name, value in attack["summary"].items()}
        found |= {f"{kind}.{name}": mean for name, mean in known.items() if mean is not None and mean == mean}
    found["seconds"] = record["wall_seconds"]
    return found


def released(record: Mapping[str, Any], name: str) -> list[float]:
    """A diagnostic over all rounds and clients in which something was released."""
    told = (client["release"].get(name) for each in record["rounds"] for client in each["clients"].values())
    return [value for value in told if value is not None and math.isfinite(value)]


def last_error(record: Mapping[str, Any]) -> float | None:
    """The squared error of each client's last release, averaged: earlier ones may have been stages to it."""
    last: dict[str, float] = {}
    for each in record["rounds"]:
        told = {name: client["release"].get("relative_error") for name, client in each["clients"].items()}
        last |= {name: error for name, error in told.items() if error is not None}
    known = [error for error in last.values() if math.isfinite(error)]
    return statistics.fmean(known) if known else None


def summarise_runs(
    runs: Sequence[tuple[str, str, Mapping[str, Any]]], baseline: str | None
) -> dict[str, Any]:
    """Summaries by setting and method; each run is (setting, method, record), seeds paired by number."""
    settings: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for setting, method, record in runs:
        settings.setdefault(setting, {}).setdefault(method, {})[record["seed"]] = record
    return {
        setting: {
            "methods": {name: _method(records) for name, records in methods.items()},
            "paired": _paired(methods, baseline),
        }
        for setting, methods in settings.items()
    }


def _method(records: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    measured = [metrics_of(record) for _, record in sorted(records.items())]
    names = [name for name in measured[0] if all(name in each for each in measured)]
    first = next(iter(records.values()))
    return {
        "seeds": sorted(records),
        "metrics": {name: interval([each[name] for each in measured]) for name in names},
        "privacy": first["privacy"],
    }


def _paired(
    methods: Mapping[str, Mapping[int, Mapping[str, Any]]], baseline: str | None
) -> dict[str, dict[str, Any]]:
    """Differences to the baseline, seed by seed."""
    if baseline is None or baseline not in methods:
        return {}
    base = {seed: metrics_of(record) for seed, record in methods[baseline].items()}
    out: dict[str, dict[str, Any]] = {}
    for method, records in methods.items():
        if method == baseline:
            continue
        shared = sorted(set(records) & set(base))
        mine = {seed: metrics_of(records[seed]) for seed in shared}
        names = [n for n in (mine[shared[0]] if shared else {}) if all(n in base[s] for s in shared)]
        out[method] = {
            name: interval([mine[seed][name] - base[seed][name] for seed in shared])
            for name in names
            if name.startswith(("own.", "all."))
        }
    return out
