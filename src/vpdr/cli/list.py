"""`vpdr list`: which reproductions and runs are done, partly done or missing."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from vpdr.cli.printing import console, print_json
from vpdr.errors import InvalidInput
from vpdr.reproduce.status import brief, pages, runs, runs_words

DEFAULT = Path("runs") / "reproduce"


def list_results(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The --out of vpdr reproduce.")] = DEFAULT,
    every: Annotated[bool, typer.Option("--runs", help="One line for each run as well.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show which tables and figures are there, how many of their rows, and how many runs are finished."""
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder {folder}; name the --out of vpdr reproduce")
    found, made = pages(folder), runs(folder)
    if as_json:
        print_json({"ids": [asdict(page) for page in found], "runs": [asdict(run) for run in made]})
        return
    table = Table("id", "state", "rows with numbers", "seeds", "why not the others", box=None, pad_edge=False)
    for page in found:
        name = f"{page.id} (SMOKE)" if page.smoke else page.id
        rows = f"{page.with_numbers} of {page.rows}" if page.rows else ""
        why = "; ".join(dict.fromkeys(map(brief, page.why)))
        table.add_row(name, page.state, rows, str(page.seeds or ""), escape(why))
    console.print(table)
    console.print(f"{folder}: {runs_words(found, made)}", markup=False)
    for run in made if every else ():
        console.print(f"{run.identity}  {run.state}  {run.words}")
