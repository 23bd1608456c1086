"""Numbers on a page of ours beside the paper's."""

from collections.abc import Mapping
from typing import Any

from vpdr.report.numbers import DASH, MINUS, half_width

DIGITS = {"%": 2, "ms": 2, "": 4, "ε": 4, "of R": 3}


def number(value: float | None, unit: str) -> str:
    """A number with the digits of its unit; large ones need fewer."""
    if value is None:
        return DASH
    digits = DIGITS.get(unit, 2) if abs(value) < 1000 else 1
    return f"{value:.{digits}f}".replace("-", MINUS)


def measured(found: Mapping[str, Any] | None, unit: str) -> str:
    """A mean with half of its interval: `93.12 ± 1.20`."""
    if found is None:
        return DASH
    half = half_width(found)
    return number(found["mean"], unit) + ("" if half is None else f" ± {number(half, unit)}")


def signed(value: float | None, unit: str) -> str:
    """A difference with its sign."""
    if value is None:
        return DASH
    return ("+" if value > 0 else "") + number(value, unit)


def ranged(found: Mapping[str, Any] | None, unit: str) -> str:
    """A difference with its interval: `+0.4 (−0.2 to +1.0)`."""
    if found is None:
        return DASH
    mean = signed(found["mean"], unit)
    if found["low"] is None:
        return mean
    return f"{mean} ({signed(found['low'], unit)} to {signed(found['high'], unit)})"


def row(*cells: str) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def table(headings: list[str], rows: list[list[str]], texts: int = 1) -> str:
    """A Markdown table: the first columns are texts, the others numbers."""
    marks = ["---" if index < texts else "---:" for index in range(len(headings))]
    return row(*headings) + row(*marks) + "".join(row(*cells) for cells in rows)
