"""`vpdr doctor`: does this installation do what the guarantees rest on?"""

import time
from typing import Annotated

import typer

from vpdr.audits.checkup import checkup
from vpdr.cli.printing import console, print_json


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Try out sensitivities, noise, encoders, uploads, ledger and accountants; exit 1 if one fails."""
    begin, results = time.perf_counter(), []
    for result in checkup():
        results.append(result)
        if not as_json:
            console.print(
                f"{'ok    ' if result.ok else 'FAILED'}  {result.name:<22}{result.words}", markup=False
            )
    seconds, healthy = time.perf_counter() - begin, all(result.ok for result in results)
    if as_json:
        found = [{"name": each.name, "ok": each.ok, "words": each.words} for each in results]
        print_json({"healthy": healthy, "checks": found, "seconds": seconds})
    else:
        console.print(f"{'healthy' if healthy else 'not healthy'}, {seconds:.0f} s", markup=False)
    if not healthy:
        raise typer.Exit(1)
