"""The figures of a report: style, colours, plots, and SVG with captions for the page."""

import contextlib
import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from vpdr.records import AttackResult, RunRecord
from vpdr.report import format as fmt
from vpdr.report import stats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TEXT_COLOUR, FONT = "#333333", "DejaVu Sans"
RC_PARAMS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "vpdr",  # the same figure has the same ids
    "font.family": FONT,  # comes with matplotlib, and is wider than what a reader may have instead
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": TEXT_COLOUR,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "text.color": TEXT_COLOUR,
    "text.parse_math": False,  # a name may contain a dollar sign
    "xtick.color": TEXT_COLOUR,
    "ytick.color": TEXT_COLOUR,
}


@contextlib.contextmanager
def drawing_style() -> Iterator[None]:
    """The settings of this module on top of matplotlib's defaults, whatever the user's settings are."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's fonts have it
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC_PARAMS)
        yield


def make_subplots(columns: int, rows: int, size: tuple[float, float], **sharing: Any) -> tuple["Figure", Any]:
    """A figure without a window and without global state, and its axes as a grid."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **sharing)


def make_panels(
    count: int, width: float, height: float, *, max_width: float = math.inf, title_height: float = 0.0, **sharing: Any
) -> tuple["Figure", Any]:
    """A figure with `count` panels of one size in at most three columns; the rest of the grid is hidden."""
    columns = min(3, max(1, count))
    lines = max(1, -(-count // columns))
    size = (min(max_width, width * columns), title_height + height * lines)
    figure, grid = make_subplots(columns, lines, size, **sharing)
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return figure, grid


def integer_ticks(axes: "Axes") -> None:
    """Put a few ticks at integers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))


@drawing_style()
def inline_svg(figure: "Figure", name: str, description: str) -> str:
    """The figure as an `<svg>` element; `name` is the prefix of its ids, so that ids on a page are unique."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style).*?</\1>|<!--.*?-->|<defs>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r'( id="|url\(#|xlink:href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"\n\s*", "\n", text).replace(f"'{FONT}'", f"'{FONT}', Verdana, sans-serif")
    joins = "stroke-linejoin: round; stroke-linecap: butt"
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(description)}" style="{joins}"', 1)


# Colours and line styles of methods; the colours can be distinguished by colour-blind readers

BASELINE_COLOUR = "#222222"
# Okabe and Ito without yellow, which is invisible on white, then three of Paul Tol
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933", "#332288")
LINE_STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "D", "s", "^")


@dataclass(frozen=True, slots=True)
class MethodStyle:
    """How a method is drawn: colour of the family, line style and marker of the method."""

    family: str
    colour: str
    linestyle: str
    marker: str


MethodStyles = Mapping[str, MethodStyle]  # by method
BudgetCurves = dict[float, dict[stats.Curve, list[str]]]  # budget -> curve -> methods with this curve


def method_styles(methods: Sequence[str], baseline: str | None) -> dict[str, MethodStyle]:
    """The style of each method; depends on their order only. `igpp-1` and `igpp-8` are of the family `igpp`."""
    families: dict[str, list[str]] = {}
    for method in methods:
        families.setdefault(re.sub(r"-[\d.]+$", "", method), []).append(method)
    others = [family for family in families if baseline not in families[family]]
    colours = {family: COLOURS[index % len(COLOURS)] for index, family in enumerate(others)}
    styles = {}
    for family, members in families.items():
        for index, method in enumerate(members):
            colour = colours.get(family, BASELINE_COLOUR)
            styles[method] = MethodStyle(family, colour, LINE_STYLES[index % 4], MARKERS[index % 4])
    return styles


DOTS = (0, (1, 1))  # a line style of matplotlib


@drawing_style()
def plot_final_accuracy(setting: stats.SettingSummary, baseline: str | None, styles: MethodStyles) -> "Figure":
    """Final accuracies of all methods: mean, interval and the value of each seed."""
    methods = setting.methods
    panels = {
        metric: title
        for metric, title in fmt.METRIC_TITLES.items()
        if any(metric in summary.metrics for summary in methods.values())
    }
    figure, grid = make_subplots(len(panels), 1, (9, 0.9 + 0.3 * len(methods)), sharey=True, sharex=True)
    for axes, (metric, title) in zip(grid[0], panels.items(), strict=True):
        for row, (method, summary) in enumerate(methods.items()):
            if metric not in summary.metrics:
                continue
            interval, style = summary.metrics[metric], styles[method]
            seeds = [100 * value for value in interval.values]
            axes.plot(seeds, [row] * len(seeds), ".", color=style.colour, alpha=0.45, markersize=4)
            if interval.low is not None and interval.high is not None:
                ends = [100 * interval.low, 100 * interval.high]
                axes.plot(ends, [row, row], color=style.colour, linewidth=1.6)
            axes.plot([100 * interval.mean], [row], style.marker, color=style.colour, markersize=6)
        reference = (
            methods[baseline].metrics.get(_baseline_metric(metric))
            if baseline is not None and baseline in methods
            else None
        )
        if reference:
            axes.axvline(100 * reference.mean, color=TEXT_COLOUR, linewidth=1, linestyle="--", zorder=1)
        axes.set(title=title, xlabel="accuracy, %")
        axes.grid(visible=False, axis="y")
    low, high = grid[0, 0].get_xlim()
    grid[0, 0].set(xlim=(max(low, -2), min(high, 102)), ylim=(len(methods) - 0.5, -0.5))
    grid[0, 0].set_yticks(range(len(methods)), [fmt.method_name(method) for method in methods])
    return figure


def _baseline_metric(metric: str) -> str:
    """The metric of the baseline's own predictor on the same classes."""
    return stats.OWN_CLASSES if metric == stats.OWN_CLASSES else stats.ALL_CLASSES


@drawing_style()
def plot_accuracy_by_round(
    records: stats.RecordsByMethod, metric: str, baseline: str | None, styles: MethodStyles
) -> "Figure":
    """Accuracy after each round: a panel for each family, thin lines for seeds, a thick one for the mean."""
    curves = {method: [stats.accuracy_curve(record, metric) for record in each] for method, each in records.items()}
    curves = {method: each for method, each in curves.items() if any(curve.rounds for curve in each)}
    baseline_runs = () if baseline is None else records.get(baseline, ())
    reference = stats.mean_curve([stats.accuracy_curve(record, _baseline_metric(metric)) for record in baseline_runs])
    families = list(dict.fromkeys(styles[method].family for method in curves))
    figure, grid = make_panels(len(families), 3, 2, title_height=0.4, sharex=True, sharey=True)
    for axes, family in zip(grid.flat, families, strict=False):
        for method in (each for each in curves if styles[each].family == family):
            runs, mean = curves[method], stats.mean_curve(curves[method])
            line = {"color": styles[method].colour, "linestyle": styles[method].linestyle}
            for curve in runs if len(runs) > 1 else ():
                axes.plot(curve.rounds, curve.values, linewidth=0.7, alpha=0.45, **line)
            axes.plot(mean.rounds, mean.values, linewidth=2.2, label=method or "mean", **line)
        if reference.rounds and styles[str(baseline)].family != family:
            axes.plot(
                reference.rounds, reference.values, label=baseline, color=TEXT_COLOUR, linewidth=1, linestyle=DOTS
            )
        axes.set_title(fmt.method_name(family))
        axes.legend(loc="best")
    _label_round_panels(figure, grid, len(families))
    return figure


def _label_round_panels(figure: "Figure", grid: Any, used: int) -> None:
    """Show the ticks of rounds under the last panel of each column."""
    for axes in grid.flat[max(0, used - grid.shape[1]) : used]:
        axes.tick_params(labelbottom=True)
    figure.supxlabel("round", fontsize=10)
    figure.supylabel("accuracy, %", fontsize=10)
    integer_ticks(grid[0, 0])


@drawing_style()
def plot_accuracy_by_client(records: stats.RecordsByMethod, scopes: Sequence[str]) -> "Figure":
    """Final accuracy of every client by every method, averaged over seeds."""
    tables = {s: {method: stats.final_accuracy_by_client(runs, s) for method, runs in records.items()} for s in scopes}
    names = list(dict.fromkeys(name for row in tables[scopes[0]].values() for name in row))
    wide = min(4.5, 0.9 + 0.75 * len(names))
    size = (1.2 + wide * len(scopes), 0.9 + 0.3 * len(records))
    figure, grid = make_subplots(len(scopes), 1, size, sharey=True)
    for axes, scope in zip(grid[0], scopes, strict=True):
        cells = [[row.get(name) for name in names] for row in tables[scope].values()]
        values = [[math.nan if cell is None else cell for cell in row] for row in cells]
        colours = {"cmap": "Blues", "edgecolors": "white"}
        axes.pcolormesh(
            range(len(names)), range(len(cells)), values, shading="nearest", vmin=0, vmax=115, linewidth=1.5, **colours
        )
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        for row, line in enumerate(cells if len(names) <= 12 else ()):
            for column, cell in enumerate(line):
                text, colour = fmt.DASH if cell is None else f"{cell:.0f}", "white" if (cell or 0) > 65 else TEXT_COLOUR
                axes.text(column, row, text, color=colour, ha="center", va="center", fontsize=9)
        axes.set_title(f"{scope} classes, accuracy in %")
        axes.set_xticks(range(len(names)), names, rotation=0 if len(names) <= 5 else 90)
    grid[0, 0].set_yticks(range(len(records)), [fmt.method_name(method) for method in records])
    grid[0, 0].invert_yaxis()
    return figure


@drawing_style()
def plot_single_run(record: RunRecord) -> "Figure":
    """Accuracy of a single run after each round: thin lines for clients, a thick one for their mean."""
    means = {metric: stats.accuracy_curve(record, metric) for metric in fmt.METRIC_TITLES}
    shown = [metric for metric in fmt.METRIC_TITLES if means[metric].rounds]
    figure, grid = make_subplots(len(shown), 1, (3 * len(shown), 2.8), sharex=True, sharey=True)
    for axes, metric in zip(grid[0], shown, strict=True):
        for index, client in enumerate(record.clients):
            curve = stats.accuracy_curve(record, metric, client)
            colour = COLOURS[index % len(COLOURS)]
            axes.plot(curve.rounds, curve.values, color=colour, linewidth=1, marker=".", label=client)
        axes.plot(means[metric].rounds, means[metric].values, color=TEXT_COLOUR, linewidth=2.4, label="mean")
        axes.set_title(fmt.METRIC_TITLES[metric])
    if len(record.clients) <= 12:
        grid[0, -1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    _label_round_panels(figure, grid, len(shown))
    return figure


def budget_curves(records: stats.RecordsByMethod) -> BudgetCurves:
    """The ε spent after each round by budget; methods with equal values share a curve."""
    curves_by_budget: BudgetCurves = {}
    for method, runs in records.items():
        curve = stats.epsilon_curve(runs)
        if any(curve.values):
            curve = stats.Curve(curve.rounds, tuple(round(value, 6) for value in curve.values))
            budget = runs[0].privacy.epsilon_budget
            curves_by_budget.setdefault(budget, {}).setdefault(curve, []).append(method)
    return dict(sorted(curves_by_budget.items()))


@drawing_style()
def plot_budgets(curves_by_budget: BudgetCurves, styles: MethodStyles) -> "Figure":
    """The ε spent after each round, a panel for each budget."""
    figure, grid = make_panels(len(curves_by_budget), 4.5, 2.7, max_width=9, sharex=True)
    for axes, (budget, curves) in zip(grid.flat, curves_by_budget.items(), strict=False):
        axes.axhline(budget, color=TEXT_COLOUR, linewidth=1, linestyle="--")
        for curve, methods in curves.items():
            style = styles[methods[0]]
            label = fmt.join_and([method or "spent" for method in methods])
            axes.plot(curve.rounds, curve.values, "-", color=style.colour, drawstyle="steps-post", label=label)
            axes.plot(curve.rounds, curve.values, style.marker, color=style.colour, markersize=3.5)
        axes.set(title=f"budget ε = {budget:g}", xlabel="round", ylim=(0, 1.08 * budget))
        axes.legend(loc="lower right")
        integer_ticks(axes)
    grid[0, 0].set_ylabel("ε spent")
    return figure


@drawing_style()
def plot_noise_to_signal(records: stats.RecordsByMethod, styles: MethodStyles) -> "Figure":
    """Noise-to-signal ratios of the releases on a logarithmic scale, with a line at 1.

    A dot for each client and seed, a bar at the mean, and a note on zero and infinite ratios.
    """
    ratios = {method: stats.noise_to_signal_ratios(runs) for method, runs in records.items()}
    ratios = {method: each for method, each in ratios.items() if each.num_releases}
    figure, grid = make_subplots(1, 1, (7, 1.0 + 0.3 * len(ratios)))
    axes = grid[0, 0]
    axes.set_xscale("log")
    axes.axvline(1, color=TEXT_COLOUR, linewidth=1, linestyle="--")
    for row, (method, each) in enumerate(ratios.items()):
        colour, shown = styles[method].colour, sorted(value for value in each.values if value > 0)
        shifted = [row + 0.24 * ((5 * index) % 7 / 6 - 0.5) for index in range(len(shown))]
        axes.plot(shown, shifted, "o", color=colour, markersize=4, alpha=0.55, markeredgewidth=0)
        if each.mean:
            axes.plot([each.mean], [row], "|", color=colour, markersize=15, markeredgewidth=2.2)
        note = "" if shown else "no noise"
        if each.num_infinite:
            note = f"infinite in {each.num_infinite} of {each.num_releases} releases"
        right = axes.get_yaxis_transform()
        axes.text(1.02, row, note, transform=right, ha="left", va="center", fontsize=8.5, color=TEXT_COLOUR)
    axes.set(xlabel="noise-to-signal ratio (log scale)")
    axes.set_ylim(len(ratios) - 0.5, -0.5)
    axes.set_yticks(range(len(ratios)), [fmt.method_name(method) for method in ratios])
    low, high = axes.get_xlim()
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}" if high < 8 * low else "")
    axes.grid(visible=False, axis="y")
    return figure


@drawing_style()
def plot_roc(attack: AttackResult) -> "Figure":
    """The mean ROC curve of each adversary."""
    figure, axes = make_subplots(1, 1, (4.4, 4))
    curves = {"distance": attack.roc or ()} | {n: each.roc for n, each in (attack.stronger or {}).items()}
    for colour, (name, heights) in zip(COLOURS, curves.items(), strict=False):
        grid_points = [index / (len(heights) - 1) for index in range(len(heights))]
        axes[0, 0].plot(grid_points, heights, color=colour, label=name)
    axes[0, 0].plot([0, 1], [0, 1], color=TEXT_COLOUR, linewidth=1, linestyle="--", label="chance")
    axes[0, 0].set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1))
    axes[0, 0].legend(loc="lower right")
    return figure


@dataclass(frozen=True, slots=True)
class CaptionedFigure:
    """An `<svg>` element and a sentence about it."""

    svg: Markup
    caption: str


def captioned_figure(figure: "Figure", name: str, caption: str) -> CaptionedFigure:
    """A figure for the page; `name` is the prefix of its ids."""
    return CaptionedFigure(Markup(inline_svg(figure, name, caption)), caption)


def accuracy_figures(
    summary: stats.SettingSummary, runs: stats.RecordsByMethod, baseline: str | None, styles: MethodStyles, key: str
) -> list[CaptionedFigure]:
    """Final accuracy, accuracy by round and accuracy by client of one setting."""
    one_scope, has_baseline = stats.same_scopes(summary), baseline in runs
    line = f"{baseline} with its own predictor"
    dashed, dotted = (f", the {kind} line is {line}" if has_baseline else "" for kind in ("dashed", "dotted"))
    caption = f"Final accuracy: mean and 95 % interval over seeds; small dots are seeds{dashed}."
    figures = [captioned_figure(plot_final_accuracy(summary, baseline, styles), f"{key}-standings", caption)]
    for metric, phrase in fmt.METRIC_PHRASES.items():
        measured = any(stats.accuracy_curve(record, metric).rounds for records in runs.values() for record in records)
        if measured and not (one_scope and metric == stats.OWN_CLASSES):
            caption = f"Accuracy {phrase} after each round, mean over clients. Thin lines are seeds{dotted}."
            plot = plot_accuracy_by_round(runs, metric, baseline, styles)
            figures.append(captioned_figure(plot, f"{key}-{metric.replace('.', '-')}", caption))
    caption = "Final accuracy of each client by the framework's own predictor, mean over seeds."
    plot = plot_accuracy_by_client(runs, ["all"] if one_scope else ["own", "all"])
    return [*figures, captioned_figure(plot, f"{key}-clients", caption)]


def noise_figures(runs: stats.RecordsByMethod, styles: MethodStyles, key: str) -> list[CaptionedFigure]:
    """Noise-to-signal ratios, if anything was released."""
    if not any(stats.noise_to_signal_ratios(records).num_releases for records in runs.values()):
        return []
    dots = "a dot for each client and seed (mean over rounds), a bar for the mean"
    caption = f"Noise-to-signal ratio of the releases: {dots}. Dashed: noise as strong as the signal."
    return [captioned_figure(plot_noise_to_signal(runs, styles), f"{key}-noise", caption)]


def budget_figures(settings: Mapping[str, stats.RecordsByMethod], styles: MethodStyles) -> list[CaptionedFigure]:
    """The ε spent after each round; one figure for settings with equal curves."""
    groups: dict[str, tuple[BudgetCurves, list[str]]] = {}
    for setting, runs in settings.items():
        curves = budget_curves(runs)
        groups.setdefault(repr(curves), (curves, []))[1].append(setting)
    figures = []
    for index, (curves, names) in enumerate(groups.values()):
        if curves:
            caption = "ε spent by the client that spent most, against the budget (dashed)"
            caption += "." if len(groups) == 1 else f", in {', '.join(names)}."
            figures.append(captioned_figure(plot_budgets(curves, styles), f"budget-{index}", caption))
    return figures
