"""`vpdr run`: one run, or a comparison of several methods and seeds."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from vpdr import api
from vpdr.attacks import AttackCallbacks, AttackConfig, parse_attack_config
from vpdr.cli import audit, output
from vpdr.config import Experiment, ExperimentOptions, effects, load, load_experiment, rules
from vpdr.federation.run import RunOptions
from vpdr.io import json_safe
from vpdr.records import RunRecord
from vpdr.report import format as fmt
from vpdr.report import tables
from vpdr.report.stats import ComparisonSummary
from vpdr.validation import InvalidInput, one_of

JSON_CONTENTS = ("summary", "full")
DEFAULT_ATTACK_STEPS = 10_000


def run(  # noqa: PLR0913 - one parameter per option of the command
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE]",
            help="A preset (paper, authors, strict), quickstart, or a TOML file; paper if not given. "
            "With --resume, the directory of a stopped run.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Change one setting, such as budget.epsilon=0.5 (`vpdr settings` lists them). May be repeated.",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds: 0..4, 3 or 0,2,5. There is one run per method and seed.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods to compare, such as local,none,igpp,vpdr,vpdr-random,strict (`vpdr methods`)."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="BENCHMARK=DIR",
            help="Directory of a benchmark's files; chooses that benchmark where the plan names none. May be repeated.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the results; a free runs/NAME if not given.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the stopped run in a directory: vpdr run --resume DIR.")
    ] = False,
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
    attack_steps: output.AttackStepsOption = DEFAULT_ATTACK_STEPS,
    attack_device: output.AttackDeviceOption = "cpu",
    uploads: Annotated[
        bool, typer.Option(help="Save the uploads of every round, so that the run can be attacked later.")
    ] = True,
    jobs: Annotated[int, typer.Option(help="Runs at the same time in a comparison; 0 is one per core.", min=0)] = 0,
    quiet: output.QuietOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary as one JSON object; --json=full prints the whole record.")
    ] = False,
    json_content: Annotated[str, typer.Option(hidden=True)] = "summary",
) -> None:
    """Run a configuration and write a record and a report; compare several seeds or methods.

    `vpdr run paper` runs VPDR; with --methods igpp,vpdr its baseline runs beside it. A single run writes
    record.json, rounds.csv, plan.toml, ledgers and report.html. A comparison also writes tables, summary.json
    and one report of all runs. Ctrl-C stops after the current round or run, and `vpdr run --resume DIR`
    continues from there. Exit codes: 0 done, 2 wrong input, 130 stopped.
    """
    one_of(JSON_CONTENTS, json=json_content)
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
    else:
        check_no_attack_options(
            attack_rounds, attack_phi, attack_stronger, attack_steps != DEFAULT_ATTACK_STEPS, attack_device
        )
    options = ExperimentOptions(settings=settings or (), seeds=seeds, methods=methods, data=data or ())
    given = [name for name in ("settings", "seeds", "methods", "data") if getattr(options, name)]
    started = find_stored_run(source, out, given) if resume else None
    if started is None:
        experiment = load_experiment(source or "paper", options)
        directory = results_dir(out, experiment, resume=resume)
    else:
        stored, directory = api.stored_run(started), started
        experiment, attacks, uploads = stored.experiment, attacks or stored.attacks, uploads and stored.keep_uploads
    show = not quiet and not as_json
    if show:
        output.console.print(title_line(experiment))
    task = RunTask(experiment, directory, resume=resume, attacks=attacks, uploads=uploads, jobs=jobs, show=show)
    result: RunRecord | ComparisonSummary | None
    result, finished = run_single(task) if experiment.is_single_run else run_comparison(task)
    if result is None:
        sys.stderr.write(f"stopped after {finished}; vpdr run --resume {directory} goes on\n")
        raise typer.Exit(130)
    if as_json:
        content: object = result
        if isinstance(result, RunRecord) and json_content == "summary":
            content = record_summary(result, experiment, directory)
        output.print_json(content, out=str(directory))
    elif show and isinstance(result, RunRecord):
        print_run(result, directory)
        audit.print_attacks(result.attacks or {})
    elif show and isinstance(result, ComparisonSummary):
        print_comparison(result, directory)


def check_no_attack_options(rounds: str | None, phi: str, stronger: bool, has_steps: bool, device: str) -> None:
    """Refuse options of attacks where there is no attack."""
    given = {
        "--attack-rounds": rounds is not None,
        "--attack-phi": phi != "client",
        "--attack-stronger": stronger,
        "--attack-steps": has_steps,
        "--attack-device": device != "cpu",
    }
    for name in [name for name, is_given in given.items() if is_given]:
        raise InvalidInput(f"{name} has no effect without --attack; add --attack mia, or leave it out")


def find_stored_run(source: str | None, out: Path | None, given: Sequence[str]) -> Path | None:
    """The directory whose own plan is resumed; None where the command names the plan again, as in version 0.1."""
    if out is not None and (source is not None or given or not has_plan(out)):
        if has_plan(out):
            sys.stderr.write(f"hint: vpdr run --resume {out} is enough\n")
        return None
    directory = out or Path(source or "paper")
    names = {*load.builtin_names("presets"), *load.builtin_names("experiments")}
    is_plan = directory.is_file() or directory.suffix == ".toml" or str(directory) in names
    if is_plan and not has_plan(directory):
        return None
    if given:
        raise InvalidInput(
            f"a resumed run keeps its plan; leave out {', '.join(_OPTION_NAMES[name] for name in given)}"
        )
    return directory


def has_plan(directory: Path) -> bool:
    """Whether a directory tells what was run in it."""
    return any((directory / name).exists() for name in (load.EXPERIMENT_FILE, "plan.toml"))


_OPTION_NAMES = {"settings": "--set", "seeds": "--seeds", "methods": "--methods", "data": "--data"}


def title_line(experiment: Experiment) -> str:
    """What is run: data, framework, mechanism, regulariser and budget."""
    configs = [each.config for each in experiment.method_configs]
    methods = list(dict.fromkeys(each.method for each in experiment.method_configs))
    names = f" ({', '.join(methods)})" if len(methods) > 1 else ""
    return f"{experiment.title}{names}: {rules.run_title(configs)}"


@dataclass(frozen=True, slots=True)
class RunTask:
    """What `vpdr run` was asked for."""

    experiment: Experiment
    directory: Path
    resume: bool
    attacks: AttackConfig | None
    uploads: bool
    jobs: int
    show: bool


def run_single(task: RunTask) -> tuple[RunRecord | None, str]:
    """One run: its record, or None if it was stopped, and how far it came."""
    config = task.experiment.method_configs[0].with_seed(task.experiment.seeds[0])
    with Interrupt() as interrupt, output.RunProgress(config.run.rounds, show=task.show) as rounds:
        run_options = RunOptions(
            progress=rounds.update,
            on_round_end=[rounds.after_round],
            stop=lambda: interrupt.requested,
            keep_uploads=task.uploads,
        )
        callbacks = AttackCallbacks(on_message=rounds.print_line, progress=rounds.update)
        outcome = api.run_into(
            config,
            task.directory,
            resume=task.resume,
            attacks=task.attacks,
            attack_callbacks=callbacks,
            options=run_options,
        )
    return outcome.record, f"round {outcome.rounds_done}"


def run_comparison(task: RunTask) -> tuple[ComparisonSummary | None, str]:
    """All runs of a comparison: its summary, or None if it was stopped, and how far it came."""
    num_runs = len(task.experiment.method_configs) * len(task.experiment.seeds)
    with Interrupt() as interrupt, output.SweepProgress(num_runs, show=task.show) as runs:
        summary = api.run_experiment(
            task.experiment,
            task.directory,
            jobs=task.jobs or os.cpu_count() or 1,
            resume=task.resume,
            attacks=task.attacks,
            keep_uploads=task.uploads,
            stop=lambda: interrupt.requested,
            progress=runs.update,
            on_start=runs.start_runs,
            on_result=runs.after_run,
        )
    return summary, f"{runs.num_finished} of {num_runs} runs"


_SUMMARY_KEYS = ("schema", "version", "name", "title", "identity", "seed", "clients", "final", "privacy", "attacks")


def record_summary(record: RunRecord, experiment: Experiment, directory: Path) -> dict[str, Any]:
    """The keys of a record that most scripts need, with the settings that count and the paths of the files."""
    content = json_safe(record)
    read = effects.settings_read(experiment.method_configs[0].config)
    files = {"record": "record.json", "report": "report.html", "plan": "plan.toml", "ledgers": "ledgers"}
    return {
        **{key: content[key] for key in _SUMMARY_KEYS if key in content},
        "settings": {path: value for path, value in effects.flatten(record.plan) if path in read},
        "wall_seconds": record.wall_seconds,
        "paths": {name: str(directory / file) for name, file in files.items()},
    }


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
