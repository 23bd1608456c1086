"""Numbers of a comparison: means and intervals over seeds, paired differences, and curves for figures."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from vpdr.records import PrivacyStatement, RunRecord

CONFIDENCE = 0.95
ZERO_TOLERANCE = 1e-9  # a difference this small is a rounding error
PREDICTORS = ("framework", "head", "soft_clipped", "nearest", "nearest_cosine", "fused")
RELEASE_DIAGNOSTICS = ("noise_to_signal", "overlap", "chance", "energy_ratio")
OWN_CLASSES = "own.framework"
ALL_CLASSES = "all.framework"
NEAREST_PROTOTYPE = "all.nearest_cosine"
FUSED = "all.fused"

LabelledRun = tuple[str, str, RunRecord]  # setting, method, record
RecordsByMethod = Mapping[str, Sequence[RunRecord]]  # sorted by seed


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds with its 95 % t-interval; a single value has no interval."""

    mean: float
    low: float | None
    high: float | None
    std: float | None
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodSummary:
    """The runs of one method in one setting."""

    seeds: tuple[int, ...]
    metrics: Mapping[str, Interval]
    privacy: PrivacyStatement  # of the first seed


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingSummary:
    """All methods of one setting, and their differences to the baseline, paired by seed."""

    methods: Mapping[str, MethodSummary]
    paired: Mapping[str, Mapping[str, Interval]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonSummary:
    """The content of `summary.json`; docs/record.md explains the fields."""

    schema: str = "vpdr-summary"
    version: int = 1
    name: str
    title: str
    seeds: tuple[int, ...]
    baseline: str | None
    settings: Mapping[str, SettingSummary]


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % t-interval; a single value has no interval."""
    count, mean = len(values), statistics.fmean(values)
    if count < 2:
        return Interval(mean, None, None, None, tuple(values))
    std = statistics.stdev(values)
    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * std / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, std, tuple(values))


def sign_of_interval(difference: Interval) -> int | None:
    """+1 above zero, -1 below zero, 0 if the interval contains zero; None for a single seed."""
    if difference.low is None or difference.high is None:
        return None
    return int(difference.low > ZERO_TOLERANCE) - int(difference.high < -ZERO_TOLERANCE)


def paired_difference(setting: SettingSummary, method: str, baseline: str | None, metric: str) -> Interval | None:
    """A method minus the baseline on one metric, paired by seed; None if they share no seed.

    A baseline that shares nothing has no prototypes, so the nearest shared prototype is compared with the
    baseline's own predictor: that is the choice a client has. The fused predictor is compared with the
    baseline's fused predictor, which uses the client's own means if nothing is shared.
    """
    methods = setting.methods
    if baseline is None or method == baseline or baseline not in methods:
        return None
    values = values_by_seed(methods[method], metric)
    use_own_predictor = metric == NEAREST_PROTOTYPE or (metric == FUSED and FUSED not in methods[baseline].metrics)
    base = values_by_seed(methods[baseline], ALL_CLASSES if use_own_predictor else metric)
    shared = sorted(set(values) & set(base))
    return interval([values[seed] - base[seed] for seed in shared]) if shared else None


def values_by_seed(summary: MethodSummary, metric: str) -> dict[int, float]:
    """The values of one metric by seed."""
    measured = summary.metrics.get(metric)
    return dict(zip(summary.seeds, measured.values, strict=True)) if measured else {}


def group_by_setting(runs: Sequence[LabelledRun]) -> dict[str, dict[str, list[RunRecord]]]:
    """Records by setting and method, sorted by seed."""
    groups: dict[str, dict[str, list[RunRecord]]] = {}
    for setting, method, record in runs:
        groups.setdefault(setting, {}).setdefault(method, []).append(record)
    for methods in groups.values():
        for records in methods.values():
            records.sort(key=lambda record: record.seed)
    return groups


def summarise_runs(runs: Sequence[LabelledRun], baseline: str | None) -> dict[str, SettingSummary]:
    """Summaries by setting and method, with differences to the baseline paired by seed."""
    settings: dict[str, SettingSummary] = {}
    for setting, methods in group_by_setting(runs).items():
        measured = {name: {each.seed: run_metrics(each) for each in records} for name, records in methods.items()}
        paired = {}
        base = measured.get(baseline, {}) if baseline is not None else {}
        for method, by_seed in measured.items() if base else ():
            if method != baseline:
                shared = [seed for seed in by_seed if seed in base]
                names = [n for n in (by_seed[shared[0]] if shared else ()) if all(n in base[s] for s in shared)]
                paired[method] = {
                    name: interval([by_seed[seed][name] - base[seed][name] for seed in shared])
                    for name in names
                    if name.startswith(("own.", "all."))
                }
        summaries = {
            name: MethodSummary(
                seeds=tuple(measured[name]),
                metrics=shared_intervals(list(measured[name].values())),
                privacy=records[0].privacy,
            )
            for name, records in methods.items()
        }
        settings[setting] = SettingSummary(methods=summaries, paired=paired)
    return settings


def shared_intervals(runs: Sequence[Mapping[str, float]], names: Iterable[str] = ()) -> dict[str, Interval]:
    """The interval over runs of each metric that all of them have, in the order of `names` or of the first run."""
    shared = [name for name in names or runs[0] if all(name in metrics for metrics in runs)]
    return {name: interval([metrics[name] for metrics in runs]) for name in shared}


def run_metrics(record: RunRecord) -> dict[str, float]:
    """The metrics of one run that comparisons use."""
    metrics: dict[str, float] = {}
    for scope in ("own", "all"):
        for name in PREDICTORS:
            final = record.final[scope].get(name)
            if final is not None and final.average is not None:
                metrics[f"{scope}.{name}"] = final.average
    for name in RELEASE_DIAGNOSTICS:
        if values := diagnostic_values(record, name):
            metrics[name] = statistics.fmean(values)
    if (error := last_release_error(record)) is not None:
        metrics["relative_error"] = error
    for kind, attack in (record.attacks or {}).items():
        means = {name: value.mean for name, value in attack.summary.items()}
        metrics |= {f"{kind}.{name}": mean for name, mean in means.items() if mean is not None and mean == mean}
    metrics["seconds"] = record.wall_seconds
    return metrics


def diagnostic_values(record: RunRecord, name: str) -> list[float]:
    """The finite values of a release diagnostic over all rounds and clients."""
    clients = (client for each in record.rounds for client in each.clients.values())
    return finite_values(client.release.get(name) for client in clients)


def last_release_error(record: RunRecord) -> float | None:
    """The relative squared error of each client's last release, averaged; earlier releases may be stages."""
    last: dict[str, float] = {}
    for each in record.rounds:
        errors = {name: client.release.get("relative_error") for name, client in each.clients.items()}
        last |= {name: error for name, error in errors.items() if error is not None}
    finite = finite_values(last.values())
    return statistics.fmean(finite) if finite else None


def same_scopes(setting: SettingSummary) -> bool:
    """Whether accuracy on own and on all classes is the same: every client has every class."""
    methods = setting.methods.values()
    return all(values_by_seed(each, OWN_CLASSES) == values_by_seed(each, ALL_CLASSES) for each in methods)


def has_release(privacy: PrivacyStatement) -> bool:
    """Whether any client released anything."""
    return any(privacy.releases.values())


def has_private_release(privacy: PrivacyStatement) -> bool:
    """Whether anything was released under a finite budget."""
    return has_release(privacy) and privacy.level != "not private"


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric after each of some rounds."""

    rounds: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NoiseToSignalRatios:
    """Noise-to-signal ratios (one per client and seed), and how many releases had an infinite one."""

    values: tuple[float, ...]
    mean: float | None
    num_infinite: int
    num_releases: int


def accuracy_curve(record: RunRecord, metric: str, client: str | None = None) -> Curve:
    """Accuracy in per cent after each round, of one client or averaged; `metric` is like `own.framework`."""
    scope, predictor = metric.split(".")
    curve = {}
    for each in record.rounds:
        contents = [content for name, content in each.clients.items() if client in (None, name)]
        values = finite_values(content.accuracy[scope].get(predictor) for content in contents)
        if values:
            curve[each.round] = 100 * statistics.fmean(values)
    return Curve(tuple(curve), tuple(curve.values()))


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of several curves in the rounds that all of them have."""
    tables = [dict(zip(curve.rounds, curve.values, strict=True)) for curve in curves]
    rounds = tuple(r for r in tables[0] if all(r in table for table in tables)) if tables else ()
    return Curve(rounds, tuple(statistics.fmean(table[r] for table in tables) for r in rounds))


def epsilon_curve(records: Sequence[RunRecord]) -> Curve:
    """The largest ε that any client has spent after each round, over all seeds; starts at 0."""
    largest: dict[int, float] = {0: 0.0}
    for record in records:
        for each in record.rounds:
            values = finite_values(client.epsilon for client in each.clients.values())
            if len(values) < len(each.clients):
                return Curve((), ())  # a release without noise has no finite ε
            largest[each.round] = max([largest.get(each.round, 0.0), *values])
    return Curve(tuple(largest), tuple(largest.values()))


def noise_to_signal_ratios(records: Sequence[RunRecord]) -> NoiseToSignalRatios:
    """The noise-to-signal ratios of all releases: one value per client and seed, its mean over rounds."""
    values, all_finite, num_releases = [], [], 0
    for record in records:
        for client in record.clients:
            releases = [each.clients[client].release for each in record.rounds]
            ratios = [release["noise_to_signal"] for release in releases if "noise_to_signal" in release]
            finite = finite_values(ratios)
            num_releases += len(ratios)
            all_finite += finite
            if finite:
                values.append(statistics.fmean(finite))
    mean = statistics.fmean(all_finite) if all_finite else None
    return NoiseToSignalRatios(tuple(values), mean, num_releases - len(all_finite), num_releases)


def final_accuracy_by_client(records: Sequence[RunRecord], scope: str) -> dict[str, float | None]:
    """Final accuracy in per cent of each client by the framework's own predictor, averaged over seeds."""
    accuracies: dict[str, float | None] = {}
    finals = [record.final[scope]["framework"].clients for record in records if "framework" in record.final[scope]]
    for client in dict.fromkeys(name for record in records for name in record.clients):
        values = finite_values(clients.get(client) for clients in finals)
        accuracies[client] = 100 * statistics.fmean(values) if values else None
    return accuracies


def finite_values(values: Iterable[float | None]) -> list[float]:
    """The values that are finite numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]
