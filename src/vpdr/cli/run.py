"""`vpdr run`: one run, or a comparison of several."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr.cli.interrupt import Interrupt
from vpdr.cli.printing import print_json
from vpdr.cli.progress import RunProgress, SweepProgress
from vpdr.cli.results import tell_comparison, tell_run
from vpdr.engines.runner import Company, run_plan
from vpdr.engines.sweep import Done, jobs_of, sweep
from vpdr.errors import InvalidInput
from vpdr.files import write_atomically
from vpdr.plan import Experiment, load_experiment
from vpdr.plan.experiment import Wishes
from vpdr.records.store import json_bytes
from vpdr.report.html import page, single_page
from vpdr.report.summary import SUMMARY_VERSION, summarise_runs
from vpdr.report.tables import comparison_rows, csv_text, markdown


def run(  # noqa: PLR0913 - one parameter per option of the command
    source: Annotated[
        str, typer.Argument(metavar="[NAME|FILE]", help="paper, authors, strict, quickstart, or a TOML file.")
    ] = "paper",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="0..4, 3 or 0,2,5: one run for each.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Arms to compare, such as local,none,igpp,vpdr,vpdr-random,strict.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the results; runs/NAME if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in --out stopped.")] = False,
    jobs: Annotated[int, typer.Option(help="Runs at the same time; 0 is one a core.", min=0)] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Run a plan and leave a record; with several seeds or methods, compare them."""
    wishes = Wishes(settings=settings or (), seeds=seeds, methods=methods)
    experiment = load_experiment(source, wishes)
    folder = _folder(out, experiment, resume)
    show = not quiet and not as_json
    with Interrupt() as interrupt:
        if experiment.single:
            _single(experiment, folder, interrupt, resume=resume, show=show, as_json=as_json)
        else:
            _comparison(experiment, folder, interrupt, resume=resume, show=show, as_json=as_json, jobs=jobs)


def _folder(out: Path | None, experiment: Experiment, resume: bool) -> Path:
    """Where results go: what the user says, or the next free name under runs/."""
    if out is not None and not str(out).strip("."):
        raise InvalidInput("--out must name a folder, got nothing; leave it out for runs/NAME")
    if out is not None:
        return out
    base = Path("runs") / experiment.name
    if resume:
        return base
    free, number = base, 2
    while free.exists():
        free, number = base.with_name(f"{base.name}-{number}"), number + 1
    return free


def _single(
    experiment: Experiment, folder: Path, interrupt: Interrupt, *, resume: bool, show: bool, as_json: bool
) -> None:
    plan = experiment.arms[0].seeded(experiment.seeds[0])
    with RunProgress(plan.run.rounds, show=show) as progress:
        company = Company(
            loading=progress.loading, watchers=[progress.after_round], stop=lambda: interrupt.asked
        )
        outcome = run_plan(plan, folder, resume=resume, company=company)
    if outcome.record is None:
        raise _stopped(f"after round {outcome.done}", folder)
    write_atomically(folder / "report.html", single_page(outcome.record).encode())
    if as_json:
        print_json({**outcome.record, "out": str(folder)})
    elif show:
        tell_run(outcome.record, folder)


def _comparison(  # noqa: PLR0913 - the flags of the command travel together
    experiment: Experiment,
    folder: Path,
    interrupt: Interrupt,
    *,
    resume: bool,
    show: bool,
    as_json: bool,
    jobs: int,
) -> None:
    if not resume and (folder / "summary.json").exists():
        raise InvalidInput(f"{folder} already holds a comparison; add --resume, or choose another --out")
    todo = jobs_of(experiment, folder)
    finished: list[Done] = []
    with SweepProgress(todo[0].plan, len(todo), show=show) as progress:
        workers = min(jobs or os.cpu_count() or 1, len(todo))
        for done in sweep(todo, workers=workers, resume=resume, stop=lambda: interrupt.asked):
            finished.append(done)
            progress.after_run(done)
    if len(finished) < len(todo) or any(done.record is None for done in finished):
        raise _stopped(f"after {len(finished)} of {len(todo)} runs", folder)
    summary = _summarised(experiment, finished, folder)
    if as_json:
        print_json({**summary, "out": str(folder)})
    elif show:
        tell_comparison(summary, folder)


def _summarised(experiment: Experiment, finished: list[Done], folder: Path) -> dict[str, Any]:
    """Write what all runs say together."""
    order = {(arm.setting, arm.method): place for place, arm in enumerate(experiment.arms)}
    finished.sort(key=lambda done: (order[done.job.setting, done.job.method], done.job.plan.run.seed))
    runs = [(done.job.setting, done.job.method, done.record or {}) for done in finished]
    summary: dict[str, Any] = {
        "schema": "vpdr-summary",
        "version": SUMMARY_VERSION,
        "name": experiment.name,
        "title": experiment.title,
        "seeds": list(experiment.seeds),
        "baseline": experiment.baseline,
        "settings": summarise_runs(runs, experiment.baseline),
    }
    for setting, content in summary["settings"].items():
        table = comparison_rows(content, experiment.baseline)
        name = f"table-{setting}" if setting else "table"
        write_atomically(folder / f"{name}.csv", csv_text(table).encode())
        write_atomically(folder / f"{name}.md", markdown(table).encode())
    html = page(
        experiment.title, experiment.name, experiment.seeds, experiment.baseline, summary["settings"], runs
    )
    write_atomically(folder / "report.html", html.encode())
    write_atomically(folder / "summary.json", json_bytes(summary))
    return summary


def _stopped(when: str, folder: Path) -> typer.Exit:
    sys.stderr.write(f"stopped {when}; the same command with --resume --out {folder} goes on\n")
    return typer.Exit(130)
