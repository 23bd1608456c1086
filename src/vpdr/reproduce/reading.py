"""What is read from a record, by kind of table; in the units that the paper prints."""

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from vpdr.report.summary import last_error, released

Record: TypeAlias = Mapping[str, Any]
Reading: TypeAlias = dict[str, float]

ATTACKS = {
    "cos": ("fsh", "cos"),
    "cffd": ("fsh", "cffd"),
    "top1_pct": ("fsh", "top1"),
    "auc": ("mia", "auc"),
    "tpr_at_1fpr": ("mia", "tpr_at_1fpr"),
    "advantage": ("mia", "advantage"),
    "f1": ("mia", "f1"),
}
PER_CENT = {"top1_pct"}


def accuracy(record: Record) -> Reading:
    """Of the framework's own predictor, in per cent: each client, their average, their sample std."""
    final = record["final"]["all"]["framework"]
    clients = {name: _percent(value) for name, value in final["clients"].items()}
    found = {**clients, "avg": _percent(final["average"]), "std": _percent(final["std"])}
    return {name: value for name, value in found.items() if value is not None}


def controls(record: Record) -> Reading:
    """Accuracy, and what was released: noise energy relative to IGPP, overlap beside chance, its error."""
    told = _released(record, ("energy_ratio", "overlap", "chance"))
    return {**accuracy(record), **_last_error(record), **told}


def strict(record: Record) -> Reading:
    """Accuracy on all classes by each way to predict, and the error of what was released."""
    every = record["final"]["all"]
    names = {"head": "head", "nearest": "nearest_cosine", "fused": "fused", "avg": "framework"}
    found = {ours: _percent(every.get(name, {}).get("average")) for ours, name in names.items()}
    known = {name: value for name, value in found.items() if value is not None}
    return {**known, **_last_error(record)}


def attacks(record: Record) -> Reading:
    """The seven figures of both attacks, as means over the attacked rounds; empty where none was run."""
    found = {}
    for name, (kind, metric) in ATTACKS.items():
        measured = record.get("attacks", {}).get(kind, {}).get("summary", {}).get(metric)
        if measured is not None and measured.get("mean") is not None:
            found[name] = measured["mean"] * (100 if name in PER_CENT else 1)
            if measured.get("null") is not None:
                found[f"{name} by chance"] = measured["null"] * (100 if name in PER_CENT else 1)
    return found


def accuracy_and_auc(record: Record) -> Reading:
    """Accuracy, and the membership AUC where the attack was run."""
    return {**accuracy(record), **{k: v for k, v in attacks(record).items() if k == "auc"}}


def seconds(record: Record) -> Reading:
    """Milliseconds of one client and round: the median over clients and rounds, without the first."""
    phases: dict[str, list[float]] = {"prototypes": [], "finetune": []}
    rounds = record["rounds"][1:] or record["rounds"]  # the first one warms up
    for each in rounds:
        for client in each["clients"].values():
            for name, values in phases.items():
                if name in client["seconds"]:
                    values.append(1000 * client["seconds"][name])
    medians = {name: statistics.median(values) for name, values in phases.items() if values}
    found = {"protogen_ms": medians.get("prototypes", 0.0), "finetune_ms": medians.get("finetune", 0.0)}
    return {**found, "total_ms": sum(found.values())}


def curves(record: Record) -> Reading:
    """Mean feature norm and teacher gap after each round, and how far the last norm is from R."""
    found: Reading = {}
    for each in record["rounds"]:
        for name in ("norm_mean", "teacher_gap"):
            values = _finite(client["features"].get(name) for client in each["clients"].values())
            if values:
                found[f"{name}@{each['round']}"] = statistics.fmean(values)
    radius = record["plan"]["mechanism"]["clip_norm"]
    last = found[f"norm_mean@{record['rounds'][-1]['round']}"]
    return {**accuracy(record), **found, "norm": last, "norm_distance": abs(last - radius) / radius}


def ledger(record: Record) -> Reading:
    """What the client that spent most had spent after each round, and its parts as events."""
    found: Reading = {"epsilon_spent": record["privacy"]["epsilon_spent"]}
    for each in record["rounds"]:
        spent = _finite(client["epsilon"] for client in each["clients"].values())
        if spent:
            found[f"epsilon@{each['round']}"] = max(spent)
    book = max(record["ledgers"].values(), key=lambda each: len(each["entries"]))
    for entry in book["entries"]:
        for event in entry["events"]:
            for name, value in event.items():
                if isinstance(value, int | float):
                    found[f"{event['kind']}.{name}@{entry['round']}"] = float(value)
    return found


def first_and_last(record: Record) -> Reading:
    """Accuracy of each client after the first and after the last round."""
    found: Reading = {}
    for each in (record["rounds"][0], record["rounds"][-1]):
        for name, client in each["clients"].items():
            value = _percent(client["accuracy"]["all"].get("framework"))
            if value is not None:
                found[f"T={each['round']} {name}"] = value
    return {**found, "avg": accuracy(record)["avg"]}


def validation(record: Record) -> float | None:
    """The average accuracy on the validation split, where the plan kept one back."""
    found = record["final"].get("validation", {}).get("framework", {})
    return _percent(found.get("average"))


def _last_error(record: Record) -> Reading:
    error = last_error(record)
    return {} if error is None else {"relative_error": error}


def _released(record: Record, names: tuple[str, ...]) -> Reading:
    told = {name: released(record, name) for name in names}
    return {name: statistics.fmean(values) for name, values in told.items() if values}


def _finite(values: Any) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _percent(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else 100 * value


READERS: dict[str, Callable[[Record], Reading]] = {
    "accuracy": accuracy,
    "controls": controls,
    "strict": strict,
    "attacks": attacks,
    "dr": accuracy_and_auc,
    "seconds": seconds,
    "curves": curves,
    "ledger": ledger,
    "first_and_last": first_and_last,
}
