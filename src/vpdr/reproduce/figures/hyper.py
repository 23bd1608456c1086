"""Accuracy against one hyper-parameter at a time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vpdr.report.figures import INK, canvas, drawn
from vpdr.reproduce.catalogue import Study
from vpdr.reproduce.labels import heading, method_label
from vpdr.reproduce.verdicts import AGREES, DIFFERS, NOT_JUDGED

if TYPE_CHECKING:
    from vpdr.report.figures import Axes, Figure

SYMBOLS = {"rho": "ρ", "r": "r", "gamma": "γ", "beta": "β", "tau": "τ"}
Panel = dict[float, Mapping[str, Any]]  # value -> interval


def panels(summary: Mapping[str, Any], method: str) -> dict[str, Panel]:
    """By hyper-parameter and value, for one method; a line that many points share is in all of them."""
    found: dict[str, Panel] = {}
    for line in summary["lines"]:
        for point in line["points"]:
            name, _, value = point.partition("=")
            if line["method"] == method and summary["metric"] in line["metrics"]:
                found.setdefault(name, {})[float(value)] = line["metrics"][summary["metric"]]
    return found


def claims(study: Study, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Whether the paper's best value is ours, or cannot be told from ours."""
    told = []
    for name, panel in panels(summary, study.headline).items():
        best = max(sorted(panel), key=lambda value: panel[value]["mean"])
        named = [value for value in study.optimum[name] if value in panel]
        fine = best in named or any(_overlap(panel[best], panel[value]) for value in named)
        words = AGREES if best in named else f"{AGREES} (intervals overlap)" if fine else DIFFERS
        told.append(
            {
                "claim": f"best {SYMBOLS[name]}",
                "paper": " or ".join(f"{value:g}" for value in study.optimum[name]),
                "ours": f"{best:g}",
                "verdict": NOT_JUDGED if summary["smoke"] else words,
            }
        )
    return told


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    sides = (one["low"], one["high"], other["low"], other["high"])
    return None not in sides and bool(one["low"] <= other["high"] and other["low"] <= one["high"])


@drawn
def hyper(summary: Mapping[str, Any], headline: str) -> "Figure":
    """A panel for each hyper-parameter; the control local is a line, the random control is grey."""
    found = panels(summary, headline)
    others = {method: panels(summary, method) for method in summary["methods"] if method != headline}
    figure, grid = canvas(max(1, len(found)), 1, (3.1 * max(1, len(found)), 3.2), sharey=True)
    for axes, (name, panel) in zip(grid.flat, found.items(), strict=False):
        _line(axes, panel, {"color": "#0072B2", "marker": "o", "label": method_label(headline)})
        for index, (method, all_panels) in enumerate(others.items()):
            look = {
                "color": INK if index == 0 else "#999999",
                "linestyle": "--",
                "label": method_label(method),
            }
            _line(axes, all_panels.get(name, {}), look)
        axes.set(xlabel=SYMBOLS.get(name, name))
        axes.set_xticks(range(len(panel)), [f"{value:g}" for value in sorted(panel)])
    grid[0, 0].set_ylabel(f"{summary['metric']} {summary['unit']}")
    grid[0, 0].legend()
    figure.suptitle(heading(summary), fontsize=10)
    return figure


def _line(axes: "Axes", panel: Panel, look: dict[str, Any]) -> None:
    values = sorted(panel)
    places, means = list(range(len(values))), [panel[value]["mean"] for value in values]
    axes.plot(places, means, **look)
    if values and all(panel[value]["low"] is not None for value in values):
        low, high = ([panel[value][side] for value in values] for side in ("low", "high"))
        axes.fill_between(places, low, high, color=look["color"], alpha=0.12, linewidth=0)
