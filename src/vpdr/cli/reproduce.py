"""`vpdr reproduce`, `vpdr list` and `vpdr results`: tables and figures of the paper."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from vpdr.attacks import parse_attack_config
from vpdr.cli import output
from vpdr.cli.run import Interrupt
from vpdr.federation.run import Job, JobResult
from vpdr.io import write_atomically
from vpdr.records import RunDir
from vpdr.report.tables import Table
from vpdr.reproduce import pages, studies, summaries
from vpdr.reproduce.reproduction import Reproduction, ReproductionResult, count_runs, run_reproduction
from vpdr.reproduce.run import ExecutionOptions
from vpdr.validation import InvalidInput

DEFAULT_OUT = Path("runs") / "reproduce"


def reproduce(  # noqa: PLR0913 - one parameter per option of the command
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="What to reproduce; prints the list if not given.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DIR", help="Directory of a data set, such as pacs=data/PACS. May be repeated."),
    ] = None,
    backbone: Annotated[
        list[str] | None, typer.Option(help="Backbone instead of the paper's; once for images, once for texts.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Weights of the backbone: a directory or a file.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds: 0..4, 3 or 0,2,5; those of the paper if not given.")] = None,
    points: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Run only these values of the table's axis, such as 'alpha=0.1*'."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory of all runs and pages.")] = DEFAULT_OUT,
    jobs: Annotated[int, typer.Option(help="Runs at the same time; 0 is one per core.", min=0)] = 0,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run a small version in minutes; its results are marked and not judged.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Device of encoders and reconstructions: cpu, cuda or cuda:N.")
    ] = None,
    adapters: Annotated[str | None, typer.Option(help="Where adapters are placed: last, blocks or all-blocks.")] = None,
    select: Annotated[
        str, typer.Option(help="The split on which the clip norm R is selected: validation or test.")
    ] = "validation",
    attack: Annotated[
        str | None, typer.Option(metavar="mia,fsh", help="Attacks to run, for tables with columns for attacks.")
    ] = None,
    attack_rounds: output.AttackRoundsOption = None,
    attack_steps: output.AttackStepsOption = 10_000,
    settings: output.SettingsOption = None,
    show_list: Annotated[bool, typer.Option("--list", help="Print what can be reproduced.")] = False,
    quiet: output.QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Reproduce a table or figure of the paper, and compare it with the published numbers.

    Runs that are finished are not run again, so the same command continues a stopped reproduction. Exit
    codes: 0 done, 1 some runs failed, 2 wrong input, 130 stopped.
    """
    if name is None or show_list:
        _print_ids(as_json=as_json)
        return
    attacks = None
    if attack is not None:
        attacks = parse_attack_config(attack, attack_rounds, steps=attack_steps, device=device or "cpu")
    options = studies.ReproduceOptions(
        attacks=attacks,
        data_dirs=studies.existing_data_dirs(data or ()),
        backbones=tuple(backbone or ()),
        weights=weights,
        adapters=adapters,
        device=device,
        seeds=seeds,
        settings=tuple(settings or ()),
        points=tuple(points or ()),
        smoke=smoke,
        select=select,
    )
    reproduction = Reproduction.from_id(name, options, out)
    num_runs, show = len(reproduction.jobs), not quiet and not as_json
    with Interrupt() as interrupt, StudyProgress(reproduction.study, num_runs, show=show) as progress:
        execution = ExecutionOptions(
            workers=jobs or os.cpu_count() or 1,
            loading=progress.update,
            on_existing_runs=progress.add_existing_runs,
            after_run=progress.after_run,
            stop=lambda: interrupt.requested,
        )
        result = run_reproduction(reproduction, execution)
    if result.summary is not None and as_json:
        failures = [_failure_data(each) for each in result.failures]
        output.print_json(result.summary, out=str(reproduction.output_dir), failed=failures)
    elif result.summary is not None and not quiet:
        print_study_summary(result.summary, reproduction.output_dir)
    _report_failures(reproduction, result)
    if result.stopped or result.failures:
        raise typer.Exit(130 if result.stopped else 1)


def _print_ids(*, as_json: bool) -> None:
    known = [studies.load_study(name) for name in studies.study_ids()]
    if as_json:
        ids = [
            {"id": s.id, "paper": s.paper, "title": s.title, "runs": count_runs(s), "data": s.datasets} for s in known
        ]
        output.print_json({"ids": ids, "datasets": studies.shared_settings()["datasets"]})
        return
    rows = [[s.id, s.paper, s.title, str(count_runs(s)), ", ".join(s.datasets)] for s in known]
    output.console.print(
        Table.from_texts(["id", "in the paper", "what", "runs", "data"], rows).to_text(output.console.width)
    )


def _failure_data(result: JobResult) -> dict[str, object]:
    job = result.job
    names = {"dataset": job.scenario, "method": job.method, "seed": job.config.run.seed}
    return {"run": job.config.config_hash, **names, "why": result.error, "folder": str(job.out)}


def _report_failures(reproduction: Reproduction, result: ReproductionResult) -> None:
    """Print failed runs on standard error, also with --quiet and --json."""
    num_runs = len(reproduction.jobs)
    lines = [f"failed: {failure_text(reproduction.study, each)}" for each in result.failures]
    if result.stopped:
        remaining = reproduction.remaining_runs
        lines.append(f"stopped with {remaining} of {num_runs} runs left; the same command goes on")
    elif result.failures:
        no_page = ", so no page is written" if result.summary is None else ""
        lines.append(f"{len(result.failures)} of {num_runs} runs failed{no_page}; the same command tries them again")
    sys.stderr.write("".join(f"{line}\n" for line in lines))


class StudyProgress(output.ProgressBars):
    """Progress of a reproduction: a bar on a terminal, otherwise one line per run."""

    def __init__(self, study: studies.Study, runs: int, *, show: bool) -> None:
        super().__init__(show=show)
        self._study, self._runs, self._done = study, runs, 0

    def add_existing_runs(self, count: int) -> None:
        """Count the runs that are finished already."""
        self._done = count
        if count:
            self._write_plain_line(f"{count} of {self._runs} runs were there already")
            self.update("runs", count, self._runs)

    def after_run(self, result: JobResult) -> None:
        """One run is finished, failed or stopped; a failure is printed at once."""
        if result.error is not None:
            self._write_plain_line(f"failed: {failure_text(self._study, result)}")
        if result.record is None:
            return
        self._done += 1
        label, seconds = run_label(self._study, result.job), result.record.wall_seconds
        self._write_plain_line(f"{self._done} of {self._runs} runs: {label}, {seconds:.1f} s")
        self.update("runs", self._done, self._runs, f"runs ({result.job.scenario} {result.job.method})")


def run_label(study: studies.Study, job: Job) -> str:
    """One run in words: `ablation office_caltech vpdr R=5 seed 1`."""
    config = job.config
    framework = [config.framework.kind] if len(study.frameworks) > 1 else []
    clip_norm = [f"R={config.mechanism.clip_norm:g}"] if studies.uses_clip_norm(config) else []
    return " ".join([study.id, job.scenario, *framework, job.method, *clip_norm, f"seed {config.run.seed}"])


def failure_text(study: studies.Study, result: JobResult) -> str:
    """Which run failed, why, and which file has the traceback."""
    path = RunDir(result.job.out).failure_path
    see = f" (see {path})" if path.exists() else ""
    return f"{run_label(study, result.job)}: {result.error}{see}"


def print_study_summary(summary: summaries.StudySummary, directory: Path) -> None:
    """Print the rows that have numbers beside those of the paper, what is missing, and where the page is."""
    metric, rows = summary.metric, []
    for line in summary.lines:
        if metric not in line.metrics:
            continue
        substituted = summary.smoke and not summary.datasets[line.dataset].given
        rows.append(
            [
                f"{line.dataset} (embedded digits)" if substituted else line.dataset,
                summaries.framework_label(summary, line),
                summaries.method_label(line.method),
                ", ".join(line.points),
                "" if line.radius is None else f"{line.radius:g}",
                *summaries.comparison_cells(summary, line),
            ]
        )
    labels = ["data", "framework", "method", "point", "R", f"paper {metric}", "ours", "difference", "verdict"]
    table = Table.from_texts(labels, rows, title=summaries.page_title(summary))
    output.console.print(table.to_text(output.console.width))
    for reason, missing in pages.missing_rows_by_reason(summary).items():
        output.console.print(f"{missing} rows: {reason}")
    page, data = directory / f"{summary.id}.md", directory / f"{summary.id}.json"
    output.console.print(f"page: {page}   summary: {data}")


def list_results(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The --out of vpdr reproduce.")] = DEFAULT_OUT,
    every: Annotated[bool, typer.Option("--runs", help="Also print one line per run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the state as one JSON object.")] = False,
) -> None:
    """Show which reproductions are done, how many of their rows have numbers, and the state of the runs.

    Only reads the directory. Exit codes: 0 done, 2 wrong input.
    """
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder {folder}; name the --out of vpdr reproduce")
    statuses, runs = pages.study_statuses(folder), pages.run_statuses(folder)
    if as_json:
        output.print_json({"ids": [asdict(study) for study in statuses], "runs": [asdict(run) for run in runs]})
        return
    rows = [
        [
            f"{study.id} (SMOKE)" if study.smoke else study.id,
            study.state,
            f"{study.with_numbers} of {study.rows}" if study.rows else "",
            str(study.seeds or ""),
            "; ".join(dict.fromkeys(map(pages.shorten_reason, study.why))),
        ]
        for study in statuses
    ]
    table = Table.from_texts(["id", "state", "rows with numbers", "seeds", "why not the others"], rows)
    output.console.print(table.to_text(output.console.width))
    output.console.print(f"{folder}: {pages.describe_runs(statuses, runs)}")
    for run in runs if every else ():
        output.console.print(f"{run.identity}  {run.state}  {run.words}")


def results(
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Directories of summaries, the --out of vpdr reproduce, or summary files."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="File of the page; standard output if not given.")] = None,
) -> None:
    """Write one Markdown page from the summaries (ID.json) of many reproductions.

    Smoke runs are left out unless their directories are named. Exit codes: 0 done, 2 wrong input.
    """
    collection = pages.find_summaries(places)
    if collection.smoke_files:
        names = ", ".join(sorted(file.parent.name for file in collection.smoke_files))
        sys.stderr.write(f"smoke runs are left out: {names}; name their folders to see them\n")
    page = pages.results_page(collection.summaries)
    if out is None:
        sys.stdout.write(page)
        return
    write_atomically(out, page.encode())
    output.console.print(f"page: {out}")
