"""`vpdr run`: one run, or a comparison of several methods and seeds."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from vpdr import api
from vpdr.attacks import AttackCallbacks, parse_attack_config
from vpdr.cli import audit, output
from vpdr.config import Experiment, ExperimentOptions, load_experiment
from vpdr.federation.run import RunOptions
from vpdr.records import RunRecord
from vpdr.report import format as fmt
from vpdr.report import tables
from vpdr.report.stats import ComparisonSummary
from vpdr.validation import InvalidInput


def run(  # noqa: PLR0913 - one parameter per option of the command
    source: Annotated[
        str,
        typer.Argument(metavar="[NAME|FILE]", help="A preset (paper, authors, strict), quickstart, or a TOML file."),
    ] = "paper",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Change one setting, such as budget.epsilon=0.5. May be repeated.",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds: 0..4, 3 or 0,2,5. There is one run per method and seed.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods to compare, such as local,none,igpp,vpdr,vpdr-random,strict.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="BENCHMARK=DIR", help="Directory of a benchmark's files. May be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the results; a free runs/NAME if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the stopped run in --out.")] = False,
    attack: Annotated[
        str | None,
        typer.Option(
            metavar="fsh,mia", help="Attack the uploads during the run: mia (membership), fsh (reconstruction)."
        ),
    ] = None,
    attack_rounds: output.AttackRoundsOption = None,
    attack_phi: output.AttackEncoderOption = "client",
    attack_stronger: Annotated[
        bool, typer.Option("--attack-stronger", help="Also run likelihood-ratio membership attacks.")
    ] = False,
    attack_steps: output.AttackStepsOption = 10_000,
    attack_device: output.AttackDeviceOption = "cpu",
    uploads: Annotated[
        bool, typer.Option(help="Save the uploads of every round, so that the run can be attacked later.")
    ] = True,
    jobs: Annotated[int, typer.Option(help="Runs at the same time in a comparison; 0 is one per core.", min=0)] = 0,
    quiet: output.QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Run a configuration and write a record and a report; compare several seeds or methods.

    A single run writes record.json, rounds.csv, plan.toml, ledgers and report.html. A comparison also writes
    tables, summary.json and one report of all runs. Ctrl-C stops after the current round or run, and --resume
    continues from there. Exit codes: 0 done, 2 wrong input, 130 stopped.
    """
    attacks = None
    if attack is not None:
        attacks = parse_attack_config(
            attack,
            attack_rounds,
            adversary_encoder=attack_phi,
            likelihood_ratio=attack_stronger,
            steps=attack_steps,
            device=attack_device,
        )
    options = ExperimentOptions(settings=settings or (), seeds=seeds, methods=methods, data=data or ())
    experiment = load_experiment(source, options)
    directory = results_dir(out, experiment, resume=resume)
    show = not quiet and not as_json
    result: RunRecord | ComparisonSummary | None
    if experiment.is_single_run:
        config = experiment.method_configs[0].with_seed(experiment.seeds[0])
        with Interrupt() as interrupt, output.RunProgress(config.run.rounds, show=show) as rounds:
            run_options = RunOptions(
                progress=rounds.update,
                on_round_end=[rounds.after_round],
                stop=lambda: interrupt.requested,
                keep_uploads=uploads,
            )
            callbacks = AttackCallbacks(on_message=rounds.print_line, progress=rounds.update)
            outcome = api.run_into(
                config, directory, resume=resume, attacks=attacks, attack_callbacks=callbacks, options=run_options
            )
        result, finished = outcome.record, f"round {outcome.rounds_done}"
    else:
        num_runs = len(experiment.method_configs) * len(experiment.seeds)
        with Interrupt() as interrupt, output.SweepProgress(num_runs, show=show) as runs:
            result = api.run_experiment(
                experiment,
                directory,
                jobs=jobs or os.cpu_count() or 1,
                resume=resume,
                attacks=attacks,
                keep_uploads=uploads,
                stop=lambda: interrupt.requested,
                progress=runs.update,
                on_start=runs.start_runs,
                on_result=runs.after_run,
            )
        finished = f"{runs.num_finished} of {num_runs} runs"
    if result is None:
        again = f"the same command with --resume --out {directory} goes on"
        sys.stderr.write(f"stopped after {finished}; {again}\n")
        raise typer.Exit(130)
    if as_json:
        output.print_json(result, out=str(directory))
    elif show and isinstance(result, RunRecord):
        print_run(result, directory)
        audit.print_attacks(result.attacks or {})
    elif show and isinstance(result, ComparisonSummary):
        print_comparison(result, directory)


class Interrupt:
    """A context in which the first Ctrl-C only sets `requested`, and the second one interrupts."""

    def __init__(self) -> None:
        self.requested = False
        self._previous_handler: Any = None

    def __enter__(self) -> "Interrupt":
        self._previous_handler = signal.signal(signal.SIGINT, self._handle_sigint)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous_handler)

    def _handle_sigint(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        sys.stderr.write("stopping after the current round or run; once more to stop at once\n")


def results_dir(out: Path | None, experiment: Experiment, *, resume: bool) -> Path:
    """The directory of the results: `out`, or the next free name in runs/ (the last one to resume)."""
    if out is not None:
        if not str(out).strip("."):
            raise InvalidInput("--out must name a directory, got nothing; leave it out for runs/NAME")
        return out
    base = free = Path("runs") / experiment.name
    number = 2
    while free.exists() and not resume:
        free, number = base.with_name(f"{base.name}-{number}"), number + 1
    return free


def print_run(record: RunRecord, directory: Path) -> None:
    """Print the final accuracies of every client, their average and spread, and the privacy statement."""
    output.console.print(tables.short_accuracy_table(record).to_text(output.console.width))
    output.console.print(f"privacy: {record.privacy.sentence}")
    if record.privacy.not_covered:
        output.console.print(f"  protected: {record.privacy.dataset}")
    for caveat in record.privacy.not_covered:
        output.console.print(f"  - {caveat}")
    output.console.print(f"record: {directory / 'record.json'}   report: {directory / 'report.html'}")


def print_comparison(summary: ComparisonSummary, directory: Path) -> None:
    """Print one table per setting that fits the terminal, and where the full tables are."""
    for name, setting in summary.settings.items():
        table = tables.short_comparison_table(setting, summary.baseline, title=name)
        output.console.print(table.to_text(output.console.width))
        shown = table.fit_to_width(output.console.width).labels
        if omitted := [label for label in table.labels if label not in shown]:
            output.console.print(f"not shown: {', '.join(omitted)} (the report has all)")
        output.console.print()
    output.console.print(f"seeds {fmt.seeds_text(summary.seeds)}, ± half of a 95 % t-interval over seeds")
    output.console.print("accuracies in %, on all classes except in the column own; differences in points")
    methods = [each for setting in summary.settings.values() for each in setting.methods.values()]
    if any(each.privacy.noise == "seeded" for each in methods):
        output.console.print("noise comes from the seed: guarantees are those of the same run with secret noise")
    output.console.print(f"summary: {directory / 'summary.json'}   report: {directory / 'report.html'}")
