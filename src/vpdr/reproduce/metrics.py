"""The metrics of a cell in the units of the paper: those that the paper prints, and those of a run's record."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vpdr.privacy import Ledger, accountants
from vpdr.records import RunRecord
from vpdr.report.stats import diagnostic_values, finite_values, last_release_error
from vpdr.reproduce.studies import CellKey, Study, paper_numbers, shared_settings

Metrics = dict[str, float]
METHOD_NAMES = {"igpp": "IGPP", "vpp": "VPP", "vpdr": "VPDR"}


def paper_metrics(study: Study, key: CellKey, clients: Sequence[str] = ()) -> Metrics:
    """The paper's numbers for a cell; empty where it has none.

    If only some of the paper's domains were run (`clients`), its average and std are taken over these.
    """
    template, settings = study.paper_keys.get(key.method, study.paper_key), shared_settings()
    dataset = settings["datasets"][key.dataset]
    path = template.format(
        framework=settings["names"]["frameworks"].get(key.framework, key.framework),
        method=(study.paper_names or METHOD_NAMES).get(key.method, "-"),
        dataset=dataset["paper"],
        short=dataset["short"],
        point=key.point,
    )
    entry = _look_up(path) if path else None
    return {} if entry is None else _parse(study.paper_form, entry, dataset["domains"], clients)


def _look_up(path: str) -> Any:
    """Follow a path such as table>FedProto>IGPP; a final `#name` selects a column of the list there."""
    path, _, column = path.partition("#")
    first, *keys = path.split(">")
    entry: Any = paper_numbers()[first]
    columns = entry.get("columns", [])
    for key in keys:
        if not isinstance(entry, Mapping) or key not in entry:
            return None
        entry = entry[key]
    if column:
        return entry[columns.index(column)] if column in columns else None
    return entry


def _parse(form: str, entry: Any, domains: Sequence[str], clients: Sequence[str]) -> Metrics:
    """The numbers of one entry of the paper, by `Study.paper_form`."""
    match form:
        case "value" | "column":
            return {"avg": float(entry)}
        case "pair":
            return {"avg": entry[0], "auc": entry[1]}
        case "attacks":
            return {name: float(numbers[0]) for name, numbers in entry.items()}
        case "moments":
            by_round = {f"{label} {name}": number for label, row in entry.items() for name, number in row.items()}
            return {**by_round, "avg": statistics.fmean(entry["T=20"].values())}
        case "domains":
            by_domain, average, std = entry["domains"], entry["avg"], entry["std"]
        case _:
            *by_domain, average, std = entry
    values = dict(zip(domains, by_domain, strict=True))
    run = [values[name] for name in domains if name in clients]
    if len(run) in (0, len(values)):
        return {**values, "avg": average, "std": std}
    return {**values, "avg": statistics.fmean(run), **({"std": statistics.stdev(run)} if len(run) > 1 else {})}


ATTACK_METRICS = {
    "cos": ("fsh", "cos"),
    "cffd": ("fsh", "cffd"),
    "top1_pct": ("fsh", "top1"),
    "auc": ("mia", "auc"),
    "tpr_at_1fpr": ("mia", "tpr_at_1fpr"),
    "advantage": ("mia", "advantage"),
    "f1": ("mia", "f1"),
}  # our name -> attack and its metric in the record
PERCENT_METRICS = {"top1_pct"}
STRICT_PREDICTORS = {"head": "head", "nearest": "nearest_cosine", "fused": "fused", "avg": "framework"}


def accuracy_metrics(record: RunRecord) -> Metrics:
    """Accuracy of the framework's predictor in per cent: of each client, their mean and sample std."""
    final = record.final["all"]["framework"]
    return _percentages({**final.clients, "avg": final.average, "std": final.std})


def control_metrics(record: RunRecord) -> Metrics:
    """Accuracy, and diagnostics of the releases: noise energy relative to IGPP, overlap, chance, error."""
    diagnostics = {name: diagnostic_values(record, name) for name in ("energy_ratio", "overlap", "chance")}
    means = {name: statistics.fmean(values) for name, values in diagnostics.items() if values}
    return {**accuracy_metrics(record), **_release_error(record), **means}


def strict_metrics(record: RunRecord) -> Metrics:
    """Accuracy on all classes of each predictor, and the error of the last release."""
    final = record.final["all"]
    averages = {ours: final[name].average for ours, name in STRICT_PREDICTORS.items() if name in final}
    return {**_percentages(averages), **_release_error(record)}


def attack_metrics(record: RunRecord) -> Metrics:
    """The metrics of both attacks, as means over the attacked rounds; empty without attacks."""
    metrics: Metrics = {}
    for name, (kind, metric) in ATTACK_METRICS.items():
        attack = (record.attacks or {}).get(kind)
        values = None if attack is None else attack.summary.get(metric)
        if values is None or values.mean is None:
            continue
        factor = 100 if name in PERCENT_METRICS else 1
        metrics[name] = values.mean * factor
        if values.null is not None:
            metrics[f"{name} by chance"] = values.null * factor
    return metrics


def accuracy_and_auc(record: RunRecord) -> Metrics:
    """Accuracy, and the AUC of the membership attack where there is one."""
    attacks = attack_metrics(record)
    return accuracy_metrics(record) | ({"auc": attacks["auc"]} if "auc" in attacks else {})


def phase_times(record: RunRecord) -> Metrics:
    """Milliseconds per client and round: the median over clients and all rounds but the first."""
    rounds = record.rounds[1:] or record.rounds  # the first round warms up
    seconds = [client.seconds for entry in rounds for client in entry.clients.values()]
    metrics: Metrics = {}
    for name, phase in (("protogen_ms", "prototypes"), ("finetune_ms", "finetune")):
        times = [1000 * each[phase] for each in seconds if phase in each]
        metrics[name] = statistics.median(times) if times else 0.0
    return {**metrics, "total_ms": sum(metrics.values())}


def feature_curves(record: RunRecord) -> Metrics:
    """Accuracy, mean feature norm and teacher gap by round, and the distance of the last norm from R."""
    curves: Metrics = {}
    for entry in record.rounds:
        for name in ("norm_mean", "teacher_gap"):
            if values := finite_values(client.features.get(name) for client in entry.clients.values()):
                curves[f"{name}@{entry.round}"] = statistics.fmean(values)
    radius = record.plan["mechanism"]["clip_norm"]
    norm = curves[f"norm_mean@{record.rounds[-1].round}"]
    return {**accuracy_metrics(record), **curves, "norm": norm, "norm_distance": abs(norm - radius) / radius}


def ledger_metrics(record: RunRecord) -> Metrics:
    """Epsilon in total and by round, of the client that spent most, and the events of the longest ledger."""
    metrics: Metrics = {}
    if record.privacy.epsilon_spent is not None:
        metrics["epsilon_spent"] = record.privacy.epsilon_spent
    for each in record.rounds:
        if spent := finite_values(client.epsilon for client in each.clients.values()):
            metrics[f"epsilon@{each.round}"] = max(spent)
    ledgers = [Ledger.from_state_dict(state) for state in record.ledgers.values()]
    for entry in max(ledgers, key=lambda ledger: len(ledger.entries)).entries:
        for event in map(accountants.event_to_dict, entry.receipt.events):
            for name, value in event.items():
                if isinstance(value, int | float):
                    metrics[f"{event['kind']}.{name}@{entry.round}"] = value
    return metrics


def first_and_last_round(record: RunRecord) -> Metrics:
    """Accuracy of each client after the first and after the last round."""
    metrics: Metrics = {}
    for entry in (record.rounds[0], record.rounds[-1]):
        clients = {name: client.accuracy["all"].get("framework") for name, client in entry.clients.items()}
        metrics |= _percentages({f"T={entry.round} {name}": accuracy for name, accuracy in clients.items()})
    return {**metrics, "avg": accuracy_metrics(record)["avg"]}


EXTRACTORS: dict[str, Callable[[RunRecord], Metrics]] = {
    "accuracy": accuracy_metrics,
    "controls": control_metrics,
    "strict": strict_metrics,
    "attacks": attack_metrics,
    "dr": accuracy_and_auc,
    "seconds": phase_times,
    "curves": feature_curves,
    "ledger": ledger_metrics,
    "first_and_last": first_and_last_round,
}  # by Study.reader


def validation_accuracy(record: RunRecord) -> float | None:
    """The mean accuracy on the validation split in per cent; None without a validation split."""
    final = record.final.get("validation", {}).get("framework")
    return None if final is None else _percentages({"average": final.average}).get("average")


def _release_error(record: RunRecord) -> Metrics:
    error = last_release_error(record)
    return {} if error is None else {"relative_error": error}


def _percentages(shares: Mapping[str, float | None]) -> Metrics:
    """The finite shares, in per cent."""
    return {name: 100 * x for name, x in shares.items() if x is not None and math.isfinite(x)}
