"""The comparison of one setting as a table: text for people, raw numbers for programs."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vpdr.report.differences import ALL, FUSED, NEAREST, OWN, difference, private, released
from vpdr.report.numbers import DASH, percent, points, size

PARTS = ("mean", "low", "high")


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, what it means, and the names of the raw numbers under it."""

    key: str
    label: str
    meaning: str
    parts: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the raw table."""
        return tuple(f"{self.key}.{part}" for part in self.parts) or (self.key,)


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, and the raw values behind it (one for each name of its column)."""

    text: str
    values: tuple[float | str | None, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line a method, in the order of the plan."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The headings."""
        return tuple(column.label for column in self.columns)

    def only(self, keys: Sequence[str]) -> "Comparison":
        """The same table with some of its columns."""
        kept = [index for index, column in enumerate(self.columns) if column.key in keys]
        rows = tuple(tuple(row[index] for index in kept) for row in self.rows)
        return Comparison(tuple(self.columns[index] for index in kept), rows)


COLUMNS = (
    Column("method", "Method", "the arm of the comparison"),
    Column("epsilon", "ε budget", "what each client may spend over the whole run; a dash: no budget applies"),
    Column("level", "Guarantee", "how much the stated budget is worth, see “What the guarantee covers”"),
    Column(OWN, "Own classes, %", "accuracy of the framework's own predictor on a client's classes", PARTS),
    Column(ALL, "All classes, %", "accuracy of the framework's own predictor on all classes", PARTS),
    Column(NEAREST, "Nearest prototype, %", "all classes, by the cosine-nearest shared prototype", PARTS),
    Column(FUSED, "Fused, %", "all classes, by the head and the shared prototypes together", PARTS),
)
FIGURES = (
    Column(
        "noise_to_signal", "Noise / signal", "expected norm of the noise over that of the prototypes", PARTS
    ),
    Column(
        "relative_error",
        "relMSE",
        "squared error of each client's last release; 1: what a constant scores",
        PARTS,
    ),
    Column("overlap", "Overlap (chance)", "selected dimensions that are the true ones", ("mean", "chance")),
)


def comparison_rows(setting: Mapping[str, Any], baseline: str | None) -> Comparison:
    """The table of one setting of `summarise_runs`; without a baseline it has no differences.

    The fused predictor has columns where any method has it.
    """
    fused = any(FUSED in each["metrics"] for each in setting["methods"].values())
    shown = tuple(column for column in COLUMNS if fused or column.key != FUSED)
    gaps = _gaps(baseline, fused=fused) if baseline in setting["methods"] else ()
    rows = []
    for method, summary in setting["methods"].items():
        found = [
            difference(setting, method, baseline, column.key.replace("difference.", "")) for column in gaps
        ]
        told = tuple(Cell(points(each), _raw(each)) for each in found)
        accuracies = _accuracies(summary["metrics"], shown)
        rows.append((*_named(method, summary["privacy"]), *accuracies, *told, *_figures(summary["metrics"])))
    return Comparison((*shown, *gaps, *FIGURES), tuple(rows))


def _gaps(baseline: str | None, *, fused: bool) -> tuple[Column, ...]:
    shown = {OWN: "own", ALL: "all", NEAREST: "nearest"} | ({FUSED: "fused"} if fused else {})
    paired = f"paired by seed, percentage points, 95 % interval; minus {baseline}'s"
    rules = {key: f"{paired} {'fused' if key == FUSED else 'own predictor'}" for key in shown}
    return tuple(
        Column(f"difference.{key}", f"{label.capitalize()} − {baseline}, points", rules[key], PARTS)
        for key, label in shown.items()
    )


def _named(method: str, privacy: Mapping[str, Any]) -> tuple[Cell, ...]:
    budget = privacy["epsilon_budget"] if private(privacy) else None
    level = privacy["level"] if released(privacy) else "nothing released"
    return (
        Cell(method or "this plan", (method,)),
        Cell(DASH if budget is None else f"{budget:g}", (budget,)),
        Cell(level, (level,)),
    )


def _accuracies(metrics: Mapping[str, Any], shown: Sequence[Column]) -> Iterator[Cell]:
    for column in shown:
        if column.parts:
            yield Cell(percent(metrics.get(column.key)), _raw(metrics.get(column.key)))


def _figures(metrics: Mapping[str, Any]) -> tuple[Cell, ...]:
    cells = []
    for name in ("noise_to_signal", "relative_error"):
        measured = metrics.get(name)
        cells.append(Cell(size(measured["mean"]) if measured else DASH, _raw(measured)))
    overlap, chance = (metrics.get(name, {}).get("mean") for name in ("overlap", "chance"))
    text = DASH if overlap is None else f"{overlap:.2f} ({DASH if chance is None else f'{chance:.2f}'})"
    return (*cells, Cell(text, (overlap, chance)))


def _raw(measured: Mapping[str, Any] | None) -> tuple[float | str | None, ...]:
    return tuple(measured[part] if measured else None for part in PARTS)


def table_rows(table: Comparison) -> Iterator[tuple[str, ...]]:
    """The texts line by line."""
    for row in table.rows:
        yield tuple(cell.text for cell in row)


def markdown(table: Comparison) -> str:
    """The table for a README; the first column reads from the left, numbers from the right."""
    lines = [table.labels, tuple("---:" if column.parts else "---" for column in table.columns)]
    lines += table_rows(table)
    return "".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |\n" for line in lines)


def csv_text(table: Comparison) -> str:
    """The raw numbers (accuracies and differences as shares of 1); what is missing stays empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(name for column in table.columns for name in column.names)
    writer.writerows([value for cell in row for value in cell.values] for row in table.rows)
    return text.getvalue()
