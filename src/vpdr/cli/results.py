"""Tables at the end of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from vpdr.cli.printing import console
from vpdr.report.tables import TERMINAL, comparison_rows, table_rows

_COLUMNS = {
    "framework": "accuracy",
    "head": "head",
    "soft_clipped": "soft-clipped",
    "nearest_cosine": "nearest prototype",
    "fused": "fused",
}


def tell_run(record: Mapping[str, Any], folder: Path) -> None:
    """Final accuracies of every client, their average and spread, and what the guarantee covers."""
    final = record["final"]
    names = [name for name in _COLUMNS if name in final["own"]]
    table = Table(box=None, pad_edge=False)
    table.add_column("client", no_wrap=True)
    for heading in (*[_COLUMNS[name] for name in names], "on all classes"):
        table.add_column(heading)
    for client in record["clients"]:
        cells = [_percent(final["own"][name]["clients"].get(client)) for name in names]
        table.add_row(client, *cells, _percent(final["all"]["framework"]["clients"].get(client)))
    for label, key in (("average", "average"), ("std over clients", "std")):
        cells = [_percent(final["own"][name][key]) for name in names]
        table.add_row(label, *cells, _percent(final["all"]["framework"][key]), style="bold")
    console.print(table)
    privacy = record["privacy"]
    console.print(f"privacy: {privacy['sentence']}")
    for caveat in privacy["not_covered"]:
        console.print(f"  - {caveat}")
    console.print(f"record: {folder / 'record.json'}   report: {folder / 'report.html'}")


def tell_comparison(summary: Mapping[str, Any], folder: Path) -> None:
    """One table a setting, and where the rest is."""
    for name, setting in summary["settings"].items():
        found = comparison_rows(setting, summary["baseline"]).only(TERMINAL)
        table = Table(*found.labels, title=name or None, title_justify="left", box=None, pad_edge=False)
        for row in table_rows(found):
            table.add_row(*row)
        console.print(table)
        console.print()
    console.print(f"seeds {summary['seeds']}, 95 % t-intervals over seeds; accuracies in %")
    privacy = [each["privacy"] for s in summary["settings"].values() for each in s["methods"].values()]
    if any(each["noise"] == "seeded" for each in privacy):
        console.print(
            "noise comes from the seed: guarantees are what the same run is worth with secret noise"
        )
    console.print(f"summary: {folder / 'summary.json'}   report: {folder / 'report.html'}")


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{100 * value:.2f}"
