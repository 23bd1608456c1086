"""From the records of one setting to the numbers that a figure draws."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
Run = tuple[str, str, Record]  # setting, method, record
Records = Mapping[str, Sequence[Record]]  # by method, in the order of their seeds


@dataclass(frozen=True, slots=True)
class Curve:
    """Rounds and what was measured after them."""

    rounds: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ratios:
    """Noise-to-signal by client and seed, and in how many releases it was infinite."""

    values: tuple[float, ...]
    mean: float | None
    infinite: int
    releases: int


def by_setting(runs: Sequence[Run]) -> dict[str, dict[str, list[Record]]]:
    """The records by setting and method, sorted by seed."""
    found: dict[str, dict[str, list[Record]]] = {}
    for setting, method, record in runs:
        found.setdefault(setting, {}).setdefault(method, []).append(record)
    for methods in found.values():
        for records in methods.values():
            records.sort(key=lambda record: record["seed"])
    return found


def learning(record: Record, reading: str, client: str | None = None) -> Curve:
    """Accuracy in per cent after each round, of one client or averaged; `reading` is like `own.framework`."""
    scope, name = reading.split(".")
    curve = {}
    for each in record["rounds"]:
        measured = [content for who, content in each["clients"].items() if client in (None, who)]
        values = known(content["accuracy"][scope].get(name) for content in measured)
        if values:
            curve[each["round"]] = 100 * statistics.fmean(values)
    return Curve(tuple(curve), tuple(curve.values()))


def averaged(curves: Sequence[Curve]) -> Curve:
    """The mean over seeds, for the rounds that all seeds have."""
    tables = [dict(zip(curve.rounds, curve.values, strict=True)) for curve in curves]
    rounds = tuple(r for r in tables[0] if all(r in table for table in tables)) if tables else ()
    return Curve(rounds, tuple(statistics.fmean(table[r] for table in tables) for r in rounds))


def spending(records: Sequence[Record]) -> Curve:
    """The ε spent after each round by the client that spent most, over all seeds; starts at 0."""
    most: dict[int, float] = {0: 0.0}
    for record in records:
        for each in record["rounds"]:
            values = known(client["epsilon"] for client in each["clients"].values())
            if len(values) < len(each["clients"]):
                return Curve((), ())  # a release without noise has no finite ε
            most[each["round"]] = max([most.get(each["round"], 0.0), *values])
    return Curve(tuple(most), tuple(most.values()))


def noise_ratios(records: Sequence[Record]) -> Ratios:
    """Noise-to-signal of the releases: one value a client and seed (its mean over rounds)."""
    values, finite, releases = [], [], 0
    for record in records:
        for client in record["clients"]:
            given = [each["clients"][client]["release"] for each in record["rounds"]]
            given = [release for release in given if "noise_to_signal" in release]
            mine = known(release["noise_to_signal"] for release in given)
            releases += len(given)
            finite += mine
            if mine:
                values.append(statistics.fmean(mine))
    mean = statistics.fmean(finite) if finite else None
    return Ratios(tuple(values), mean, releases - len(finite), releases)


def final_by_client(records: Sequence[Record], scope: str) -> dict[str, float | None]:
    """Final accuracy in per cent of each client by the framework's own predictor, averaged over seeds."""
    found: dict[str, float | None] = {}
    for client in dict.fromkeys(name for record in records for name in record["clients"]):
        each = (
            record["final"][scope].get("framework", {}).get("clients", {}).get(client) for record in records
        )
        values = known(each)
        found[client] = 100 * statistics.fmean(values) if values else None
    return found


def known(values: Iterable[float | None]) -> list[float]:
    """What is a finite number."""
    return [value for value in values if value is not None and math.isfinite(value)]
