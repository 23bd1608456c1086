"""The picture of a table: ours with intervals, the paper beside them."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vpdr.report.figures import INK, canvas, drawn
from vpdr.report.palette import looks
from vpdr.reproduce.labels import framework_label, heading, method_label

if TYPE_CHECKING:
    from vpdr.report.figures import Axes, Figure

Summary = Mapping[str, Any]
PAPER = "#D55E00"


@drawn
def dots(summary: Summary) -> "Figure":
    """A panel for each data set and point: a dot and its interval for each line, a diamond for the paper."""
    panels = _panels(summary)
    columns = min(3, max(1, len(panels)))
    lines = -(-len(panels) // columns) or 1
    tallest = max((len(found) for found in panels.values()), default=1)
    figure, grid = canvas(columns, lines, (5.2 * columns, lines * (1.4 + 0.24 * tallest)))
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (name, found) in zip(grid.flat, panels.items(), strict=False):
        _panel(axes, summary, found)
        axes.set(title=name, xlabel=f"{summary['metric']} {summary['unit']}".strip())
    figure.suptitle(
        f"{heading(summary)}\ndots: ours with 95 % intervals over seeds; diamonds: the paper", fontsize=10
    )
    return figure


def _panels(summary: Summary) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for line in summary["lines"]:
        if summary["metric"] not in line["metrics"]:
            continue
        for point in line["points"]:
            title = summary["datasets"][line["dataset"]]["title"]
            found.setdefault(f"{title}, {point}" if point else title, []).append(line)
    return found


def _panel(axes: "Axes", summary: Summary, lines: Sequence[Mapping[str, Any]]) -> None:
    styles = looks(summary["methods"], "local")
    for place, line in enumerate(lines):
        ours, theirs = line["metrics"][summary["metric"]], line["paper"].get(summary["metric"])
        colour = styles[line["method"]].colour
        if ours["low"] is not None:
            axes.plot([ours["low"], ours["high"]], [place, place], "-", color=colour, linewidth=1.6)
        axes.plot(ours["values"], [place] * len(ours["values"]), ".", color=colour, alpha=0.4, markersize=4)
        axes.plot([ours["mean"]], [place], "o", color=colour, markersize=5)
        if theirs is not None:
            axes.plot([theirs], [place], "D", color=PAPER, markerfacecolor="none", markersize=6)
    names = [f"{framework_label(summary, line)} {method_label(line['method'])}" for line in lines]
    axes.set_yticks(range(len(lines)), names, fontsize=8)
    axes.set_ylim(len(lines) - 0.5, -0.5)


def saved(figure: "Figure", kind: str) -> bytes:
    """The figure as a file; the same figure is the same bytes."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 130}

    @drawn
    def write() -> "Figure":
        figure.savefig(buffer, format=kind, **options)
        return figure

    write()
    return buffer.getvalue()


def stamp(figure: "Figure", summary: Summary) -> None:
    """SMOKE across a picture that is not a result."""
    if summary["smoke"]:
        figure.text(
            0.5, 0.5, "SMOKE", fontsize=60, color=INK, alpha=0.12, ha="center", va="center", rotation=25
        )
