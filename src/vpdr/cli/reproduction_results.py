"""`vpdr results`: the page of all results, from summaries that reproductions have left."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vpdr.cli.printing import console
from vpdr.files import write_atomically
from vpdr.reproduce.finding import find_summaries
from vpdr.reproduce.results import results_page


def results(
    places: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of summaries, an --out, or files.")
    ],
    out: Annotated[Path | None, typer.Option(help="Where the page goes; the screen if not given.")] = None,
) -> None:
    """Write one page from the summaries (ID.json) of many reproductions."""
    found = find_summaries(places)
    if found.smoke:
        names = ", ".join(sorted(file.parent.name for file in found.smoke))
        sys.stderr.write(f"smoke runs are left out: {names}; name their folders to see them\n")
    page = results_page(found.summaries)
    if out is None:
        sys.stdout.write(page)
        return
    write_atomically(out, page.encode())
    console.print(f"page: {out}")
