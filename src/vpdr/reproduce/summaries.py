"""The summary of a study: rows, paired differences and verdicts, as one JSON object; and its labels.

A row is one cell: the metrics at the selected R, the whole grid of R, and the paper's numbers. Verdicts
follow one rule (`VERDICT_RULE`), which is printed on every page.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vpdr.report.format import DASH, mean_in_unit, number_in_unit, signed_in_unit
from vpdr.report.stats import Interval, interval, shared_intervals
from vpdr.reproduce.metrics import paper_metrics
from vpdr.reproduce.run import SelectedClipNorm, StudyResults, mean_score, select_clip_norm
from vpdr.reproduce.studies import ReproduceOptions, Study, StudyCell, shared_settings

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

CellSelections = Sequence[tuple[StudyCell, SelectedClipNorm | None]]


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference between two methods: ours as an interval over seeds, and the paper's."""

    ours: Interval
    paper: float

    @property
    def same_sign(self) -> bool:
        """Whether both differences have the same sign; zero has none."""
        return self.ours.mean * self.paper > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GridEntry:
    """One R of a row's grid: its validation accuracy and its metrics on the test set."""

    radius: float | None
    chosen: bool
    validation: float | None
    metrics: Mapping[str, Interval]


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryRow:
    """One row of a table; the fields are the keys of its JSON object."""

    dataset: str
    method: str
    frameworks: tuple[str, ...]
    points: tuple[str, ...]
    why: str | None  # why there are no numbers
    metrics: Mapping[str, Interval]  # at the selected R
    paper: Mapping[str, float]
    radius: float | None
    chosen_by: str | None = None  # the split on which R was selected
    grid: tuple[GridEntry, ...]
    privacy: str | None = None  # the privacy statement of the runs
    difference: float | None  # ours minus the paper's
    verdict: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedDifference:
    """The difference of two methods over the same seeds; the fields are the keys of its JSON object."""

    dataset: str
    framework: str
    point: str
    first: str
    second: str
    ours: Interval
    paper: float | None
    verdict: str

    @property
    def contrast(self) -> Contrast | None:
        return None if self.paper is None else Contrast(self.ours, self.paper)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetSummary:
    """A data set of a study; without given data, backbone and adapters are None."""

    adapters: str | None = ""  # absent in older summaries
    title: str
    given: bool
    backbone: str | None
    paper_backbone: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperClaim:
    """A claim of the paper that is no table entry, beside ours."""

    claim: str
    paper: str
    ours: str
    verdict: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreScatter:
    """The points of a score correlation: one per coordinate of a client's features after a round."""

    round: int
    client: str
    scores: tuple[float, ...]
    information: tuple[float, ...]
    saturated: float  # share of scores at the cap
    pearson: float | None
    spearman: float | None
    pearson_capped: float | None
    spearman_capped: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TsneMap:
    """The t-SNE map of a client's test features after a round."""

    round: int
    client: str
    points: tuple[tuple[float, ...], ...]
    labels: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StudySummary:
    """The content of `ID.json`; docs/record.md explains the fields."""

    schema: str = SCHEMA
    version: int = VERSION
    id: str
    title: str
    paper: str
    kind: str
    columns: str
    metric: str
    unit: str
    smoke: bool
    seeds: tuple[int, ...]
    radii: tuple[float, ...]
    methods: tuple[str, ...]
    frameworks: tuple[str, ...]
    datasets: Mapping[str, DatasetSummary]
    settings: tuple[str, ...]
    rule: str
    notes: tuple[str, ...]
    lines: tuple[SummaryRow, ...]
    pairs: tuple[PairedDifference, ...]
    versions: Mapping[str, str]
    wall_seconds: float
    parts_ms: Mapping[str, float] | None = None  # this and the next three are the data of figures
    claims: tuple[PaperClaim, ...] | None = None
    scatters: tuple[ScoreScatter, ...] | None = None
    maps: tuple[TsneMap, ...] | None = None


def summarise_study(
    study: Study, options: ReproduceOptions, cells: Sequence[StudyCell], results: StudyResults
) -> StudySummary:
    """The summary of a study, without the data of its figure."""
    seeds = options.seeds_for(study)
    selections = [(cell, select_clip_norm(cell, results.metrics, seeds, options.select)) for cell in cells]
    pairs = _paired_differences(study, options, selections)
    rows = [_make_row(study, options, cell, selection, pairs, results) for cell, selection in selections]
    unit = {"%": " points"}.get(study.unit, f" {study.unit}".rstrip())
    rule = VERDICT_RULE.format(tolerance=f"{study.tolerance:g}{unit}", base=study.base, headline=study.headline)
    point_notes = [f"Only these points were asked for: {'; '.join(options.points)}."] if options.points else []
    datasets = {}
    for name in study.datasets:
        dataset, given = shared_settings()["datasets"][name], name in options.data_dirs
        title = dataset["title"]
        datasets[name] = DatasetSummary(
            adapters=options.adapters_for(name) if given else None,
            title=title if given or not options.smoke else f"{title} (embedded digits instead)",
            given=given,
            backbone=options.backbone_for(name) if given else None,
            paper_backbone=dataset["backbone"],
        )
    return StudySummary(
        id=study.id,
        title=study.title,
        paper=study.paper,
        kind=study.kind,
        columns=study.columns,
        metric=study.metric,
        unit=study.unit,
        smoke=options.smoke,
        seeds=seeds,
        radii=options.radii_for(study),
        methods=study.methods,
        frameworks=study.frameworks,
        datasets=datasets,
        settings=tuple(options.settings),
        rule=rule,
        notes=(*study.notes, *point_notes),
        lines=tuple(rows),
        pairs=tuple(pairs),
        versions=next((run.versions for run in results.metrics.values()), {}),
        wall_seconds=sum(run.wall_seconds for run in results.metrics.values()),
    )


def _paired_differences(study: Study, options: ReproduceOptions, selections: CellSelections) -> list[PairedDifference]:
    """First minus second over the same seeds, for every pair of methods; left out where none has the study's metric."""
    by_key = {key: selection for cell, selection in selections for key in cell.keys}
    differences = []
    for key, (method, other) in itertools.product(by_key, study.pairs):
        other_key = replace(key, method=other)
        first, second = by_key[key], by_key.get(other_key)
        if method != key.method or first is None or second is None:
            continue
        measured = [(first.runs[seed].metrics, second.runs[seed].metrics) for seed in sorted(first.runs)]
        values = [a[study.metric] - b[study.metric] for a, b in measured if study.metric in a and study.metric in b]
        if not values:
            continue
        clients = next(iter(first.runs.values())).clients
        papers = [paper_metrics(study, each, clients).get(study.metric) for each in (key, other_key)]
        difference = PairedDifference(
            dataset=key.dataset,
            framework=key.framework,
            point=key.point,
            first=key.method,
            second=other_key.method,
            ours=interval(values),
            paper=None if papers[0] is None or papers[1] is None else papers[0] - papers[1],
            verdict="",
        )
        setting = _setting_differences(options, key.dataset)
        verdict = _qualify_verdict(verdict_for_contrast(difference.contrast), difference.paper, setting)
        differences.append(replace(difference, verdict=verdict))
    return differences


def _make_row(
    study: Study,
    options: ReproduceOptions,
    cell: StudyCell,
    selection: SelectedClipNorm | None,
    pairs: Sequence[PairedDifference],
    results: StudyResults,
) -> SummaryRow:
    row = SummaryRow(
        dataset=cell.key.dataset,
        method=cell.key.method,
        frameworks=tuple(dict.fromkeys(key.framework for key in cell.keys)),
        points=tuple(dict.fromkeys(key.point for key in cell.keys)),
        why=None,
        metrics={},
        paper={},
        radius=None,
        grid=(),
        difference=None,
        verdict="",
    )
    if selection is None:
        seeds = options.seeds_for(study)
        errors = (results.errors.get(cell.config_hash(radius, seed)) for radius in cell.radii for seed in seeds)
        error = next((error for error in errors if error is not None), "some of its runs are missing")
        why = error if cell.why_not is None else cell.why_not
        return replace(row, why=why, paper=paper_metrics(study, cell.key), verdict=f"{NOT_RUN} ({why})")
    first_run = next(iter(selection.runs.values()))
    all_domains = shared_settings()["datasets"][row.dataset]["domains"]
    domains = [name for name in all_domains if name in first_run.clients]
    names = [*domains, *(name for name in first_run.metrics if name not in domains)]
    grid = []
    for radius, runs in selection.grid.items():
        validated = all(run.validation_accuracy is not None for run in runs.values())
        score = mean_score(runs, "validation", "avg") if validated else None
        metrics = shared_intervals([run.metrics for _, run in sorted(runs.items())])
        grid.append(GridEntry(radius=radius, chosen=radius == selection.radius, validation=score, metrics=metrics))
    row = replace(
        row,
        metrics=shared_intervals([run.metrics for _, run in sorted(selection.runs.items())], names),
        paper=paper_metrics(study, cell.key, domains),
        radius=selection.radius,
        chosen_by=selection.selected_on,
        grid=tuple(grid),
        privacy=first_run.privacy_statement,
    )
    ours, paper = row.metrics.get(study.metric), row.paper.get(study.metric)
    if ours is None:
        return replace(row, verdict=f"{NOT_RUN} ({_NOT_MEASURED_REASONS.get(study.reader, 'nothing measured')})")
    method = study.headline if row.method == study.base else row.method
    contrasts = [
        pair.contrast
        for pair in pairs
        if (pair.dataset, pair.first, pair.second) == (row.dataset, method, study.base)
        and pair.framework in row.frameworks
        and pair.point in row.points
    ]
    verdict = verdict_for_value(ours, paper, study.tolerance, contrasts[0] if contrasts else None)
    return replace(
        row,
        difference=None if paper is None or options.smoke else ours.mean - paper,
        verdict=_qualify_verdict(verdict, paper, _setting_differences(options, row.dataset, row.metrics)),
    )


def verdict_for_value(ours: Interval, paper: float | None, tolerance: float, contrast: Contrast | None) -> str:
    """Compare an interval with the paper's number; the contrast decides if they differ."""
    if paper is None:
        return NOT_IN_PAPER
    gap, std = abs(ours.mean - paper), ours.std
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


def describe_interval(ours: Interval) -> str:
    """Whether the interval of a difference excludes zero."""
    low, high = ours.low, ours.high
    if low is None or high is None:
        return "one seed: no interval"
    return "interval excludes zero" if low > 0 or high < 0 else "interval includes zero"


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
    mark = "SMOKE: " if summary.smoke else ""
    return f"{mark}{summary.title} ({summary.paper})"


def comparison_cells(summary: StudySummary, row: SummaryRow) -> list[str]:
    """The paper's number, ours, their difference, and the verdict."""
    unit, metric = summary.unit, summary.metric
    paper, ours = number_in_unit(row.paper.get(metric), unit), mean_in_unit(row.metrics.get(metric), unit)
    return [paper, ours, signed_in_unit(row.difference, unit), row.verdict]


def label_headings(summary: StudySummary) -> list[str]:
    """The headings of the label columns."""
    has_points = any(row.points != ("",) for row in summary.lines)
    return ["framework", "method", *(["point"] if has_points else [])]


def row_labels(summary: StudySummary, row: SummaryRow) -> list[str]:
    """The labels of a row: framework, method and, where the study has points, its point."""
    labels = [framework_label(summary, row), method_label(row.method)]
    if len(label_headings(summary)) == len(labels):
        return labels
    points = {point for each in summary.lines for point in each.points}
    return [*labels, "all" if len(row.points) == len(points) > 1 else "; ".join(row.points)]


def framework_label(summary: StudySummary, row: SummaryRow) -> str:
    """The names of a row's frameworks; a dash if the row holds for all of several frameworks."""
    if len(summary.frameworks) > 1 and len(row.frameworks) == len(summary.frameworks):
        return DASH
    return ", ".join(framework_name(name) for name in row.frameworks)


def framework_name(framework: str) -> str:
    """The display name of a framework."""
    return str(shared_settings()["names"]["frameworks"].get(framework, framework))


def method_label(method: str) -> str:
    """The display name of a method."""
    return str(shared_settings()["names"]["methods"].get(method, method))


def metric_names(rows: Sequence[SummaryRow]) -> list[str]:
    """The metrics of these rows, ours and the paper's, without values by round (`name@round`)."""
    names = (name for row in rows for name in (*row.metrics, *row.paper))
    return [name for name in dict.fromkeys(names) if "@" not in name]


def metric_headings(names: Sequence[str]) -> list[str]:
    """The headings of the metric columns."""
    return [_METRIC_HEADINGS.get(name, name) for name in names]
