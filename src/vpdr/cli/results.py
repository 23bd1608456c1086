"""Tables at the end of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from vpdr.cli.printing import console
from vpdr.report.numbers import seeds_text
from vpdr.report.terminal import narrow

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
    """One table a setting, as wide as the screen, and where the rest is."""
    for name, setting in summary["settings"].items():
        found = narrow(setting, summary["baseline"], console.width)
        table = Table(title=name or None, title_justify="left", box=None, pad_edge=False)
        for heading, number in zip(found.heads, found.numbers, strict=True):
            table.add_column(heading, justify="right" if number else "left", overflow="fold")
        for row in found.rows:
            table.add_row(*row)
        console.print(table)
        if found.left_out:
            console.print(f"no room for: {', '.join(found.left_out)} (the report has all)", markup=False)
        console.print()
    console.print(f"seeds {seeds_text(summary['seeds'])}, ± half of a 95 % t-interval over seeds")
    console.print("accuracies in %, on all classes unless they are a client's own; differences in points")
    privacy = [each["privacy"] for s in summary["settings"].values() for each in s["methods"].values()]
    if any(each["noise"] == "seeded" for each in privacy):
        console.print(
            "noise comes from the seed: guarantees are what the same run is worth with secret noise"
        )
    console.print(f"summary: {folder / 'summary.json'}   report: {folder / 'report.html'}")


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{100 * value:.2f}"
