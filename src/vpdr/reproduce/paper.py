"""The paper's numbers for a cell, under the names of our metrics."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vpdr.reproduce.studies import CellKey, Study, paper_numbers, shared_settings

PaperMetrics = dict[str, float]
METHOD_NAMES = {"igpp": "IGPP", "vpp": "VPP", "vpdr": "VPDR"}


def paper_metrics(study: Study, key: CellKey, clients: Sequence[str] = ()) -> PaperMetrics:
    """The paper's numbers for a cell; empty where it has none.

    If only some of the paper's domains were run (`clients`), its average and std are taken over these.
    """
    template = study.paper_keys.get(key.method, study.paper_key)
    entry = _look_up(template.format(**_template_fields(study, key))) if template else None
    if entry is None:
        return {}
    domains: list[str] = shared_settings()["datasets"][key.dataset]["domains"]
    return PARSERS[study.paper_form](entry, domains, [name for name in domains if name in clients])


def _template_fields(study: Study, key: CellKey) -> dict[str, str]:
    settings = shared_settings()
    dataset = settings["datasets"][key.dataset]
    return {
        "framework": settings["names"]["frameworks"].get(key.framework, key.framework),
        "method": (study.paper_names or METHOD_NAMES).get(key.method, "-"),
        "dataset": dataset["paper"],
        "short": dataset["short"],
        "point": key.point,
    }


def _look_up(path: str) -> Any:
    """Follow a path such as table>FedProto>IGPP; a final `#name` selects a column of the list there."""
    path, hash_sign, column = path.partition("#")
    first, *keys = path.split(">")
    entry: Any = paper_numbers()[first]
    columns = entry.get("columns", [])
    for key in keys:
        if not isinstance(entry, Mapping) or key not in entry:
            return None
        entry = entry[key]
    if hash_sign:
        return entry[columns.index(column)] if column in columns else None
    return entry


def _parse_value(entry: Any, _: Sequence[str], __: Sequence[str]) -> PaperMetrics:
    return {"avg": float(entry)}


def _parse_domains(entry: Any, domains: Sequence[str], run_domains: Sequence[str]) -> PaperMetrics:
    values = dict(zip(domains, entry["domains"], strict=True))
    return {**values, **_average_over(values, run_domains, entry["avg"], entry["std"])}


def _parse_row(entry: Any, domains: Sequence[str], run_domains: Sequence[str]) -> PaperMetrics:
    *by_domain, average, std = entry
    values = dict(zip(domains, by_domain, strict=True))
    return {**values, **_average_over(values, run_domains, average, std)}


def _average_over(values: PaperMetrics, run_domains: Sequence[str], average: float, std: float) -> PaperMetrics:
    """Average and std as printed, or over the domains that were run if these are not all."""
    if not run_domains or len(run_domains) == len(values):
        return {"avg": average, "std": std}
    subset = [values[name] for name in run_domains]
    return {"avg": statistics.fmean(subset)} | ({"std": statistics.stdev(subset)} if len(subset) > 1 else {})


def _parse_attacks(entry: Any, _: Sequence[str], __: Sequence[str]) -> PaperMetrics:
    return {name: float(values[0]) for name, values in entry.items()}


def _parse_accuracy_and_auc(entry: Any, _: Sequence[str], __: Sequence[str]) -> PaperMetrics:
    return {"avg": entry[0], "auc": entry[1]}


def _parse_rounds(entry: Any, _: Sequence[str], __: Sequence[str]) -> PaperMetrics:
    values = {f"{label} {name}": value for label, by_name in entry.items() for name, value in by_name.items()}
    return values | {"avg": statistics.fmean(entry["T=20"].values())}


PARSERS: dict[str, Callable[[Any, Sequence[str], Sequence[str]], PaperMetrics]] = {
    "value": _parse_value,
    "column": _parse_value,
    "domains": _parse_domains,
    "row": _parse_row,
    "attacks": _parse_attacks,
    "pair": _parse_accuracy_and_auc,
    "moments": _parse_rounds,
}  # by Study.paper_form
