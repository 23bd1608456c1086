"""The summary of a study: rows, paired differences and verdicts, as one JSON object; and its labels.

A row is one cell: the metrics at the selected R, the whole grid of R, and the paper's numbers. Verdicts
follow one rule (`VERDICT_RULE`), which is printed on every page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vpdr.report.format import DASH
from vpdr.report.stats import interval, shared_intervals
from vpdr.reproduce.metrics import PaperMetrics, paper_metrics
from vpdr.reproduce.run import SelectedClipNorm, StudyResults, mean_score, select_clip_norm
from vpdr.reproduce.studies import CellKey, ReproduceOptions, Study, StudyCell, shared_settings

SCHEMA, VERSION = "vpdr-reproduction", 1
AGREES, AGREES_IN_SIGN, DIFFERS = "agrees", "agrees in sign", "does not agree"
NOT_RUN, NOT_IN_PAPER = "not run", "no number in the paper"
SMOKE_VERDICT = "not judged (smoke)"
VERDICT_RULE = (
    "agrees: ours is within one standard deviation over seeds of the paper's number, or within {tolerance}; "
    "agrees in sign: it is not, but the difference to {base} (for {base} itself: that of {headline}) has the "
    "paper's sign, and the verdict says whether its 95 % interval over paired seeds excludes zero; "
    "does not agree: neither"
)
_NOT_MEASURED_REASONS = {"attacks": "needs --attack mia"}  # by Study.reader
_METRIC_HEADINGS = {
    "protogen_ms": "ProtoGen, ms",
    "finetune_ms": "FT, ms",
    "total_ms": "total, ms",
    "nearest": "nearest prototype",
    "relative_error": "relMSE",
}

StudySummary = Mapping[str, Any]  # the JSON object of a study
RowData = Mapping[str, Any]  # one of its "lines": a SummaryRow as JSON
IntervalData = Mapping[str, Any]  # mean, low, high, std and values, as made by vpdr.report.stats.interval
CellSelections = Sequence[tuple[StudyCell, SelectedClipNorm | None]]


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference between two methods: ours as an interval over seeds, and the paper's."""

    ours: IntervalData
    paper: float

    @property
    def same_sign(self) -> bool:
        """Whether both differences have the same sign; zero has none."""
        return bool(self.ours["mean"] * self.paper > 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class GridEntry:
    """One R of a row's grid: its validation accuracy and its metrics on the test set."""

    radius: float | None
    chosen: bool
    validation: float | None
    metrics: Mapping[str, IntervalData]


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryRow:
    """One row of a table; the fields are the keys of its JSON object."""

    dataset: str
    method: str
    frameworks: list[str]
    points: list[str]
    why: str | None = None  # why there are no numbers
    metrics: Mapping[str, IntervalData] = field(default_factory=dict)  # at the selected R
    paper: PaperMetrics = field(default_factory=dict)
    radius: float | None = None
    chosen_by: str | None = None  # the split on which R was selected
    grid: list[GridEntry] = field(default_factory=list)
    privacy: str | None = None  # the privacy statement of the runs
    difference: float | None = None  # ours minus the paper's
    verdict: str = ""

    def to_json(self) -> dict[str, Any]:
        """The row as JSON data; a row without runs has no `chosen_by` and no `privacy`."""
        optional = ("chosen_by", "privacy")
        return {name: v for name, v in asdict(self).items() if v is not None or name not in optional}


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedDifference:
    """The difference of two methods over the same seeds; the fields are the keys of its JSON object."""

    dataset: str
    framework: str
    point: str
    first: str
    second: str
    ours: IntervalData
    paper: float | None
    verdict: str = ""

    @property
    def contrast(self) -> Contrast | None:
        """Ours beside the paper's difference; None where the paper has none."""
        return None if self.paper is None else Contrast(self.ours, self.paper)


def summarise_study(
    study: Study, options: ReproduceOptions, cells: Sequence[StudyCell], results: StudyResults
) -> dict[str, Any]:
    """The summary of a study as JSON data."""
    seeds = options.seeds_for(study)
    selections = [(cell, select_clip_norm(cell, results.metrics, seeds, options.select)) for cell in cells]
    pairs = [
        _with_pair_verdict(options, pair)
        for cell, _ in selections
        for pair in _paired_differences(study, cell, selections)
    ]
    rows = [
        _with_row_verdict(study, options, _make_row(study, cell, selection, results, seeds), pairs)
        for cell, selection in selections
    ]
    return {
        **_summary_header(study, options, seeds),
        "lines": [row.to_json() for row in rows],
        "pairs": [asdict(pair) for pair in pairs],
        "versions": next((run.versions for run in results.metrics.values()), {}),
        "wall_seconds": sum(run.wall_seconds for run in results.metrics.values()),
    }


def _summary_header(study: Study, options: ReproduceOptions, seeds: Sequence[int]) -> dict[str, Any]:
    unit = {"%": " points"}.get(study.unit, f" {study.unit}".rstrip())
    rule = VERDICT_RULE.format(tolerance=f"{study.tolerance:g}{unit}", base=study.base, headline=study.headline)
    point_notes = [f"Only these points were asked for: {'; '.join(options.points)}."] if options.points else []
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "id": study.id,
        "title": study.title,
        "paper": study.paper,
        "kind": study.kind,
        "columns": study.columns,
        "metric": study.metric,
        "unit": study.unit,
        "smoke": options.smoke,
        "seeds": list(seeds),
        "radii": list(options.radii_for(study)),
        "methods": list(study.methods),
        "frameworks": list(study.frameworks),
        "datasets": {name: _dataset_info(options, name) for name in study.datasets},
        "settings": list(options.settings),
        "rule": rule,
        "notes": [*study.notes, *point_notes],
    }


def _dataset_info(options: ReproduceOptions, name: str) -> dict[str, Any]:
    dataset = shared_settings()["datasets"][name]
    given, title = name in options.data_dirs, dataset["title"]
    return {
        "adapters": options.adapters_for(name) if given else None,
        "title": title if given or not options.smoke else f"{title} (embedded digits instead)",
        "given": given,
        "backbone": options.backbone_for(name) if given else None,
        "paper_backbone": dataset["backbone"],
    }


def _make_row(
    study: Study, cell: StudyCell, selection: SelectedClipNorm | None, results: StudyResults, seeds: Sequence[int]
) -> SummaryRow:
    """The row of a cell, without difference and verdict."""
    row = SummaryRow(
        dataset=cell.key.dataset,
        method=cell.key.method,
        frameworks=list(dict.fromkeys(key.framework for key in cell.keys)),
        points=list(dict.fromkeys(key.point for key in cell.keys)),
    )
    if selection is None:
        return replace(row, why=_why_no_numbers(cell, results, seeds), paper=paper_metrics(study, cell.key))
    first_run = next(iter(selection.runs.values()))
    all_domains = shared_settings()["datasets"][cell.key.dataset]["domains"]
    domains = [name for name in all_domains if name in first_run.clients]
    names = [*domains, *(name for name in first_run.metrics if name not in domains)]
    return replace(
        row,
        metrics=shared_intervals([run.metrics for _, run in sorted(selection.runs.items())], names),
        paper=paper_metrics(study, cell.key, domains),
        radius=selection.radius,
        chosen_by=selection.selected_on,
        grid=[_grid_entry(selection, radius) for radius in selection.grid],
        privacy=first_run.privacy_statement,
    )


def _why_no_numbers(cell: StudyCell, results: StudyResults, seeds: Sequence[int]) -> str:
    """Why a cell has no numbers: a missing input, or the error of its first failed run."""
    if cell.why_not is not None:
        return cell.why_not
    errors = (results.errors.get(cell.config_hash(radius, seed)) for radius in cell.radii for seed in seeds)
    return next((error for error in errors if error is not None), "some of its runs are missing")


def _grid_entry(selection: SelectedClipNorm, radius: float | None) -> GridEntry:
    runs = selection.grid[radius]
    validated = all(run.validation_accuracy is not None for run in runs.values())
    return GridEntry(
        radius=radius,
        chosen=radius == selection.radius,
        validation=mean_score(runs, "validation", "avg") if validated else None,
        metrics=shared_intervals([run.metrics for _, run in sorted(runs.items())]),
    )


def _paired_differences(study: Study, cell: StudyCell, selections: CellSelections) -> list[PairedDifference]:
    """The differences whose first method is the cell's, for each of its keys."""
    differences = []
    for key in cell.keys:
        for pair in study.pairs:
            if pair.first != key.method:
                continue
            other_key = replace(key, method=pair.second)
            first, second = _find_selection(selections, key), _find_selection(selections, other_key)
            if first is not None and second is not None:
                differences.append(_paired_difference(study, key, other_key, first, second))
    return [difference for difference in differences if difference is not None]


def _find_selection(selections: CellSelections, key: CellKey) -> SelectedClipNorm | None:
    return next((selection for cell, selection in selections if key in cell.keys), None)


def _paired_difference(
    study: Study, key: CellKey, other_key: CellKey, first: SelectedClipNorm, second: SelectedClipNorm
) -> PairedDifference | None:
    """First minus second over the same seeds; None where neither run has the study's metric."""
    values = [
        first.runs[seed].metrics[study.metric] - second.runs[seed].metrics[study.metric]
        for seed in sorted(first.runs)
        if study.metric in first.runs[seed].metrics and study.metric in second.runs[seed].metrics
    ]
    if not values:
        return None
    clients = next(iter(first.runs.values())).clients
    papers = [paper_metrics(study, each, clients).get(study.metric) for each in (key, other_key)]
    return PairedDifference(
        dataset=key.dataset,
        framework=key.framework,
        point=key.point,
        first=key.method,
        second=other_key.method,
        ours=interval(values),
        paper=None if papers[0] is None or papers[1] is None else papers[0] - papers[1],
    )


def verdict_for_value(ours: IntervalData, paper: float | None, tolerance: float, contrast: Contrast | None) -> str:
    """Compare an interval with the paper's number; the contrast decides if they differ."""
    if paper is None:
        return NOT_IN_PAPER
    gap, std = abs(ours["mean"] - paper), ours["std"]
    if std is not None and gap <= std:
        return f"{AGREES} (within 1 std over seeds)"
    if gap <= tolerance:
        return f"{AGREES} (within {tolerance:g})"
    if contrast is not None and contrast.same_sign:
        return f"{AGREES_IN_SIGN} ({describe_interval(contrast.ours)})"
    return DIFFERS


def verdict_for_contrast(contrast: Contrast | None) -> str:
    """Compare a difference with the paper's by its sign."""
    if contrast is None:
        return NOT_IN_PAPER
    return f"{AGREES_IN_SIGN if contrast.same_sign else DIFFERS} ({describe_interval(contrast.ours)})"


def describe_interval(ours: IntervalData) -> str:
    """Whether the interval of a difference excludes zero."""
    low, high = ours["low"], ours["high"]
    if low is None or high is None:
        return "one seed: no interval"
    return "interval excludes zero" if low > 0 or high < 0 else "interval includes zero"


def _with_row_verdict(
    study: Study, options: ReproduceOptions, row: SummaryRow, pairs: Sequence[PairedDifference]
) -> SummaryRow:
    ours, paper = row.metrics.get(study.metric), row.paper.get(study.metric)
    if row.why is not None or ours is None:
        reason = row.why if row.why is not None else _NOT_MEASURED_REASONS.get(study.reader, "nothing measured")
        return replace(row, verdict=f"{NOT_RUN} ({reason})")
    method = study.headline if row.method == study.base else row.method
    contrasts = [
        pair.contrast
        for pair in pairs
        if (pair.dataset, pair.first, pair.second) == (row.dataset, method, study.base)
        and pair.framework in row.frameworks
        and pair.point in row.points
    ]
    verdict = verdict_for_value(ours, paper, study.tolerance, contrasts[0] if contrasts else None)
    differences = _setting_differences(options, row.dataset, row.metrics)
    return replace(
        row,
        difference=None if paper is None or options.smoke else ours["mean"] - paper,
        verdict=_qualify_verdict(verdict, paper, differences),
    )


def _with_pair_verdict(options: ReproduceOptions, pair: PairedDifference) -> PairedDifference:
    verdict = verdict_for_contrast(pair.contrast)
    differences = _setting_differences(options, pair.dataset)
    return replace(pair, verdict=_qualify_verdict(verdict, pair.paper, differences))


def _setting_differences(
    options: ReproduceOptions, dataset: str, metrics: Mapping[str, object] | None = None
) -> list[str]:
    """How the setting of a row differs from the paper's; the domains that were run are among its metrics."""
    if options.smoke:
        return ["smoke"]
    expected = shared_settings()["datasets"][dataset]
    backbone = options.backbone_for(dataset)
    differences = [] if backbone == expected["backbone"] else [f"other backbone ({backbone})"]
    ignored = ["run.measure_every="]  # changes no result
    domains = [name for name in expected["domains"] if name in (metrics or {})]
    if domains and len(domains) < len(expected["domains"]):
        differences.append(f"{len(domains)} of {len(expected['domains'])} domains")
        ignored.append("benchmark.domains=")
    if any(not setting.startswith(tuple(ignored)) for setting in options.settings):
        differences.append("changed settings")
    return differences


def _qualify_verdict(verdict: str, paper: float | None, differences: Sequence[str]) -> str:
    """Add the differences of the setting to a verdict; a smoke run has no verdict."""
    if paper is None or not differences:
        return verdict
    return SMOKE_VERDICT if differences == ["smoke"] else f"{verdict}; {', '.join(differences)}"


def page_title(summary: StudySummary) -> str:
    """The title, marked for smoke runs."""
    mark = "SMOKE: " if summary["smoke"] else ""
    return f"{mark}{summary['title']} ({summary['paper']})"


def label_headings(summary: StudySummary) -> list[str]:
    """The headings of the label columns."""
    has_points = any(row["points"] != [""] for row in summary["lines"])
    return ["framework", "method", *(["point"] if has_points else [])]


def row_labels(summary: StudySummary, row: RowData) -> list[str]:
    """The labels of a row: framework, method and, where the study has points, its point."""
    labels = [framework_label(summary, row), method_label(row["method"])]
    if len(label_headings(summary)) == len(labels):
        return labels
    points = {point for each in summary["lines"] for point in each["points"]}
    return [*labels, "all" if len(row["points"]) == len(points) > 1 else "; ".join(row["points"])]


def framework_label(summary: StudySummary, row: RowData) -> str:
    """The names of a row's frameworks; a dash if the row holds for all of several frameworks."""
    if len(summary["frameworks"]) > 1 and len(row["frameworks"]) == len(summary["frameworks"]):
        return DASH
    return ", ".join(framework_name(name) for name in row["frameworks"])


def framework_name(framework: str) -> str:
    """The display name of a framework."""
    name: str = shared_settings()["names"]["frameworks"].get(framework, framework)
    return name


def method_label(method: str) -> str:
    """The display name of a method."""
    name: str = shared_settings()["names"]["methods"].get(method, method)
    return name


def metric_names(rows: Sequence[RowData]) -> list[str]:
    """The metrics of these rows, ours and the paper's, without values by round (`name@round`)."""
    names = (name for row in rows for name in (*row["metrics"], *row["paper"]))
    return [name for name in dict.fromkeys(names) if "@" not in name]


def metric_headings(names: Sequence[str]) -> list[str]:
    """The headings of the metric columns."""
    return [_METRIC_HEADINGS.get(name, name) for name in names]
