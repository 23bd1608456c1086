"""`vpdr run`: one run, or a comparison of several."""

import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr.attacks import AttackOrder, order_from
from vpdr.cli.attack_table import tell_attacks
from vpdr.cli.interrupt import Interrupt
from vpdr.cli.printing import print_json
from vpdr.cli.progress import RunProgress, SweepProgress
from vpdr.cli.results import tell_comparison, tell_run
from vpdr.engines.overhear import Audience
from vpdr.engines.runner import Company, run_plan
from vpdr.engines.sweep import jobs_of, sweep
from vpdr.errors import InvalidInput
from vpdr.plan import Experiment, load_experiment
from vpdr.plan.experiment import Wishes
from vpdr.report.files import write_attacks, write_comparison, write_run


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
    data: Annotated[
        list[str] | None, typer.Option("--data", metavar="BENCHMARK=DIR", help="Where its files lie.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the results; runs/NAME if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in --out stopped.")] = False,
    attack: Annotated[
        str | None, typer.Option(metavar="fsh,mia", help="Attack the uploads while it runs.")
    ] = None,
    attack_rounds: Annotated[str | None, typer.Option(help="Rounds to attack, 1,5,20; else all.")] = None,
    attack_phi: Annotated[
        str, typer.Option(help="The adversary's encoder: client (the paper's) or initial.")
    ] = "client",
    attack_stronger: Annotated[
        bool, typer.Option("--attack-stronger", help="Membership by likelihood ratios too.")
    ] = False,
    attack_steps: Annotated[int, typer.Option(help="Steps of a reconstruction, at most.")] = 10_000,
    attack_device: Annotated[str, typer.Option(help="Where reconstructions run: cpu or cuda.")] = "cpu",
    uploads: Annotated[bool, typer.Option(help="Keep what the server saw, round by round.")] = True,
    jobs: Annotated[int, typer.Option(help="Runs at the same time; 0 is one a core.", min=0)] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Run a plan and leave a record; with several seeds or methods, compare them."""
    how = {"phi": attack_phi, "stronger": attack_stronger, "steps": attack_steps, "device": attack_device}
    attacks = None if attack is None else order_from(attack, attack_rounds, **how)
    wishes = Wishes(settings=settings or (), seeds=seeds, methods=methods, data=data or ())
    experiment = load_experiment(source, wishes)
    order = Order(
        experiment=experiment,
        folder=_folder(out, experiment, resume),
        resume=resume,
        workers=jobs or os.cpu_count() or 1,
        show=not quiet and not as_json,
        as_json=as_json,
        uploads=uploads,
        attacks=attacks,
    )
    with Interrupt() as interrupt:
        if experiment.single:
            _single(order, interrupt)
        else:
            _comparison(order, interrupt)


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What to run, where to, and what to show of it."""

    experiment: Experiment
    folder: Path
    resume: bool
    workers: int
    show: bool
    as_json: bool
    uploads: bool
    attacks: AttackOrder | None


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


def _single(order: Order, interrupt: Interrupt) -> None:
    plan = order.experiment.arms[0].seeded(order.experiment.seeds[0])
    with RunProgress(plan.run.rounds, show=order.show) as progress:
        company = Company(
            loading=progress.loading,
            watchers=[progress.after_round],
            stop=lambda: interrupt.asked,
            attacks=order.attacks,
            audience=Audience(tell=progress.tell, progress=progress.loading),
            keep_uploads=order.uploads,
        )
        outcome = run_plan(plan, order.folder, resume=order.resume, company=company)
    if outcome.record is None:
        raise _stopped(f"after round {outcome.done}", order.folder)
    write_attacks(outcome.record.get("attacks", {}), order.folder)
    write_run(outcome.record, order.folder)
    if order.as_json:
        print_json({**outcome.record, "out": str(order.folder)})
    elif order.show:
        tell_run(outcome.record, order.folder)
        tell_attacks(outcome.record.get("attacks", {}))


def _comparison(order: Order, interrupt: Interrupt) -> None:
    folder = order.folder
    if not order.resume and (folder / "summary.json").exists():
        raise InvalidInput(f"{folder} already holds a comparison; add --resume, or choose another --out")
    alone = None if order.attacks is None else dataclasses.replace(order.attacks, workers=1)
    todo = [
        dataclasses.replace(job, attacks=alone, keep_uploads=order.uploads)
        for job in jobs_of(order.experiment, folder)
    ]
    finished: list[tuple[str, str, dict[str, Any]]] = []
    with SweepProgress(todo[0].plan, len(todo), show=order.show) as progress:
        workers = min(order.workers, len(todo))
        for done in sweep(todo, workers=workers, resume=order.resume, stop=lambda: interrupt.asked):
            if done.record is not None:
                finished.append((done.job.setting, done.job.method, done.record))
            progress.after_run(done)
    if len(finished) < len(todo):
        raise _stopped(f"after {len(finished)} of {len(todo)} runs", folder)
    summary = write_comparison(order.experiment, finished, folder)
    if order.as_json:
        print_json({**summary, "out": str(folder)})
    elif order.show:
        tell_comparison(summary, folder)


def _stopped(when: str, folder: Path) -> typer.Exit:
    sys.stderr.write(f"stopped {when}; the same command with --resume --out {folder} goes on\n")
    return typer.Exit(130)
