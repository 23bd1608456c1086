"""Figures of what was released: the budget over the rounds, and the noise beside the signal."""

from typing import TYPE_CHECKING

from vpdr.report.figures import INK, canvas, drawn, whole_numbers
from vpdr.report.numbers import listed
from vpdr.report.palette import Look, Looks
from vpdr.report.series import Curve, Ratios, Records, noise_ratios, spending

if TYPE_CHECKING:
    from vpdr.report.figures import Axes, Figure

Spent = dict[float, dict[Curve, list[str]]]  # budget, then curve, then the methods that follow it


def spent(records: Records) -> Spent:
    """How the budgets were spent; methods that spent alike share a curve."""
    found: Spent = {}
    for method, runs in records.items():
        curve = spending(runs)
        if any(curve.values):
            curve = Curve(curve.rounds, tuple(round(value, 6) for value in curve.values))
            budget = runs[0]["privacy"]["epsilon_budget"]
            found.setdefault(budget, {}).setdefault(curve, []).append(method)
    return dict(sorted(found.items()))


@drawn
def budgets(found: Spent, styles: Looks) -> "Figure":
    """The ε spent after each round, a panel for each budget."""
    columns = min(3, len(found))
    lines = -(-len(found) // columns)
    figure, grid = canvas(columns, lines, (max(4.5, min(9.0, 4.5 * columns)), 2.7 * lines), sharex=True)
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    for axes, (budget, curves) in zip(grid.flat, found.items(), strict=False):
        axes.axhline(budget, color=INK, linewidth=1, linestyle="--")
        for curve, methods in curves.items():
            look = styles[methods[0]]
            label = listed([method or "spent" for method in methods])
            axes.plot(curve.rounds, curve.values, "-", color=look.colour, drawstyle="steps-post", label=label)
            axes.plot(curve.rounds, curve.values, look.marker, color=look.colour, markersize=3.5)
        axes.set(title=f"budget ε = {budget:g}", xlabel="round", ylim=(0, 1.08 * budget))
        axes.legend(loc="lower right")
        whole_numbers(axes)
    grid[0, 0].set_ylabel("ε spent")
    return figure


@drawn
def noise(records: Records, styles: Looks) -> "Figure":
    """Noise-to-signal of the releases on a logarithmic scale; where the noise is as strong is marked."""
    ratios = {method: noise_ratios(runs) for method, runs in records.items()}
    ratios = {method: found for method, found in ratios.items() if found.releases}
    figure, grid = canvas(1, 1, (7, 1.0 + 0.3 * len(ratios)))
    axes = grid[0, 0]
    axes.set_xscale("log")
    axes.axvline(1, color=INK, linewidth=1, linestyle="--")
    for row, (method, found) in enumerate(ratios.items()):
        _strip(axes, row, found, styles[method])
    axes.set(xlabel="noise-to-signal ratio (log scale)")
    axes.set_ylim(len(ratios) - 0.5, -0.5)
    axes.set_yticks(range(len(ratios)), [method or "this plan" for method in ratios])
    low, high = axes.get_xlim()
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}" if high < 8 * low else "")
    axes.grid(visible=False, axis="y")
    return figure


def _strip(axes: "Axes", row: int, found: Ratios, look: Look) -> None:
    """A dot for each client and seed, a bar at the mean, and in words what a logarithm cannot show."""
    shown = sorted(value for value in found.values if value > 0)
    shifted = [row + 0.24 * ((5 * index) % 7 / 6 - 0.5) for index in range(len(shown))]
    axes.plot(shown, shifted, "o", color=look.colour, markersize=4, alpha=0.55, markeredgewidth=0)
    if found.mean:
        axes.plot([found.mean], [row], "|", color=look.colour, markersize=15, markeredgewidth=2.2)
    note = "" if not found.infinite else f"infinite in {found.infinite} of {found.releases} releases"
    if not shown and not found.infinite:
        note = "no noise"
    right = axes.get_yaxis_transform()
    axes.text(1.02, row, note, transform=right, ha="left", va="center", fontsize=8.5, color=INK)
