"""Figures that need the features of a run: score correlation, t-SNE, and the time of VPDR's parts.

A run is replayed to get its features at some rounds; the same config and seed give the same features.
"""

import io
import math
import statistics
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client import Client, Samples
from vpdr.config import RunConfig
from vpdr.federation import Callbacks, RunState, build, simulate
from vpdr.io import write_atomically
from vpdr.mechanisms import ReleaseContext, SeededNoise, Vpp, anova_scores
from vpdr.report.figures import TEXT_COLOUR, integer_ticks, make_subplots, method_styles, with_style
from vpdr.report.format import DASH, difference_in_unit
from vpdr.reproduce.studies import Study, StudyCell, paper_numbers
from vpdr.reproduce.summary import (
    AGREES,
    AGREES_IN_SIGN,
    DIFFERS,
    NOT_IN_PAPER,
    SMOKE_VERDICT,
    IntervalData,
    RowData,
    StudySummary,
    describe_interval,
    framework_label,
    method_label,
    page_title,
)
from vpdr.rng import Streams
from vpdr.types import Features

if TYPE_CHECKING:
    from vpdr.report.figures import Axes, Figure

LabelledFeatures = tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]
FeatureSnapshots = dict[int, dict[str, LabelledFeatures]]  # round -> client -> features and labels
ScatterData = dict[str, Any]  # one of the summary's "scatters"
MapData = dict[str, Any]  # one of the summary's "maps"
MI_NEIGHBOURS, CLAIMED_CORRELATION = 3, 0.90
MAX_TSNE_SAMPLES, PERPLEXITY = 1000, 30.0
TIMING_REPEATS = 15


def replay_features(config: RunConfig, rounds: Sequence[int], *, test: bool, directory: Path) -> FeatureSnapshots:
    """The features of each client's own encoder after some rounds; round 0 is before the first.

    The features are private. They are stored in the run's directory, readable by its owner only, so that
    the figure can be drawn again.

    Args:
        config: The run to replay.
        rounds: The rounds at which features are taken.
        test: Whether to take test or training samples.
        directory: The directory of the run.
    """
    file = directory / f"features-{'test' if test else 'train'}-{'-'.join(map(str, rounds))}.npz"
    if file.exists():
        return _load_snapshots(file)
    federation = build(config)
    snapshots: FeatureSnapshots = {}

    def take_snapshot(state: RunState) -> None:
        if state.rounds_done in rounds:
            snapshots[state.rounds_done] = {}
            for client in federation.clients:
                samples: Samples = client.shard.test if test else client.shard.train
                snapshots[state.rounds_done][client.id] = client.personal_features(samples).clone(), samples.labels

    take_snapshot(RunState(0, {}, []))
    simulate(federation, callbacks=Callbacks(on_round_end=[take_snapshot]))
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(file, _snapshots_to_bytes(snapshots), mode=0o600)
    return snapshots


def _snapshots_to_bytes(snapshots: FeatureSnapshots) -> bytes:
    arrays: dict[str, Any] = {}
    for round_index, clients in snapshots.items():
        for name, (vectors, labels) in clients.items():
            arrays[f"{round_index}/{name}/x"] = vectors.numpy()
            arrays[f"{round_index}/{name}/y"] = labels.numpy()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _load_snapshots(file: Path) -> FeatureSnapshots:
    snapshots: FeatureSnapshots = {}
    with np.load(file, allow_pickle=False) as arrays:
        for key in arrays.files:
            round_index, name, part = key.split("/")
            if part == "x":
                labels = torch.from_numpy(arrays[f"{round_index}/{name}/y"])
                snapshots.setdefault(int(round_index), {})[name] = (torch.from_numpy(arrays[key]), labels)
    return snapshots


def score_scatters(snapshots: FeatureSnapshots, cap: float, seed: int) -> list[ScatterData]:
    """ANOVA scores, mutual information and their correlations, with and without the cap on the scores."""
    scatters = []
    for round_index, clients in snapshots.items():
        for name, (vectors, labels) in clients.items():
            scores = anova_scores(Features(vectors, labels)).double().numpy()
            information = mutual_information(vectors, labels, seed)
            capped = _correlations(np.clip(scores, 0.0, cap), information)
            scatters.append(
                {
                    "round": round_index,
                    "client": name,
                    "scores": scores.tolist(),
                    "information": information.tolist(),
                    "saturated": float(np.mean(scores >= cap)),
                    **_correlations(scores, information),
                    **{f"{key}_capped": value for key, value in capped.items()},
                }
            )
    return scatters


def mutual_information(vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"], seed: int) -> np.ndarray[Any, Any]:
    """I(z_j; y) of every coordinate j by the k-nearest-neighbour estimator."""
    from sklearn.feature_selection import mutual_info_classif

    information: np.ndarray[Any, Any] = mutual_info_classif(
        vectors.double().numpy(), labels.numpy(), n_neighbors=MI_NEIGHBOURS, random_state=seed
    )
    return information


def _correlations(scores: np.ndarray[Any, Any], information: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """Pearson and Spearman correlation; None if one of the variables is constant."""
    from scipy.stats import pearsonr, spearmanr

    if np.ptp(scores) == 0 or np.ptp(information) == 0:
        return {"pearson": None, "spearman": None}
    return {
        "pearson": float(pearsonr(scores, information).statistic),
        "spearman": float(spearmanr(scores, information).statistic),
    }


def correlation_claims(summary: StudySummary, scatters: Sequence[ScatterData]) -> list[dict[str, str]]:
    """The correlations beside the paper's claim, above 0.90 in each domain; it does not mention the cap."""
    claims = []
    for scatter in scatters:
        values = [scatter["pearson"], scatter["spearman"]]
        high = all(value is not None and math.isfinite(value) and value > CLAIMED_CORRELATION for value in values)
        text = " / ".join(map(_correlation_text, values))
        capped = " / ".join(_correlation_text(scatter[f"{name}_capped"]) for name in ("pearson", "spearman"))
        label = f"{scatter['client']}, round {scatter['round']}"
        claims.append(
            {
                "claim": f"{label}: Pearson / Spearman of S_j and I(z_j; y)",
                "paper": f"> {CLAIMED_CORRELATION:.2f}",
                "ours": f"{text}; capped at H: {capped} ({100 * scatter['saturated']:.1f} % of scores at H)",
                "verdict": SMOKE_VERDICT if summary["smoke"] else AGREES if high else DIFFERS,
            }
        )
    return claims


def _correlation_text(value: float | None) -> str:
    return "undefined (all equal)" if value is None else f"{value:.3f}"


@with_style
def draw_correlation(summary: StudySummary, scatters: Sequence[ScatterData]) -> "Figure":
    """Scores against mutual information: clients across, rounds down."""
    figure, panels = _client_panels(scatters, width=2.9, height=2.7)
    for scatter, axes in panels:
        axes.plot(scatter["information"], scatter["scores"], ".", color="#0072B2", markersize=3, alpha=0.6)
        label = f"{scatter['client']}, round {scatter['round']}"
        axes.set(title=f"{label}: r = {_correlation_text(scatter['pearson'])}", xlabel="I(z_j; y), nats")
        if scatter["client"] == scatters[0]["client"]:
            axes.set_ylabel("S_j (unclipped)")
    figure.suptitle(page_title(summary), fontsize=10)
    return figure


def _client_panels(
    entries: Sequence[Mapping[str, Any]], *, width: float, height: float
) -> tuple["Figure", list[tuple[Mapping[str, Any], Any]]]:
    """A figure with one panel per entry: clients across, rounds down."""
    rounds = list(dict.fromkeys(entry["round"] for entry in entries))
    clients = list(dict.fromkeys(entry["client"] for entry in entries))
    figure, grid = make_subplots(len(clients), len(rounds), (width * len(clients), height * len(rounds)))
    panels = [(entry, grid[rounds.index(entry["round"]), clients.index(entry["client"])]) for entry in entries]
    return figure, panels


def tsne_maps(snapshots: FeatureSnapshots, seed: int) -> list[MapData]:
    """For each round and client: t-SNE coordinates and labels of test samples."""
    maps = []
    for round_index, clients in snapshots.items():
        for name, (vectors, labels) in clients.items():
            rng = Streams(seed).generator("tsne", client=name)  # the same samples in every round
            rows = torch.randperm(len(labels), generator=rng)[:MAX_TSNE_SAMPLES]
            points = tsne_embedding(vectors[rows], seed).tolist()
            maps.append({"round": round_index, "client": name, "points": points, "labels": labels[rows].tolist()})
    return maps


def tsne_embedding(vectors: Float[Tensor, "n d"], seed: int) -> np.ndarray[Any, Any]:
    """t-SNE with PCA initialisation, which makes it depend little on the seed."""
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    tsne = TSNE(init="pca", perplexity=perplexity, random_state=seed)
    embedding: np.ndarray[Any, Any] = tsne.fit_transform(vectors.double().numpy())
    return embedding


@with_style
def draw_tsne(summary: StudySummary, maps: Sequence[MapData], method: str) -> "Figure":
    """t-SNE maps coloured by class, with the accuracy as title: clients across, rounds down."""
    metrics = next(row["metrics"] for row in summary["lines"] if row["method"] == method)
    figure, panels = _client_panels(maps, width=2.7, height=2.8)
    for entry, axes in panels:
        points = np.array(entry["points"])
        axes.scatter(points[:, 0], points[:, 1], c=entry["labels"], cmap="tab10", s=5, linewidths=0)
        accuracy = metrics[f"T={entry['round']} {entry['client']}"]["mean"]
        axes.set(title=f"{entry['client']}, T = {entry['round']}: {accuracy:.2f} %", xticks=[], yticks=[])
    clients = {entry["client"] for entry in maps}
    figure.suptitle(textwrap.fill(page_title(summary), 30 * len(clients)), fontsize=10)
    return figure


def time_vpdr_parts(config: RunConfig) -> dict[str, float]:
    """Milliseconds per client and round of VPDR's parts: scores, selection, soft clipping, teacher, KL.

    Each is the median over clients of the median of repeated calls on the features of the initial encoder.
    Parts of a training step are multiplied by the number of steps of a round.
    """
    torch.set_num_threads(config.run.threads)
    clients = build(config).clients
    times = [_time_client_parts(client) for client in clients if len(client.shard.train.labels)]
    return {name: statistics.median(parts[name] for parts in times) for name in times[0]}


def _time_client_parts(client: Client) -> dict[str, float]:
    mechanism = client.release_config.mechanism
    if not isinstance(mechanism, Vpp):
        return {}
    features = Features(client.released_features(client.shard.train), client.shard.train.labels)
    scores = anova_scores(features)
    context = ReleaseContext(client=client.id, noise=SeededNoise(client.streams.generator("timing", client=client.id)))
    config, regulariser, head = client.train_config, client.regulariser, client.model.head
    batch = features.vectors[: config.batch_size]
    steps = config.epochs * -(-len(features.labels) // config.batch_size)
    logits = head(regulariser.transform_features(batch)).detach()
    weights = torch.ones(len(batch))
    return {
        "stats": _median_ms(lambda: anova_scores(features)),
        "topk": _median_ms(lambda: mechanism.selection.choose(scores, mechanism.allocation.num_selected, context)),
        "clip": steps * _median_ms(lambda: regulariser.transform_features(batch)),
        "teacher": steps * _median_ms(lambda: regulariser.after_step(head)),
        "kl": steps * _median_ms(lambda: regulariser.loss(batch, logits, weights)),
    }


def _median_ms(call: Callable[[], object]) -> float:
    """The median time of a call in milliseconds, after one call to warm up."""
    call()
    times = []
    for _ in range(TIMING_REPEATS):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


# The figure of a study, its claims beside the paper's, and the figures drawn from the summary alone.

FigureAndData = tuple["Figure", dict[str, Any]]  # a figure and the entries that it adds to the summary
Claim = dict[str, str]  # "claim", "paper", "ours" and "verdict", as in the summary
IntervalByValue = dict[float, IntervalData]
BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#999999"
PAPER_COLOUR = "#D55E00"
SELECTION_COLOUR, RELEASE_COLOUR = "#D55E00", BLUE
CURVE_PANELS = {"norm_mean": "mean feature norm before clipping", "teacher_gap": "mean |teacher − student| per logit"}
SYMBOLS = {"rho": "ρ", "r": "r", "gamma": "γ", "beta": "β", "tau": "τ"}
OVERHEAD_TOLERANCE = 2.0  # percentage points
PHASES = {"ProtoGen": ("protogen_ms", ("stats", "topk")), "FT": ("finetune_ms", ("clip", "teacher", "kl"))}


@dataclass(frozen=True, kw_only=True)
class FigureContext:
    """What a figure needs beside the summary: the study, its cells, a seed and the directory of the runs."""

    study: Study
    cells: Sequence[StudyCell]
    seed: int
    runs_dir: Path

    def config_for(self, method: str) -> RunConfig:
        """The config of a method's first cell that can run, at its first R."""
        cell = next(cell for cell in self.cells if cell.key.method == method and cell.radii)
        return cell.config(cell.radii[0], self.seed)

    def feature_snapshots(self, *, rounds: Callable[[RunConfig], Sequence[int]], test: bool) -> FeatureSnapshots:
        """Features of the headline method's run at some rounds."""
        config = self.config_for(self.study.headline)
        directory = self.runs_dir / config.config_hash
        return replay_features(config, rounds(config), test=test, directory=directory)


def draw_figure(context: FigureContext, summary: StudySummary) -> FigureAndData:
    """Draw the figure of a study; its claims and data are entries for the summary."""
    study = context.study
    has_headline = any(row["method"] == study.headline and row["metrics"] for row in summary["lines"])
    if study.kind in REPLAYING_KINDS and not has_headline:
        return draw_dot_plot(summary), {}
    return FIGURES[study.kind](context, summary)


def _table_figure(_: FigureContext, summary: StudySummary) -> FigureAndData:
    return draw_dot_plot(summary), {}


def _curves_figure(context: FigureContext, summary: StudySummary) -> FigureAndData:
    claims = _curve_claims(summary, context.study.headline, context.study.base)
    return draw_curves(summary), {"claims": claims}


def _hyperparameter_figure(context: FigureContext, summary: StudySummary) -> FigureAndData:
    claims = _hyperparameter_claims(context.study, summary)
    return draw_hyperparameters(summary, context.study.headline), {"claims": claims}


def _time_figure(context: FigureContext, summary: StudySummary) -> FigureAndData:
    parts = time_vpdr_parts(context.config_for(context.study.headline))
    claims = _timing_claims(summary, parts, context.study.base)
    return draw_time_bars(summary), {"parts_ms": parts, "claims": claims}


def _time_bars_figure(context: FigureContext, summary: StudySummary) -> FigureAndData:
    claims = _mean_timing_claims(summary, context.study.headline, context.study.base)
    return draw_time_bars(summary), {"claims": claims}


def _budget_figure(_: FigureContext, summary: StudySummary) -> FigureAndData:
    return draw_budget(summary), {"claims": _budget_claims(summary)}


def _correlation_figure(context: FigureContext, summary: StudySummary) -> FigureAndData:
    snapshots = context.feature_snapshots(rounds=lambda config: (0, config.run.rounds), test=False)
    cap = context.config_for(context.study.headline).mechanism.cap
    scatters = score_scatters(snapshots, cap, context.seed)
    claims = correlation_claims(summary, scatters)
    return draw_correlation(summary, scatters), {"claims": claims, "scatters": scatters}


def _tsne_figure(context: FigureContext, summary: StudySummary) -> FigureAndData:
    snapshots = context.feature_snapshots(rounds=lambda config: tuple(dict.fromkeys((1, config.run.rounds))), test=True)
    maps = tsne_maps(snapshots, context.seed)
    return draw_tsne(summary, maps, context.study.headline), {"maps": maps}


FIGURES: dict[str, Callable[[FigureContext, StudySummary], FigureAndData]] = {
    "table": _table_figure,
    "curves": _curves_figure,
    "sensitivity": _hyperparameter_figure,
    "time": _time_figure,
    "time-bars": _time_bars_figure,
    "budget": _budget_figure,
    "correlation": _correlation_figure,
    "tsne": _tsne_figure,
}  # by Study.kind
REPLAYING_KINDS = ("correlation", "tsne")  # these replay the headline's run, which must be finished


def figure_bytes(figure: "Figure", kind: str) -> bytes:
    """The figure as a png or svg file; equal figures give equal bytes."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 130}

    @with_style
    def write() -> "Figure":
        figure.savefig(buffer, format=kind, **options)
        return figure

    write()
    return buffer.getvalue()


def mark_smoke(figure: "Figure", summary: StudySummary) -> None:
    """Write SMOKE across the figure of a smoke run."""
    if summary["smoke"]:
        centred: dict[str, Any] = {"ha": "center", "va": "center", "rotation": 25}
        figure.text(0.5, 0.5, "SMOKE", fontsize=60, color=TEXT_COLOUR, alpha=0.12, **centred)


def _claim(summary: StudySummary, claim: str, paper: str, ours: str, verdict: str) -> Claim:
    """A claim of the paper beside ours; a smoke run has no verdict."""
    verdict = SMOKE_VERDICT if summary["smoke"] else verdict
    return {"claim": claim, "paper": paper, "ours": ours, "verdict": verdict}


@with_style
def draw_dot_plot(summary: StudySummary) -> "Figure":
    """One panel per data set and point: a dot with its interval for each row, a diamond for the paper."""
    panels = _dot_panels(summary)
    columns = min(3, max(1, len(panels)))
    panel_rows = -(-len(panels) // columns) or 1
    tallest = max((len(rows) for rows in panels.values()), default=1)
    figure, grid = make_subplots(columns, panel_rows, (5.2 * columns, panel_rows * (1.4 + 0.24 * tallest)))
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (name, rows) in zip(grid.flat, panels.items(), strict=False):
        _draw_dot_panel(axes, summary, rows)
        axes.set(title=name, xlabel=f"{summary['metric']} {summary['unit']}".strip())
    figure.suptitle(
        f"{page_title(summary)}\ndots: ours with 95 % intervals over seeds; diamonds: the paper", fontsize=10
    )
    return figure


def _dot_panels(summary: StudySummary) -> dict[str, list[RowData]]:
    panels: dict[str, list[RowData]] = {}
    for row in summary["lines"]:
        if summary["metric"] not in row["metrics"]:
            continue
        for point in row["points"]:
            title = summary["datasets"][row["dataset"]]["title"]
            panels.setdefault(f"{title}, {point}" if point else title, []).append(row)
    return panels


def _draw_dot_panel(axes: "Axes", summary: StudySummary, rows: Sequence[RowData]) -> None:
    styles = method_styles(summary["methods"], "local")
    for y, row in enumerate(rows):
        ours, paper = row["metrics"][summary["metric"]], row["paper"].get(summary["metric"])
        colour = styles[row["method"]].colour
        if ours["low"] is not None:
            axes.plot([ours["low"], ours["high"]], [y, y], "-", color=colour, linewidth=1.6)
        axes.plot(ours["values"], [y] * len(ours["values"]), ".", color=colour, alpha=0.4, markersize=4)
        axes.plot([ours["mean"]], [y], "o", color=colour, markersize=5)
        if paper is not None:
            axes.plot([paper], [y], "D", color=PAPER_COLOUR, markerfacecolor="none", markersize=6)
    axes.set_yticks(range(len(rows)), [_bar_label(summary, row) for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _bar_label(summary: StudySummary, row: RowData) -> str:
    return f"{framework_label(summary, row)} {method_label(row['method'])}"


def _metric_by_round(row: RowData, name: str) -> dict[int, IntervalData]:
    """The metrics named `name@round`, by round."""
    prefix = f"{name}@"
    metrics = row["metrics"].items()
    return {int(key.removeprefix(prefix)): value for key, value in metrics if key.startswith(prefix)}


def _curve_claims(summary: StudySummary, headline: str, base: str) -> list[Claim]:
    """Feature norms by round: with DCR they stay near R."""
    claims = []
    for pair in summary["pairs"]:
        if (pair["first"], pair["second"]) != (headline, base):
            continue
        ours = pair["ours"]
        names = f"{method_label(headline)} − {method_label(base)}"
        verdict = f"{AGREES_IN_SIGN if ours['mean'] < 0 else DIFFERS} ({describe_interval(ours)})"
        text = difference_in_unit(ours, summary["unit"])
        claim = f"norms are nearer to R: |norm − R| / R, {names}"
        claims.append(_claim(summary, claim, "below 0", text, verdict))
    return claims


@with_style
def draw_curves(summary: StudySummary) -> "Figure":
    """Feature norm and teacher gap by round and method, with intervals over seeds; R is dashed."""
    figure, grid = make_subplots(2, 1, (9, 3.4))
    styles = method_styles(summary["methods"], "local")
    for axes, (name, title) in zip(grid.flat, CURVE_PANELS.items(), strict=True):
        for row in summary["lines"]:
            _draw_curve(axes, row, name, styles[row["method"]].colour)
        axes.set(xlabel="round", title=title)
        integer_ticks(axes)
    for radius in summary["radii"]:
        grid[0, 0].axhline(radius, color=TEXT_COLOUR, linewidth=1, linestyle="--", label=f"R = {radius:g}")
    grid[0, 0].legend()
    figure.suptitle(page_title(summary), fontsize=10)
    return figure


def _draw_curve(axes: "Axes", row: RowData, name: str, colour: str) -> None:
    curve = _metric_by_round(row, name)
    if not curve:
        return
    rounds, intervals = list(curve), list(curve.values())
    axes.plot(rounds, [each["mean"] for each in intervals], color=colour, label=method_label(row["method"]))
    _fill_intervals(axes, rounds, intervals, colour, alpha=0.15)


def _fill_intervals(
    axes: "Axes", xs: Sequence[float], intervals: Sequence[IntervalData], colour: str, *, alpha: float
) -> None:
    if intervals and all(each["low"] is not None for each in intervals):
        low, high = ([each[side] for each in intervals] for side in ("low", "high"))
        axes.fill_between(xs, low, high, color=colour, alpha=alpha, linewidth=0)


def budget_parts(row: RowData) -> dict[str, float]:
    """Epsilon of the selections (they compose by addition), of the releases (the rest), and in total."""
    selection = sum(each["mean"] for each in _metric_by_round(row, "pure.epsilon").values())
    total = row["metrics"]["epsilon_spent"]["mean"]
    return {"selection": selection, "release": total - selection, "total": total}


def _budget_claims(summary: StudySummary) -> list[Claim]:
    """The parts of each method's budget, and the noise multiplier that they pay for."""
    claims = []
    for row in summary["lines"]:
        if "epsilon_spent" not in row["metrics"]:
            continue
        parts = budget_parts(row)
        multipliers = [each["mean"] for each in _metric_by_round(row, "gaussian.multiplier").values()]
        noise = f"; {len(multipliers)} releases with noise multiplier {multipliers[0]:.4g}" if multipliers else ""
        claims.append(
            {
                "claim": f"{method_label(row['method'])}: ε₁ for selection, ε₂ for release",
                "paper": "schematic",
                "ours": f"{parts['selection']:.4f} + {parts['release']:.4f} = {parts['total']:.4f}{noise}",
                "verdict": NOT_IN_PAPER,
            }
        )
    return claims


@with_style
def draw_budget(summary: StudySummary) -> "Figure":
    """Left: the parts of epsilon by method. Right: epsilon spent by round."""
    rows = [row for row in summary["lines"] if "epsilon_spent" in row["metrics"]]
    figure, grid = make_subplots(2, 1, (9, 3.0))
    bars, steps = grid.flat
    styles = method_styles(summary["methods"], "local")
    for y, row in enumerate(rows):
        parts, style, curve = budget_parts(row), styles[row["method"]], _metric_by_round(row, "epsilon")
        bars.barh(y, parts["selection"], color=SELECTION_COLOUR)
        bars.barh(y, parts["release"], left=parts["selection"], color=RELEASE_COLOUR)
        spent = [each["mean"] for each in curve.values()]
        line = {"color": style.colour, "linestyle": style.linestyle, "label": method_label(row["method"])}
        steps.step(list(curve), spent, where="post", **line)
    bars.set_yticks(range(len(rows)), [method_label(row["method"]) for row in rows])
    bars.invert_yaxis()
    bars.set(xlabel="ε of one client: selection (ε₁, orange), release (ε₂, blue)")
    steps.set(xlabel="round", ylabel="ε spent")
    integer_ticks(steps)
    if rows:
        steps.legend()
    figure.suptitle(page_title(summary), fontsize=10)
    return figure


def _hyperparameter_panels(summary: StudySummary, method: str) -> dict[str, IntervalByValue]:
    """The metric of one method by hyper-parameter and value; points are named `name=value`."""
    panels: dict[str, IntervalByValue] = {}
    for row in summary["lines"]:
        if row["method"] != method or summary["metric"] not in row["metrics"]:
            continue
        for point in row["points"]:
            name, _, value = point.partition("=")
            panels.setdefault(name, {})[float(value)] = row["metrics"][summary["metric"]]
    return panels


def _hyperparameter_claims(study: Study, summary: StudySummary) -> list[Claim]:
    """Whether our best value is the paper's, or their intervals overlap."""
    claims = []
    for name, panel in _hyperparameter_panels(summary, study.headline).items():
        best = max(sorted(panel), key=lambda value: panel[value]["mean"])
        paper_best = study.optimum[name]
        measured = [value for value in paper_best if value in panel]
        if best in measured:
            verdict = AGREES
        elif any(_intervals_overlap(panel[best], panel[value]) for value in measured):
            verdict = f"{AGREES} (intervals overlap)"
        else:
            verdict = DIFFERS
        paper = " or ".join(f"{value:g}" for value in paper_best)
        claims.append(_claim(summary, f"best {SYMBOLS[name]}", paper, f"{best:g}", verdict))
    return claims


def _intervals_overlap(one: IntervalData, other: IntervalData) -> bool:
    bounds = (one["low"], one["high"], other["low"], other["high"])
    return None not in bounds and bool(one["low"] <= other["high"] and other["low"] <= one["high"])


@with_style
def draw_hyperparameters(summary: StudySummary, headline: str) -> "Figure":
    """One panel per hyper-parameter: the headline with intervals, the controls dashed."""
    panels = _hyperparameter_panels(summary, headline)
    controls = {method: _hyperparameter_panels(summary, method) for method in summary["methods"] if method != headline}
    columns = max(1, len(panels))
    figure, grid = make_subplots(columns, 1, (3.1 * columns, 3.2), sharey=True)
    for axes, (name, panel) in zip(grid.flat, panels.items(), strict=False):
        _draw_line(axes, panel, {"color": BLUE, "marker": "o", "label": method_label(headline)})
        for index, (method, control_panels) in enumerate(controls.items()):
            colour = TEXT_COLOUR if index == 0 else GREY
            style = {"color": colour, "linestyle": "--", "label": method_label(method)}
            _draw_line(axes, control_panels.get(name, {}), style)
        axes.set(xlabel=SYMBOLS.get(name, name))
        axes.set_xticks(range(len(panel)), [f"{value:g}" for value in sorted(panel)])
    grid[0, 0].set_ylabel(f"{summary['metric']} {summary['unit']}")
    grid[0, 0].legend()
    figure.suptitle(page_title(summary), fontsize=10)
    return figure


def _draw_line(axes: "Axes", panel: IntervalByValue, style: dict[str, Any]) -> None:
    intervals = [panel[value] for value in sorted(panel)]
    xs = list(range(len(intervals)))
    axes.plot(xs, [each["mean"] for each in intervals], **style)
    _fill_intervals(axes, xs, intervals, style["color"], alpha=0.12)


def _timing_claims(summary: StudySummary, parts: Mapping[str, float], base: str) -> list[Claim]:
    """The time of the parts of VPDR beside the paper's, and the overhead relative to the base."""
    claims = []
    for phase, (metric, names) in PHASES.items():
        base_ms = next((_mean_of(row, metric) for row in summary["lines"] if row["method"] == base), None)
        printed = paper_numbers()["time_ms_fedproto_office"][phase]
        added = " + ".join(f"{parts[name]:.3f}" for name in names)
        ours = f"{base_ms:.2f} + {added} ms" if base_ms else DASH
        paper = f"{printed['base']} + {' + '.join(str(printed[name]) for name in names)} ms"
        claim = f"{phase}: base + {' + '.join(names)}"
        claims.append(_claim(summary, claim, paper, ours, "other machine"))
        if base_ms:
            overhead = 100 * sum(parts[name] for name in names) / base_ms
            verdict = _overhead_verdict(overhead, printed["overhead_pct"])
            paper, ours = f"{printed['overhead_pct']} %", f"{overhead:.1f} %"
            claims.append(_claim(summary, f"{phase}: overhead of VPDR", paper, ours, verdict))
    return claims


def _overhead_verdict(ours: float, paper: float) -> str:
    close = abs(ours - paper) <= OVERHEAD_TOLERANCE
    return f"{AGREES} (within {OVERHEAD_TOLERANCE:g} points)" if close else DIFFERS


def _mean_timing_claims(summary: StudySummary, headline: str, base: str) -> list[Claim]:
    """The mean extra time over all frameworks."""
    printed = paper_numbers()["time_ms_fedproto_office"]["six_framework_mean"]
    pairs = [pair for pair in summary["pairs"] if (pair["first"], pair["second"]) == (headline, base)]
    if not pairs:
        return []
    extra = sum(pair["ours"]["mean"] for pair in pairs) / len(pairs)
    totals = [_mean_of(row, "total_ms") for row in summary["lines"] if row["method"] == base]
    base_totals = [total for total in totals if total]
    overhead = 100 * extra / (sum(base_totals) / len(base_totals))
    claim = f"mean extra time of {method_label(headline)} over {len(pairs)} cells"
    paper = f"+{printed['total_s']} s ({printed['pct']} %)"
    ours = f"{extra / 1000:+.4f} s ({overhead:.1f} %)"
    return [_claim(summary, claim, paper, ours, _overhead_verdict(overhead, printed["pct"]))]


def _mean_of(row: RowData, metric: str) -> float | None:
    interval = row["metrics"].get(metric)
    return None if interval is None else float(interval["mean"])


@with_style
def draw_time_bars(summary: StudySummary) -> "Figure":
    """Stacked bars of both phases for each framework and method, one panel per data set."""
    panels: dict[str, list[RowData]] = {}
    for row in summary["lines"]:
        if row["metrics"]:
            panels.setdefault(row["dataset"], []).append(row)
    columns = max(1, len(panels))
    tallest = max((len(rows) for rows in panels.values()), default=1)
    figure, grid = make_subplots(columns, 1, (5.5 * columns, 1.3 + 0.26 * tallest))
    for axes, (dataset, rows) in zip(grid.flat, panels.items(), strict=False):
        protogen, finetune = ([_mean_of(row, name) or 0.0 for row in rows] for name in ("protogen_ms", "finetune_ms"))
        axes.barh(range(len(rows)), protogen, color=BLUE, label="ProtoGen")
        axes.barh(range(len(rows)), finetune, left=protogen, color=ORANGE, label="FT")
        axes.set_yticks(range(len(rows)), [_bar_label(summary, row) for row in rows], fontsize=8)
        axes.invert_yaxis()
        axes.set(title=summary["datasets"][dataset]["title"], xlabel="ms of one client and round")
        axes.legend()
    figure.suptitle(page_title(summary), fontsize=10)
    return figure
