"""`vpdr reproduce`: one table or figure of the paper, from data on disk to a page with verdicts."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from vpdr.attacks import order_from
from vpdr.cli.interrupt import Interrupt
from vpdr.cli.printing import console, print_json
from vpdr.cli.reproduce_progress import ManyRuns, failure, failure_words
from vpdr.cli.reproduce_table import tell
from vpdr.reproduce.catalogue import ids, load_study, setting
from vpdr.reproduce.reproduction import Finished, Reproduction, runs_of
from vpdr.reproduce.reproduction import reproduce as run_reproduction
from vpdr.reproduce.running import Company
from vpdr.reproduce.wish import Wish, parse_data

DEFAULT_OUT = Path("runs") / "reproduce"


def reproduce(  # noqa: PLR0913 - one parameter per option of the command
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="What to reproduce; none: the list.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DIR", help="Where a data set is, such as pacs=data/PACS."),
    ] = None,
    backbone: Annotated[
        list[str] | None, typer.Option(help="Instead of the paper's; once for images, once for texts.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Weights of the backbone: a folder or a file.")] = None,
    seeds: Annotated[str | None, typer.Option(help="0..4, 3 or 0,2,5; the table's own if not given.")] = None,
    points: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only these values of the table's axis, such as 'alpha=0.1*'."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of all runs and pages.")] = DEFAULT_OUT,
    jobs: Annotated[int, typer.Option(help="Runs at the same time; 0 is one a core.", min=0)] = 0,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="A small version in minutes, marked as such.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.")] = None,
    adapters: Annotated[str | None, typer.Option(help="last, blocks or all-blocks.")] = None,
    select: Annotated[str, typer.Option(help="Where R is chosen: validation or test.")] = "validation",
    attack: Annotated[
        str | None, typer.Option(metavar="mia,fsh", help="Attacks, for tables that have columns for them.")
    ] = None,
    attack_rounds: Annotated[str | None, typer.Option(help="Rounds to attack, 1,5,20; else all.")] = None,
    attack_steps: Annotated[int, typer.Option(help="Steps of a reconstruction, at most.")] = 10_000,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting.")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="What can be reproduced.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Rerun a table or figure of the paper; what has run before is not run again."""
    if name is None or show_list:
        _tell_ids(as_json)
        return
    how = {"steps": attack_steps, "device": device or "cpu"}
    wish = Wish(
        attacks=None if attack is None else order_from(attack, attack_rounds, **how),
        data=parse_data(data or ()),
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
    what = Reproduction.of(name, wish, out)
    done = _run(what, jobs or os.cpu_count() or 1, show=not quiet and not as_json)
    if done.summary is not None and as_json:
        failed = [failure(each) for each in done.failed]
        print_json({**done.summary, "out": str(what.folder), "failed": failed})
    elif done.summary is not None and not quiet:
        tell(done.summary, what.folder)
    code = _ending(what, done)
    if code:
        raise typer.Exit(code)


def _ending(what: Reproduction, done: Finished) -> int:
    """The exit code; what failed is told also to those who asked for silence."""
    all_runs = len(what.jobs)
    lines = [f"failed: {failure_words(what.study, each)}" for each in done.failed]
    if done.stopped:
        lines.append(f"stopped with {what.left} of {all_runs} runs left; the same command goes on")
    elif done.failed:
        no_page = ", so no page is written" if done.summary is None else ""
        lines.append(
            f"{len(done.failed)} of {all_runs} runs failed{no_page}; the same command tries them again"
        )
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    return 130 if done.stopped else int(bool(done.failed))


def _run(what: Reproduction, workers: int, *, show: bool) -> Finished:
    with Interrupt() as interrupt, ManyRuns(what.study, len(what.jobs), show=show) as progress:
        company = Company(
            workers=workers,
            loading=progress.loading,
            there=progress.there,
            after_run=progress.after_run,
            stop=lambda: interrupt.asked,
        )
        return run_reproduction(what, company)


def _tell_ids(as_json: bool) -> None:
    found: list[dict[str, Any]] = []
    for name in ids():
        study = load_study(name)
        runs = runs_of(study)
        found.append(
            {"id": name, "paper": study.paper, "title": study.title, "runs": runs, "data": study.datasets}
        )
    if as_json:
        print_json({"ids": found, "datasets": setting()["datasets"]})
        return
    table = Table("id", "in the paper", "what", "runs", "data", box=None, pad_edge=False)
    for each in found:
        table.add_row(each["id"], each["paper"], each["title"], str(each["runs"]), ", ".join(each["data"]))
    console.print(table)
