"""The comparison of one setting as wide as a terminal: short words, and the columns that matter most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vpdr.report.differences import ALL, FUSED, NEAREST, OWN, difference, released
from vpdr.report.numbers import DASH, plus_minus
from vpdr.report.tables import comparison_rows

GAP = 2  # between two columns
BESIDE = f"difference.{ALL}"
# from the last that a reader can do without; the first is never left out
IMPORTANCE = ("method", ALL, "epsilon", BESIDE, FUSED, "level", NEAREST, OWN, "relative_error")
HEADS = {
    "method": "method",
    "epsilon": "ε",
    "level": "guarantee",
    OWN: "own",
    ALL: "all",
    NEAREST: "nearest",
    FUSED: "fused",
    "relative_error": "relMSE",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Narrow:
    """What fits: headings, lines, and the headings that did not."""

    heads: tuple[str, ...]
    numbers: tuple[bool, ...]  # which columns read from the right
    rows: tuple[tuple[str, ...], ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Column:
    key: str
    head: str
    number: bool
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        return max(map(len, (self.head, *self.cells)))


def narrow(setting: Mapping[str, Any], baseline: str | None, width: int) -> Narrow:
    """The table of one setting in so many characters; the report has all of it."""
    columns = _columns(setting, baseline)
    kept = list(columns)
    for key in reversed(IMPORTANCE[1:]):
        if _needed(kept) > width:
            kept = [column for column in kept if column.key != key]
    return Narrow(
        heads=tuple(column.head for column in kept),
        numbers=tuple(column.number for column in kept),
        rows=tuple(zip(*(column.cells for column in kept), strict=True)),
        left_out=tuple(column.head for column in columns if column not in kept),
    )


def _needed(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _columns(setting: Mapping[str, Any], baseline: str | None) -> list[_Column]:
    """The columns of the whole table that a terminal may show, in its order."""
    whole = comparison_rows(setting, baseline)
    heads = HEADS | {BESIDE: f"all − {baseline}"}
    found = []
    for column, cells in zip(whole.columns, zip(*whole.rows, strict=True), strict=True):
        texts = tuple(cell.text for cell in cells)
        if column.key == BESIDE:
            texts = _beside(setting, baseline)
        elif column.key == "level":
            texts = _levels(setting)
        if column.key in heads:
            number = bool(column.parts)
            found.append(_Column(key=column.key, head=heads[column.key], number=number, cells=texts))
    return found


def _beside(setting: Mapping[str, Any], baseline: str | None) -> tuple[str, ...]:
    """Differences with half of their interval, which is shorter than its ends."""
    return tuple(plus_minus(difference(setting, method, baseline, ALL)) for method in setting["methods"])


def _levels(setting: Mapping[str, Any]) -> tuple[str, ...]:
    stated = (each["privacy"] for each in setting["methods"].values())
    return tuple(privacy["level"] if released(privacy) else DASH for privacy in stated)
