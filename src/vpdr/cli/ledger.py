"""`vpdr ledger`: what a client has spent, and what is left."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from vpdr.cli.printing import console, print_json
from vpdr.privacy import Ledger
from vpdr.privacy.events import Event, Gaussian, NotPrivate, Pure, pack
from vpdr.privacy.ledger_file import LedgerFile


def ledger(
    file: Annotated[Path, typer.Argument(help="A ledger file.", metavar="FILE")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a client has released, round by round, and what its budget still allows."""
    book = LedgerFile(file).read()
    if as_json:
        print_json(_content(book))
    else:
        _tell(book)


def _content(book: Ledger) -> dict[str, Any]:
    budget = book.budget
    return {
        "client": book.client,
        "epsilon": None if budget is None else budget.epsilon,
        "delta": None if budget is None else budget.delta,
        "accountant": book.accountant,
        "adjacency": str(book.adjacency),
        "level": str(book.level),
        "epsilon_spent": book.spent,
        "epsilon_left": book.left,
        "releases_left": book.releases_left(),
        "releases": [
            {
                "round": entry.round,
                "purpose": str(entry.receipt.purpose),
                "events": [pack(event) for event in entry.receipt.events],
                "level": str(entry.receipt.level),
                "encoder": str(entry.receipt.terms.encoder),
                "counts": str(entry.receipt.terms.counts),
                "noise": str(entry.receipt.terms.noise),
                "epsilon_so_far": so_far,
            }
            for entry, so_far in book.history()
        ],
    }


def _tell(book: Ledger) -> None:
    console.print(f"[bold]{book.client}[/]: {book.heading.terms}")
    table = Table(
        "round", "events", "encoder", "noise", "guarantee", "epsilon so far", box=None, pad_edge=False
    )
    for entry, so_far in book.history():
        events = ", ".join(_words(event) for event in entry.receipt.events) or "nothing"
        events = events if entry.released else f"{entry.receipt.purpose}: {events}"
        terms, level = entry.receipt.terms, entry.receipt.level
        table.add_row(
            str(entry.round), events, str(terms.encoder), str(terms.noise), str(level), f"{so_far:.4f}"
        )
    if book.entries:
        console.print(table)
    console.print(f"spent {book.spent:.6g}, left {book.left:.6g} ({book.level})")
    more = book.releases_left()
    if more is not None:
        console.print(f"{more} more release{'' if more == 1 else 's'} like the last one would fit")


def _words(event: Event) -> str:
    match event:
        case Gaussian(multiplier):
            return f"Gaussian {multiplier:.4g}"
        case Pure(epsilon):
            return f"pure {epsilon:.4g}"
        case NotPrivate():
            return "not private"
