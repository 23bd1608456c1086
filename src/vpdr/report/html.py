"""The report of a run or a comparison: one HTML file, tables as CSV and Markdown, and summary.json."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from vpdr.config import Experiment
from vpdr.io import dump_toml, json_bytes, write_atomically
from vpdr.records import RECONSTRUCTIONS_DIR, AttackResult, ReconstructionStore, RunRecord, file_mode, flatten
from vpdr.report import figures, findings, stats, tables
from vpdr.report.figures import MethodStyles, captioned_figure
from vpdr.report.format import ATTACK_TITLES, UNNAMED_METHOD, count_noun, duration, seeds_text
from vpdr.report.stats import ALL_CLASSES, ComparisonSummary, LabelledRun, RecordsByMethod, SettingSummary

SECTION_LINKS = {"guarantee": "Guarantee", "plans": "Plans", "rerun": "Run it again", "glossary": "Glossary"}
ACCURACY_NOTE = "Accuracies are means over clients and seeds ± half of the 95 % interval over seeds."
CHANCE_NOTE = (
    "Chance is what the same scores give under permuted labels (membership), or what the reconstructions "
    "give if each is taken for another class's. The interval is how far chance alone scatters around it."
)
ADVERSARY_ENCODERS = {
    "client": "The adversary has the client's own encoder, which never leaves the client: the paper's "
    "assumption, stronger than any server.",
    "initial": "The adversary has the initial encoder, which everybody knows: what a server has.",
}
INFINITE_NOTE = "Releases whose noise-to-signal ratio is infinite, left out of its mean:"
RECONSTRUCTIONS_CAPTION = "Reconstructions of the last attacked round: a row for each client, a column for each class."
GLOSSARY = {
    "Own classes": "test samples of the classes that a client has trained on, the paper's protocol.",
    "All classes": "the whole test set of a client, with the classes that it has never seen.",
    "Nearest shared prototype": (
        "a sample gets the class of the shared prototype with the largest cosine similarity. It shows what "
        "the exchanged prototypes themselves are worth, without any client's own classifier."
    ),
    "Noise-to-signal": (
        "expected norm of the noise over the norm of what is released: the median over prototypes, then the "
        "mean over clients and rounds. Above 1 the noise is the larger part. It is infinite where most "
        "released vectors belong to classes that the client lacks; such releases are counted and left out."
    ),
    "relMSE": (
        "squared error of the released prototypes over the spread between classes. 0 is perfect; 1 is what "
        "one constant vector for all classes would score; far above 1 is noise."
    ),
    "Overlap and chance": (
        "share of the selected dimensions that are truly the most discriminative, beside the share that a "
        "random choice would hit."
    ),
    "Interval": "95 % t-interval over seeds; for a difference, over the differences at equal seeds.",
    "ε, δ": "what all releases of a client together may reveal about one sample; smaller is stricter.",
}
TEMPLATES = Environment(
    loader=PackageLoader("vpdr.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def write_run_report(record: RunRecord, directory: Path) -> None:
    """Write report.html of one run; with reconstructions in its directory only the owner may read the page."""
    sheets = [path.read_bytes() for path in ReconstructionStore(directory).contact_sheets()[-1:]]
    mode = 0o600 if sheets else file_mode(record)
    write_atomically(directory / "report.html", run_page(record, sheets).encode(), mode=mode)


def write_attack_figures(attacks: Mapping[str, AttackResult], directory: Path) -> None:
    """Write the ROC curves of the attacks on one run, readable by the owner only."""
    if "mia" in attacks and attacks["mia"].roc:
        target = directory / RECONSTRUCTIONS_DIR
        target.mkdir(exist_ok=True)
        figure = figures.plot_roc(attacks["mia"])
        svg = figures.inline_svg(figure, "roc", "ROC curves of the membership attackers")
        write_atomically(target / "roc.svg", svg.encode(), mode=0o600)


def write_comparison_report(experiment: Experiment, runs: Sequence[LabelledRun], directory: Path) -> ComparisonSummary:
    """Write the tables (CSV and Markdown), report.html and, last, summary.json, which is returned."""
    order = {(each.scenario, each.method): index for index, each in enumerate(experiment.method_configs)}
    runs = sorted(runs, key=lambda run: (order[run[0], run[1]], run[2].seed))
    baseline, mode = experiment.baseline, file_mode(*(record for _, _, record in runs))
    settings = stats.summarise_runs(runs, baseline)
    for setting, content in settings.items():
        table = tables.comparison_table(content, baseline)
        name = f"table-{setting}" if setting else "table"
        write_atomically(directory / f"{name}.csv", table.to_csv().encode(), mode=mode)
        write_atomically(directory / f"{name}.md", table.to_markdown().encode(), mode=mode)
    page = comparison_page(experiment.title, experiment.name, experiment.seeds, baseline, settings, runs)
    write_atomically(directory / "report.html", page.encode(), mode=mode)
    summary = ComparisonSummary(
        name=experiment.name, title=experiment.title, seeds=experiment.seeds, baseline=baseline, settings=settings
    )
    write_atomically(directory / "summary.json", json_bytes(summary), mode=mode)
    return summary


def comparison_page(
    title: str,
    name: str,
    seeds: Sequence[int],
    baseline: str | None,
    summary: Mapping[str, SettingSummary],
    runs: Sequence[LabelledRun],
) -> str:
    """The HTML page of a comparison; `summary` is made by `summarise_runs`. The same runs give the same bytes."""
    settings = stats.group_by_setting(runs)
    baseline = baseline if any(baseline in methods for methods in settings.values()) else None
    styles = figures.method_styles(list(dict.fromkeys(method for _, method, _ in runs)), baseline)
    records = [record for _, _, record in runs]
    first_configs = {setting: next(iter(methods.values()))[0].plan for setting, methods in settings.items()}
    results = []
    for index, (setting, methods) in enumerate(settings.items()):
        id, content = f"setting-{index}", summary[setting]
        ratios = {method: stats.noise_to_signal_ratios(records) for method, records in methods.items()}
        infinite = [f"{m} {r.num_infinite} of {r.num_releases}" for m, r in ratios.items() if r.num_infinite]
        note = f"{INFINITE_NOTE} {', '.join(infinite)}." if infinite else ""
        results.append(
            {
                "id": id,
                "title": f"Setting “{setting}”" if setting else "Results",
                "changes": changed_settings(
                    first_configs[setting], [config for name, config in first_configs.items() if name != setting]
                ),
                "findings": list(findings.finding_sentences(content, baseline)),
                "table": tables.comparison_table(content, baseline),
                "note": f"{ACCURACY_NOTE} {note}".strip(),
                "figures": [
                    *figures.accuracy_figures(content, methods, baseline, styles, id),
                    *figures.noise_figures(methods, styles, id),
                ],
            }
        )
    return _render(
        title=title,
        description=findings.describe_comparison(summary, baseline, len(seeds), records),
        headline=findings.headline(summary, baseline),
        links={part["id"]: part["title"] for part in results} | SECTION_LINKS,
        results=results,
        settings=settings,
        styles=styles,
        baseline=baseline,
        command=f"vpdr run {name} --seeds {seeds_text(seeds)}",
        records=records,
    )


def run_page(record: RunRecord, sheets: Sequence[bytes] = ()) -> str:
    """The HTML page of one run, with the last of the contact sheets (PNG); the same record gives the same bytes."""
    runs, styles = {"": [record]}, figures.method_styles([""], None)
    rounds, clients = len(record.rounds), len(record.clients)
    drawn = figures.noise_figures(runs, styles, "run")
    if stats.accuracy_curve(record, ALL_CLASSES).rounds:
        caption = "Accuracy after each round; the thick line is the mean over clients."
        drawn.insert(0, captioned_figure(figures.plot_single_run(record), "rounds", caption))
    results = {
        "id": "results",
        "title": "Results",
        "changes": "",
        "findings": [],
        "table": tables.final_accuracy_table(record),
        "note": "",
        "figures": drawn,
    }
    attacks = []
    for kind, attack in (record.attacks or {}).items():
        attacked_rounds = ", ".join(str(each.round) for each in attack.rounds)
        caption = "ROC of the membership attackers: all classes of a client, mean over clients and rounds."
        attacks.append(
            {
                "title": ATTACK_TITLES.get(kind, kind),
                "description": f"{ADVERSARY_ENCODERS[attack.phi]} Rounds {attacked_rounds}.",
                "table": tables.attack_table(attack),
                "notes": [f"{note}." for note in tables.attack_notes(attack)],
                "roc": captioned_figure(figures.plot_roc(attack), "roc", caption) if attack.roc else None,
            }
        )
    attack_link = {"attacks": "Attacks"} if attacks else {}
    title = f" ({record.title})" if record.title else ""
    return _render(
        title=f"{record.name}, seed {record.seed}",
        description=f"One run of {rounds} rounds with {clients} clients{title}: {record.privacy.sentence}.",
        links={"results": "Results", **attack_link, **SECTION_LINKS, "ledger": "Ledgers"},
        results=[results],
        settings={"": runs},
        styles=styles,
        command="vpdr run plan.toml   # the file beside the record",
        records=[record],
        attacks=attacks,
        reconstructions=sheets[-1] if "fsh" in (record.attacks or {}) and sheets else None,
        ledgers=findings.ledger_tables(record),
    )


def _render(
    *,
    settings: Mapping[str, RecordsByMethod],
    styles: MethodStyles,
    records: Sequence[RunRecord],
    baseline: str | None = None,
    reconstructions: bytes | None = None,
    **content: Any,
) -> str:
    """Fill the template; adds the sections that both pages have."""
    png = None if reconstructions is None else base64.b64encode(reconstructions).decode()
    configs = []
    for setting, methods in settings.items():
        reference = [each[0].plan for method, each in methods.items() if method == baseline]
        for method, each in methods.items():
            config, title = each[0].plan, " / ".join(part for part in (setting, method) if part) or UNNAMED_METHOD
            configs.append({"title": title, "changes": changed_settings(config, reference), "toml": dump_toml(config)})
    versions: dict[str, dict[str, None]] = {}
    for record in records:
        for name, version in record.versions.items():
            versions.setdefault(name, {})[version] = None
    seconds = sum(record.wall_seconds for record in records)
    computing_time = f"{duration(seconds)} in {count_noun(len(records), 'run')}"
    context = {
        "headline": "",
        "attacks": [],
        "ledgers": {},
        "chance_note": CHANCE_NOTE,
        "reconstructions": png and {"png": png, "caption": RECONSTRUCTIONS_CAPTION},
        "guarantee": findings.guarantee_section(settings),
        "budget_figures": figures.budget_figures(settings, styles),
        "baseline": baseline,
        "configs": configs,
        "versions": {"Computing time": computing_time, **{name: " and ".join(v) for name, v in versions.items()}},
        "glossary": GLOSSARY,
    }
    return TEMPLATES.get_template("report.html.j2").render(context | content)


def changed_settings(config: Mapping[str, object], others: Sequence[Mapping[str, object]]) -> str:
    """The settings in which a configuration differs from any of the others, without the seed."""
    flat_others = [flatten(other) for other in others]
    return ", ".join(
        f"{key} = {value}"
        for key, value in flatten(config).items()
        if key != "run.seed" and any(other.get(key) != value for other in flat_others)
    )
