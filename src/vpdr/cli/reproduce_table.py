"""A reproduction on the screen: rows with numbers, then what was not run, by reason."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from vpdr.cli.printing import console
from vpdr.reproduce.labels import framework_label, heading, method_label
from vpdr.reproduce.numbers import measured, number, signed
from vpdr.reproduce.results import reasons

Summary = Mapping[str, Any]


def tell(summary: Summary, folder: Path) -> None:
    """The table, what it lacks, and where the whole page is."""
    metric = summary["metric"]
    heads = ("data", "framework", "method", "point", "R", f"paper {metric}", "ours", "difference", "verdict")
    table = Table(*heads, title=heading(summary), title_justify="left", box=None, pad_edge=False)
    for line in summary["lines"]:
        if metric in line["metrics"]:
            table.add_row(*_row(summary, line))
    console.print(table)
    for reason, rows in reasons(summary).items():
        console.print(f"{rows} rows: {reason}", markup=False)
    console.print(f"page: {folder / (summary['id'] + '.md')}   summary: {folder / (summary['id'] + '.json')}")


def _row(summary: Summary, line: Mapping[str, Any]) -> list[str]:
    unit, metric = summary["unit"], summary["metric"]
    return [
        _data(summary, line["dataset"]),
        framework_label(summary, line),
        method_label(line["method"]),
        ", ".join(line["points"]),
        "" if line["radius"] is None else f"{line['radius']:g}",
        number(line["paper"].get(metric), unit),
        measured(line["metrics"].get(metric), unit),
        signed(line["difference"], unit),
        line["verdict"],
    ]


def _data(summary: Summary, name: str) -> str:
    """A data set's name; where a smoke run had only the embedded digits, that is said."""
    stands_in = summary["smoke"] and not summary["datasets"][name]["given"]
    return f"{name} (embedded digits)" if stands_in else name
