"""What a run or a comparison leaves for people: pages, tables, a summary."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vpdr.files import write_atomically
from vpdr.plan import Experiment
from vpdr.records.reconstructions import FOLDER, ReconstructionFolder
from vpdr.records.store import json_bytes, mode_of
from vpdr.report.attack_section import roc
from vpdr.report.figures import inline_svg
from vpdr.report.html import page, single_page
from vpdr.report.summary import SUMMARY_VERSION, summarise_runs
from vpdr.report.tables import comparison_rows, csv_text, markdown

Run = tuple[str, str, Mapping[str, Any]]  # setting, method, record


def write_run(record: Mapping[str, Any], folder: Path) -> None:
    """The page of one run, with the reconstructions that lie beside it; with them it is the owner's alone."""
    sheets = [path.read_bytes() for path in ReconstructionFolder(folder).sheets()[-1:]]
    mode = 0o600 if sheets else mode_of(record)
    write_atomically(folder / "report.html", single_page(record, sheets).encode(), mode=mode)


def write_attacks(attacks: Mapping[str, Any], folder: Path) -> None:
    """The figures of attacks on one run; reconstructions are there already."""
    if attacks.get("mia", {}).get("roc"):
        target = folder / FOLDER
        target.mkdir(exist_ok=True)
        svg = inline_svg(roc(attacks["mia"]), "roc", "ROC curves of the membership attackers")
        write_atomically(target / "roc.svg", svg.encode(), mode=0o600)


def write_comparison(experiment: Experiment, finished: Sequence[Run], folder: Path) -> dict[str, Any]:
    """The tables, the page and the summary of all runs together; the summary comes last and is given back."""
    order = {(arm.setting, arm.method): place for place, arm in enumerate(experiment.arms)}
    runs = sorted(finished, key=lambda run: (order[run[0], run[1]], run[2]["seed"]))
    baseline, mode = experiment.baseline, mode_of(*(run[2] for run in runs))
    settings = summarise_runs(runs, baseline)
    for setting, content in settings.items():
        table = comparison_rows(content, baseline)
        name = f"table-{setting}" if setting else "table"
        write_atomically(folder / f"{name}.csv", csv_text(table).encode(), mode=mode)
        write_atomically(folder / f"{name}.md", markdown(table).encode(), mode=mode)
    html = page(experiment.title, experiment.name, experiment.seeds, baseline, settings, runs)
    write_atomically(folder / "report.html", html.encode(), mode=mode)
    summary = {
        "schema": "vpdr-summary",
        "version": SUMMARY_VERSION,
        "name": experiment.name,
        "title": experiment.title,
        "seeds": list(experiment.seeds),
        "baseline": baseline,
        "settings": settings,
    }
    write_atomically(folder / "summary.json", json_bytes(summary), mode=mode)
    return summary
