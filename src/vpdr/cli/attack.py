"""`vpdr attack`: what an adversary learns from a run that is over."""

from pathlib import Path
from typing import Annotated

import typer

from vpdr.attacks import order_from
from vpdr.cli.attack_table import tell_attacks
from vpdr.cli.printing import console, print_json
from vpdr.cli.progress import Bars
from vpdr.engines.overhear import Audience
from vpdr.engines.replay import attacked
from vpdr.errors import InvalidInput
from vpdr.files import write_atomically
from vpdr.plan import Plan, load_experiment
from vpdr.records import RunFolder
from vpdr.records.store import json_bytes
from vpdr.report.files import write_attacks, write_run


def attack(  # noqa: PLR0913 - one parameter per option of the command
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.", metavar="RUN_DIR")],
    kinds: Annotated[str, typer.Option("--attack", metavar="fsh,mia", help="Which attacks.")] = "mia",
    rounds: Annotated[str | None, typer.Option(help="Rounds to attack, 1,5,20; else all.")] = None,
    phi: Annotated[
        str, typer.Option(help="The adversary's encoder: client (the paper's) or initial.")
    ] = "client",
    stronger: Annotated[bool, typer.Option(help="Membership by likelihood ratios too.")] = True,
    steps: Annotated[int, typer.Option(help="Steps of a reconstruction, at most.")] = 10_000,
    device: Annotated[str, typer.Option(help="Where reconstructions run: cpu or cuda.")] = "cpu",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Attack the uploads of a finished run; leaves attacks.json and figures in its folder."""
    order = order_from(kinds, rounds, phi=phi, stronger=stronger, steps=steps, device=device)
    folder = RunFolder(run)
    plan = _plan(folder)
    record = folder.finished(plan)
    show = not quiet and not as_json
    with Bars(show=show) as progress:
        audience = Audience(tell=progress.tell, progress=progress.loading)
        found = attacked(plan, run, order, progress.loading, audience)
    content = {"schema": "vpdr-attacks", "version": 1, "identity": plan.identity, "attacks": found}
    write_atomically(run / "attacks.json", json_bytes(content), mode=0o600)
    write_attacks(found, run)
    write_run({**record, "attacks": {**record.get("attacks", {}), **found}}, run)
    if as_json:
        print_json({**content, "out": str(run)})
    elif show:
        tell_attacks(found)
        console.print(f"results: {run / 'attacks.json'}   report: {run / 'report.html'}")


def _plan(folder: RunFolder) -> Plan:
    """The plan that the folder was made by."""
    path = folder.path / "plan.toml"
    if not path.exists() or not folder.record.exists():
        raise InvalidInput(f"{folder.path} holds no finished run; give the folder of one, such as runs/paper")
    return load_experiment(str(path)).arms[0].plan
