"""One table type for the terminal, Markdown, CSV and HTML, and the tables that are built from results."""

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from vpdr.records import AttackMetric, AttackMetrics, AttackResult, RunRecord
from vpdr.report import format as fmt
from vpdr.report import stats
from vpdr.report.format import DASH
from vpdr.report.stats import ALL_CLASSES, FUSED, NEAREST_PROTOTYPE, OWN_CLASSES, paired_difference

COLUMN_GAP = 2  # spaces between two columns in the terminal
UNLIMITED_WIDTH = 100_000


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    key: str  # its name in a CSV file
    label: str  # the heading
    meaning: str = ""  # a tooltip in HTML
    parts: tuple[str, ...] = ()  # names of the raw numbers of a cell; a column with parts is right-aligned
    priority: int = 0  # 0 is always shown; in a narrow terminal the highest number is left out first
    wrap: bool = True  # whether cells may be broken over several lines in the terminal


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a cell, and its raw values (one for each CSV column)."""

    text: str
    values: tuple[float | str | None, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be rendered as text, Markdown, CSV and HTML.

    >>> table = Table.from_texts(["method", "accuracy"], [["local", "61.0"], ["vpdr", "64.2"]])
    >>> print(table.to_markdown(), end="")
    | method | accuracy |
    | --- | --- |
    | local | 61.0 |
    | vpdr | 64.2 |
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""

    @classmethod
    def from_texts(
        cls, labels: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", wrap_first: bool = True
    ) -> "Table":
        """A table of left-aligned texts; the headings are also the CSV names. `wrap_first`: see `Column.wrap`."""
        columns = tuple(Column(label, label, wrap=wrap_first or index > 0) for index, label in enumerate(labels))
        return cls(columns, tuple(tuple(Cell(text, (text,)) for text in row) for row in rows), title)

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> "Table":
        """A table of names and values, without headings."""
        columns = (Column("name", ""), Column("value", ""))
        return cls(columns, tuple((Cell(name, (name,)), Cell(text, (text,))) for name, text in fields.items()))

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(column.label for column in self.columns)

    def select_columns(self, keys: Sequence[str]) -> "Table":
        """The same table with some of its columns."""
        indices = [index for index, column in enumerate(self.columns) if column.key in keys]
        rows = tuple(tuple(row[index] for index in indices) for row in self.rows)
        return Table(tuple(self.columns[index] for index in indices), rows, self.title)

    def fit_to_width(self, width: int) -> "Table":
        """The table without the columns of lowest importance, as far as needed to fit into `width`."""
        widths = {
            column.key: max(len(column.label), *(len(row[index].text) for row in self.rows), 0)
            for index, column in enumerate(self.columns)
        }
        optional = sorted((c for c in self.columns if c.priority), key=lambda c: c.priority)
        while optional and sum(widths.values()) + COLUMN_GAP * (len(widths) - 1) > width:
            del widths[optional.pop().key]
        return self.select_columns(list(widths))

    def to_text(self, width: int | None = None) -> str:
        """The table for a terminal, without a newline at the end.

        Where `width` is given, columns with a priority are left out if they do not fit, and cells of the other
        columns are broken over several lines if needed.
        """
        fitted = self if width is None else self.fit_to_width(width)
        grid = RichTable(
            title=Text(self.title) if self.title else None,
            title_justify="left",
            show_header=any(self.labels),
            box=None,
            pad_edge=False,
        )
        for column in fitted.columns:
            grid.add_column(
                Text(column.label),
                justify="right" if column.parts else "left",
                overflow="fold",
                no_wrap=not column.wrap,
            )
        for row in fitted.rows:
            grid.add_row(*(Text(cell.text) for cell in row))
        text = io.StringIO()
        Console(file=text, width=width or UNLIMITED_WIDTH, color_system=None, soft_wrap=True).print(grid)
        if width is None:
            return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
        return text.getvalue().rstrip("\n")

    def to_markdown(self) -> str:
        """The table for a Markdown file; numeric columns are right-aligned."""
        texts = sum(not column.parts for column in self.columns)  # they come first
        return fmt.markdown_table(self.labels, [[cell.text for cell in row] for row in self.rows], texts)

    def to_csv(self) -> str:
        """The raw values (accuracies and differences as fractions of 1); missing values are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = ([f"{column.key}.{part}" for part in column.parts] or [column.key] for column in self.columns)
        writer.writerow(itertools.chain.from_iterable(names))
        writer.writerows([value for cell in row for value in cell.values] for row in self.rows)
        return text.getvalue()

    def to_html(self, css_class: str = "numbers") -> Markup:
        """The table for a web page, with escaped texts; the first column holds the headings of the rows."""
        head = Markup("").join(
            Markup('<th scope="col">{}</th>').format(
                Markup('<abbr title="{}">{}</abbr>').format(column.meaning, column.label)
                if column.meaning
                else column.label
            )
            for column in self.columns
        )
        rows = Markup("").join(
            Markup('<tr><th scope="row">{}</th>{}</tr>\n').format(
                first.text, Markup("").join(Markup("<td>{}</td>").format(cell.text) for cell in rest)
            )
            for first, *rest in self.rows
        )
        return Markup(
            '<div class="scroll" tabindex="0" role="region" aria-label="table"><table class="{}">\n'
            "<thead><tr>{}</tr></thead>\n<tbody>{}</tbody></table></div>"
        ).format(css_class, head, rows)


INTERVAL = ("mean", "low", "high")
LABEL_COLUMNS = (
    Column("method", "Method", "the method that is compared"),
    Column("epsilon", "ε budget", "what each client may spend over the whole run; a dash: no budget applies"),
    Column("level", "Guarantee", "how much the stated budget is worth, see “What the guarantee covers”"),
)
ACCURACY_COLUMNS = (
    Column(OWN_CLASSES, "Own classes, %", "accuracy of the framework's own predictor on a client's classes", INTERVAL),
    Column(ALL_CLASSES, "All classes, %", "accuracy of the framework's own predictor on all classes", INTERVAL),
    Column(NEAREST_PROTOTYPE, "Nearest prototype, %", "all classes, by the cosine-nearest shared prototype", INTERVAL),
    Column(FUSED, "Fused, %", "all classes, by the head and the shared prototypes together", INTERVAL),
)
DIAGNOSTIC_COLUMNS = (
    Column("noise_to_signal", "Noise / signal", "expected norm of the noise over that of the prototypes", INTERVAL),
    Column(
        "relative_error", "relMSE", "squared error of each client's last release; 1: what a constant scores", INTERVAL
    ),
    Column("overlap", "Overlap (chance)", "selected dimensions that are the true ones", ("mean", "chance")),
)


def comparison_table(setting: stats.SettingSummary, baseline: str | None) -> Table:
    """Accuracies, differences to the baseline and diagnostics of the releases of one setting, one row per method."""
    has_fused = any(FUSED in summary.metrics for summary in setting.methods.values())
    accuracies = [column for column in ACCURACY_COLUMNS if has_fused or column.key != FUSED]
    compared = [column.key for column in accuracies] if baseline in setting.methods else []
    difference_columns = [
        Column(
            f"difference.{metric}",
            f"{fmt.SHORT_METRIC_LABELS[metric].capitalize()} − {baseline}, points",
            "paired by seed, percentage points, 95 % interval; "
            f"minus {baseline}'s {'fused' if metric == FUSED else 'own predictor'}",
            INTERVAL,
        )
        for metric in compared
    ]
    rows = []
    for method, summary in setting.methods.items():
        metrics, privacy, level = summary.metrics, summary.privacy, fmt.level_label(summary.privacy)
        budget = privacy.epsilon_budget if stats.has_private_release(privacy) else None
        measured = [metrics.get(column.key) for column in accuracies]
        differences = [paired_difference(setting, method, baseline, metric) for metric in compared]
        ratio, error, overlap, chance = (
            metrics.get(name) for name in ("noise_to_signal", "relative_error", "overlap", "chance")
        )
        means = tuple(each.mean if each else None for each in (overlap, chance))
        chance_text = f"{chance.mean:.2f}" if chance else DASH
        rows.append(
            (
                Cell(fmt.method_name(method), (method,)),
                Cell(fmt.short_number(budget), (budget,)),
                Cell(level, (level,)),
                *(_interval_cell(fmt.mean_with_half_width(each), each) for each in measured),
                *(_interval_cell(fmt.points_with_interval(each), each) for each in differences),
                *(_interval_cell(fmt.three_digits(each.mean if each else None), each) for each in (ratio, error)),
                Cell(f"{overlap.mean:.2f} ({chance_text})" if overlap else DASH, means),
            )
        )
    return Table((*LABEL_COLUMNS, *accuracies, *difference_columns, *DIAGNOSTIC_COLUMNS), tuple(rows))


def _interval_cell(text: str, interval: stats.Interval | None) -> Cell:
    return Cell(text, (interval.mean, interval.low, interval.high) if interval else (None, None, None))


def short_comparison_table(setting: stats.SettingSummary, baseline: str | None, title: str = "") -> Table:
    """The columns of `comparison_table` that matter most, with short texts for a terminal."""
    columns = [
        Column("method", "method"),
        Column("epsilon", "ε", priority=2),
        Column("level", "guarantee", priority=5),
        Column(OWN_CLASSES, "own", parts=INTERVAL, priority=7),
        Column(ALL_CLASSES, "all", parts=INTERVAL, priority=1),
        Column(NEAREST_PROTOTYPE, "nearest", parts=INTERVAL, priority=6),
        Column(FUSED, "fused", parts=INTERVAL, priority=4),
        Column(f"difference.{ALL_CLASSES}", f"all − {baseline}", parts=INTERVAL, priority=3),
        Column("relative_error", "relMSE", parts=INTERVAL, priority=8),
    ]
    full = comparison_table(setting, baseline)
    available = {column.key: index for index, column in enumerate(full.columns)}
    columns = [column for column in columns if column.key in available]
    rows = []
    for (method, summary), row in zip(setting.methods.items(), full.rows, strict=True):
        cells = {key: row[index] for key, index in available.items()}
        level = summary.privacy.level if stats.has_release(summary.privacy) else DASH
        cells["level"] = Cell(level, cells["level"].values)
        difference = paired_difference(setting, method, baseline, ALL_CLASSES)
        text = fmt.mean_with_half_width(difference, fmt.signed_points)
        cells[f"difference.{ALL_CLASSES}"] = _interval_cell(text, difference)
        rows.append(tuple(cells[column.key] for column in columns))
    return Table(tuple(columns), tuple(rows), title)


def final_accuracy_table(record: RunRecord) -> Table:
    """Final accuracies in per cent by client, for every predictor on own and on all classes."""
    final = record.final
    keys = [(scope, name) for scope in ("own", "all") for name in stats.PREDICTORS if name in final.get(scope, {})]
    rows = [
        [client, *(fmt.percent(final[scope][name].clients.get(client)) for scope, name in keys)]
        for client in record.clients
    ]
    rows.append(["average", *(fmt.percent(final[scope][name].average) for scope, name in keys)])
    return Table.from_texts(["Client", *(f"{name.replace('_', ' ')}, {scope}, %" for scope, name in keys)], rows)


def short_accuracy_table(record: RunRecord) -> Table:
    """Final accuracies in per cent on own classes, and of the framework on all classes, for a terminal."""
    final = record.final
    columns = {label: final["own"][name] for name, label in fmt.PREDICTOR_LABELS.items() if name in final["own"]}
    columns["on all classes"] = final["all"]["framework"]
    rows = [
        [client, *(fmt.percent(column.clients.get(client), 2) for column in columns.values())]
        for client in record.clients
    ]
    rows.append(["average", *(fmt.percent(column.average, 2) for column in columns.values())])
    rows.append(["std over clients", *(fmt.percent(column.std, 2) for column in columns.values())])
    return Table.from_texts(["client", *columns], rows, wrap_first=False)


def attack_table(attack: AttackResult) -> Table:
    """Every metric of an attack, then those of the pooled classes and of the stronger adversaries."""
    summaries = {"": attack.summary, "all classes pooled": attack.pooled or {}}
    summaries |= {name: each.summary for name, each in (attack.stronger or {}).items()}
    rows = [
        [f"{fmt.ATTACK_METRIC_LABELS.get(metric, metric)}{f' ({name})' if name else ''}", *_attack_cells(value)]
        for name, summary in summaries.items()
        for metric, value in summary.items()
    ]
    labels = ["Metric", "Mean over rounds", "Std", "Chance", "Above chance", "95 % interval"]
    return Table.from_texts(labels, rows)


def short_attack_table(kind: str, attack: AttackResult) -> Table:
    """The metrics of an attack that matter most, for a terminal."""
    selected: dict[str, tuple[AttackMetrics, Sequence[str]]] = {"": (attack.summary, tuple(attack.summary))}
    selected["pooled"] = (attack.pooled or {}, ("auc", "tpr_at_1fpr"))
    for name, each in (attack.stronger or {}).items():
        selected[name] = (each.summary, ("auc", "advantage"))
    rows = [
        [
            f"{fmt.ATTACK_METRIC_LABELS.get(metric, metric)}{f', {name}' if name else ''}",
            *_attack_cells(summary[metric]),
        ]
        for name, (summary, metrics) in selected.items()
        for metric in metrics
        if metric in summary
    ]
    rounds = fmt.count_noun(len(attack.rounds), "round")
    title = f"{kind}, phi = {attack.phi}, {rounds}, {attack.seconds:.1f} s"
    labels = ["metric", "mean", "std", "chance", "above chance", "95 % interval"]
    return Table.from_texts(labels, rows, title=title)


def attack_notes(attack: AttackResult) -> list[str]:
    """Notes on metrics that have no meaning in this attack."""
    return [
        f"{fmt.ATTACK_METRIC_LABELS.get(name, name)}: {value.note}"
        for name, value in attack.summary.items()
        if value.note
    ]


def _attack_cells(value: AttackMetric) -> list[str]:
    ends = [fmt.attack_metric(end) for end in (value.low, value.high) if end is not None]
    numbers = [fmt.attack_metric(number) for number in (value.mean, value.std, value.null, value.corrected)]
    return [*numbers, " to ".join(ends) or DASH]
