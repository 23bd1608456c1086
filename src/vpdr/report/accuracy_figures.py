"""Figures of how well the methods predict: final standings, rounds, and clients."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vpdr.report.differences import ALL, NEAREST, OWN
from vpdr.report.figures import INK, canvas, drawn, whole_numbers
from vpdr.report.palette import COLOURS, Look, Looks
from vpdr.report.series import Curve, Records, averaged, final_by_client, learning

if TYPE_CHECKING:
    from vpdr.report.figures import Axes, Figure

PANELS = {OWN: "own classes", ALL: "all classes", NEAREST: "nearest prototype, all classes"}
DOTTED: dict[str, Any] = {"color": INK, "linewidth": 1, "linestyle": (0, (1, 1))}


@drawn
def standings(setting: Mapping[str, Any], baseline: str | None, styles: Looks) -> "Figure":
    """Final accuracies of all methods: mean, interval and the seeds themselves."""
    methods = setting["methods"]
    panels = {
        metric: title
        for metric, title in PANELS.items()
        if any(metric in summary["metrics"] for summary in methods.values())
    }
    figure, grid = canvas(len(panels), 1, (9, 0.9 + 0.3 * len(methods)), sharey=True, sharex=True)
    for axes, (metric, title) in zip(grid[0], panels.items(), strict=True):
        for row, (method, summary) in enumerate(methods.items()):
            if metric in summary["metrics"]:
                _interval(axes, row, summary["metrics"][metric], styles[method])
        reference = methods.get(baseline, {}).get("metrics", {}).get(OWN if metric == OWN else ALL)
        if reference:
            axes.axvline(100 * reference["mean"], color=INK, linewidth=1, linestyle="--", zorder=1)
        axes.set(title=title, xlabel="accuracy, %")
        axes.grid(visible=False, axis="y")
    low, high = grid[0, 0].get_xlim()
    grid[0, 0].set(xlim=(max(low, -2), min(high, 102)), ylim=(len(methods) - 0.5, -0.5))
    grid[0, 0].set_yticks(range(len(methods)), [method or "this plan" for method in methods])
    return figure


def _interval(axes: "Axes", row: int, measured: Mapping[str, Any], look: Look) -> None:
    seeds = [100 * value for value in measured["values"]]
    axes.plot(seeds, [row] * len(seeds), ".", color=look.colour, alpha=0.45, markersize=4)
    if measured["low"] is not None:
        axes.plot(
            [100 * measured["low"], 100 * measured["high"]], [row, row], color=look.colour, linewidth=1.6
        )
    axes.plot([100 * measured["mean"]], [row], look.marker, color=look.colour, markersize=6)


@drawn
def rounds(records: Records, reading: str, baseline: str | None, styles: Looks) -> "Figure":
    """Accuracy after each round: a panel for each family, thin lines for seeds, a thick one for the mean."""
    curves = {method: [learning(record, reading) for record in runs] for method, runs in records.items()}
    curves = {method: found for method, found in curves.items() if any(curve.rounds for curve in found)}
    runs = [record for method, found in records.items() if method == baseline for record in found]
    reference = averaged([learning(record, OWN if reading == OWN else ALL) for record in runs])
    families = list(dict.fromkeys(styles[method].family for method in curves))
    columns = min(3, max(1, len(families)))
    lines = max(1, -(-len(families) // columns))
    figure, grid = canvas(columns, lines, (3 * columns, 0.4 + 2 * lines), sharex=True, sharey=True)
    for axes, family in zip(grid.flat, families, strict=False):
        for method in (each for each in curves if styles[each].family == family):
            _seeds(axes, curves[method], styles[method], method)
        if reference.rounds and styles[str(baseline)].family != family:
            axes.plot(reference.rounds, reference.values, label=baseline, **DOTTED)
        axes.set_title(family or "this plan")
        axes.legend(loc="best")
    _finish(figure, grid, len(families))
    return figure


def _finish(figure: "Figure", grid: Any, used: int) -> None:
    """Hide the panels that are not used, and number the rounds under the last one of each column."""
    for axes in grid.flat[used:]:
        axes.set_visible(False)
    for axes in grid.flat[max(0, used - grid.shape[1]) : used]:
        axes.tick_params(labelbottom=True)
    figure.supxlabel("round", fontsize=10)
    figure.supylabel("accuracy, %", fontsize=10)
    whole_numbers(grid[0, 0])


def _seeds(axes: "Axes", curves: Sequence[Curve], look: Look, method: str) -> None:
    mean = averaged(curves)
    for curve in curves if len(curves) > 1 else ():
        axes.plot(
            curve.rounds, curve.values, color=look.colour, linewidth=0.7, alpha=0.45, linestyle=look.dash
        )
    axes.plot(
        mean.rounds,
        mean.values,
        color=look.colour,
        linewidth=2.2,
        linestyle=look.dash,
        label=method or "mean",
    )


@drawn
def clients(records: Records, scopes: Sequence[str]) -> "Figure":
    """Final accuracy of every client by every method, averaged over seeds."""
    tables = {s: {method: final_by_client(runs, s) for method, runs in records.items()} for s in scopes}
    names = list(dict.fromkeys(name for row in tables[scopes[0]].values() for name in row))
    wide = min(4.5, 0.9 + 0.75 * len(names))
    size = (1.2 + wide * len(scopes), 0.9 + 0.3 * len(records))
    figure, grid = canvas(len(scopes), 1, size, sharey=True)
    for axes, scope in zip(grid[0], scopes, strict=True):
        cells = [[row.get(name) for name in names] for row in tables[scope].values()]
        _heat(axes, cells, annotate=len(names) <= 12)
        axes.set_title(f"{scope} classes, accuracy in %")
        axes.set_xticks(range(len(names)), names, rotation=0 if len(names) <= 5 else 90)
    grid[0, 0].set_yticks(range(len(records)), [method or "this plan" for method in records])
    grid[0, 0].invert_yaxis()
    return figure


def _heat(axes: "Axes", cells: Sequence[Sequence[float | None]], *, annotate: bool) -> None:
    values = [[float("nan") if cell is None else cell for cell in row] for row in cells]
    axes.pcolormesh(
        range(len(cells[0])),
        range(len(cells)),
        values,
        shading="nearest",
        cmap="Blues",
        vmin=0,
        vmax=115,
        edgecolors="white",
        linewidth=1.5,
    )
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for row, line in enumerate(cells if annotate else ()):
        for column, cell in enumerate(line):
            text, colour = ("—", INK) if cell is None else (f"{cell:.0f}", "white" if cell > 65 else INK)
            axes.text(column, row, text, color=colour, ha="center", va="center", fontsize=9)


@drawn
def one_run(record: Mapping[str, Any]) -> "Figure":
    """Accuracy of a single run after each round: thin lines for clients, a thick one for their mean."""
    means = {reading: learning(record, reading) for reading in PANELS}
    shown = [reading for reading in PANELS if means[reading].rounds]
    figure, grid = canvas(len(shown), 1, (3 * len(shown), 2.8), sharex=True, sharey=True)
    for axes, reading in zip(grid[0], shown, strict=True):
        for index, client in enumerate(record["clients"]):
            curve = learning(record, reading, client)
            colour = COLOURS[index % len(COLOURS)]
            axes.plot(curve.rounds, curve.values, color=colour, linewidth=1, marker=".", label=client)
        axes.plot(means[reading].rounds, means[reading].values, color=INK, linewidth=2.4, label="mean")
        axes.set_title(PANELS[reading])
    if len(record["clients"]) <= 12:
        grid[0, -1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    _finish(figure, grid, len(shown))
    return figure
