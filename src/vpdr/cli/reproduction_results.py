"""`vpdr results`: the page of all results, from summaries that reproductions have left."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vpdr.cli.printing import console
from vpdr.files import write_atomically
from vpdr.reproduce.results import results_page, summaries_in


def results(
    places: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of summaries, or files.")],
    out: Annotated[Path | None, typer.Option(help="Where the page goes; the screen if not given.")] = None,
) -> None:
    """Write one page from the summaries (ID.json) of many reproductions."""
    page = results_page(summaries_in(places))
    if out is None:
        sys.stdout.write(page)
        return
    write_atomically(out, page.encode())
    console.print(f"page: {out}")
