"""What lines, methods and pages are called."""

from collections.abc import Mapping, Sequence
from typing import Any

from vpdr.report.numbers import DASH
from vpdr.reproduce.catalogue import setting

Summary = Mapping[str, Any]
Line = Mapping[str, Any]
_MEASURES = {
    "protogen_ms": "ProtoGen, ms",
    "finetune_ms": "FT, ms",
    "total_ms": "total, ms",
    "nearest": "nearest prototype",
    "relative_error": "relMSE",
}


def heading(summary: Summary) -> str:
    """The title, marked where it is only a smoke run."""
    mark = "SMOKE: " if summary["smoke"] else ""
    return f"{mark}{summary['title']} ({summary['paper']})"


def label_heads(summary: Summary) -> list[str]:
    """The headings of the columns that name a line."""
    points = any(line["points"] != [""] for line in summary["lines"])
    return ["framework", "method", *(["point"] if points else [])]


def labels(summary: Summary, line: Line) -> list[str]:
    """What names a line."""
    names = [framework_label(summary, line), method_label(line["method"])]
    every = list(dict.fromkeys(p for each in summary["lines"] for p in each["points"]))
    point = ["all" if len(line["points"]) == len(every) > 1 else "; ".join(line["points"])]
    return [*names, *point] if len(label_heads(summary)) > 2 else names


def framework_label(summary: Summary, line: Line) -> str:
    """The framework's name; a line that stands for all of them has none."""
    if len(summary["frameworks"]) > 1 and len(line["frameworks"]) == len(summary["frameworks"]):
        return DASH
    return ", ".join(framework_name(name) for name in line["frameworks"])


def method_label(method: str) -> str:
    """The method's name as the paper or the control table has it."""
    name: str = setting()["names"]["methods"].get(method, method)
    return name


def framework_name(framework: str) -> str:
    """One framework as the paper writes it."""
    name: str = setting()["names"]["frameworks"].get(framework, framework)
    return name


def measures(lines: Sequence[Line]) -> list[str]:
    """What was measured or printed of these lines, each name once; curves over rounds are left out."""
    told = (name for line in lines for name in (*line["metrics"], *line["paper"]))
    return [name for name in dict.fromkeys(told) if "@" not in name]


def measure_heads(names: Sequence[str]) -> list[str]:
    """The headings of the columns that hold numbers."""
    return [_MEASURES.get(name, name) for name in names]
