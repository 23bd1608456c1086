"""`vpdr attack`: attacks on the uploads of a finished run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr.api import attack as attack_run
from vpdr.attacks import AttackCallbacks, parse_attack_config
from vpdr.cli.output import ProgressBars, console, print_json
from vpdr.report.tables import attack_notes, short_attack_table


def attack(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run.", metavar="RUN_DIR")],
    kinds: Annotated[
        str, typer.Option("--attack", metavar="fsh,mia", help="Attacks: mia (membership), fsh (reconstruction).")
    ] = "mia",
    rounds: Annotated[str | None, typer.Option(help="Rounds to attack, such as 1,5,20; all if not given.")] = None,
    phi: Annotated[
        str, typer.Option(help="The adversary's encoder: client (as in the paper) or initial (what a server has).")
    ] = "client",
    stronger: Annotated[bool, typer.Option(help="Also run likelihood-ratio membership attacks.")] = True,
    steps: Annotated[int, typer.Option(help="Largest number of steps of a reconstruction.")] = 10_000,
    device: Annotated[str, typer.Option(help="Device of the reconstructions: cpu or cuda.")] = "cpu",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no progress and no table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Attack the uploads of a finished run; writes attacks.json, figures and a new report.html.

    The run is trained again with the saved uploads. Noise from the operating system cannot be drawn again, so
    such a run needs its saved uploads. Exit codes: 0 done, 2 wrong input.
    """
    config = parse_attack_config(
        kinds, rounds, adversary_encoder=phi, likelihood_ratio=stronger, steps=steps, device=device
    )
    show = not quiet and not as_json
    with ProgressBars(show=show) as progress:
        callbacks = AttackCallbacks(on_message=progress.print_line, progress=progress.update)
        content = attack_run(run, config, progress=progress.update, callbacks=callbacks)
    if as_json:
        print_json({**content, "out": str(run)})
    elif show:
        print_attacks(content["attacks"])
        console.print(f"results: {run / 'attacks.json'}   report: {run / 'report.html'}", markup=False)


def print_attacks(attacks: Mapping[str, Any]) -> None:
    """Print one table per attack: mean and spread over rounds, chance, and the difference to chance."""
    for kind, result in attacks.items():
        console.print(short_attack_table(kind, result).to_text(console.width), markup=False)
        for note in attack_notes(result):
            console.print(f"  - {note}", markup=False)
