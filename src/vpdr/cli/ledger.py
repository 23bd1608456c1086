"""`vpdr ledger`: what a client has spent, and what is left."""

from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr.cli.output import console, print_json
from vpdr.privacy import Event, GaussianEvent, Ledger, LedgerFile, NotPrivateEvent, PureEvent, event_to_dict
from vpdr.report.format import count_noun, four_digits
from vpdr.report.tables import Table


def ledger(
    file: Annotated[
        Path, typer.Argument(help="A ledger file, such as runs/paper/ledgers/client-000.json.", metavar="FILE")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the ledger as one JSON object.")] = False,
) -> None:
    """Show what a client has released in each round, the ε spent, and what its budget still allows.

    The file is only read. Exit codes: 0 done, 2 the file is missing or damaged.
    """
    client_ledger = LedgerFile(file).read()
    if as_json:
        print_json(ledger_data(client_ledger))
    else:
        _print_ledger(client_ledger)


def ledger_data(client_ledger: Ledger) -> dict[str, Any]:
    """The JSON object of a ledger."""
    budget = client_ledger.budget
    return {
        "client": client_ledger.client,
        "epsilon": None if budget is None else budget.epsilon,
        "delta": None if budget is None else budget.delta,
        "accountant": client_ledger.accountant,
        "adjacency": str(client_ledger.adjacency),
        "level": str(client_ledger.level),
        "epsilon_spent": client_ledger.epsilon_spent,
        "epsilon_left": client_ledger.epsilon_left,
        "releases_left": client_ledger.releases_left(),
        "releases": [
            {
                "round": entry.round,
                "purpose": str(entry.receipt.purpose),
                "events": [event_to_dict(event) for event in entry.receipt.events],
                "level": str(entry.receipt.level),
                "encoder": str(entry.receipt.terms.encoder),
                "counts": str(entry.receipt.terms.counts),
                "noise": str(entry.receipt.terms.noise),
                "epsilon_so_far": epsilon,
            }
            for entry, epsilon in client_ledger.history()
        ],
    }


def ledger_table(client_ledger: Ledger) -> Table:
    """One row per charge."""
    rows = []
    for entry, epsilon in client_ledger.history():
        receipt = entry.receipt
        events = ", ".join(_event_text(event) for event in receipt.events) or "nothing"
        rows.append(
            [
                str(entry.round),
                events if entry.is_release else f"{receipt.purpose}: {events}",
                str(receipt.terms.encoder),
                str(receipt.terms.noise),
                str(receipt.level),
                f"{epsilon:.4f}",
            ]
        )
    labels = ["round", "events", "encoder", "noise", "guarantee", "epsilon so far"]
    return Table.from_texts(labels, rows)


def _print_ledger(client_ledger: Ledger) -> None:
    console.print(f"{client_ledger.client}: {client_ledger.header.description}", markup=False)
    if client_ledger.entries:
        console.print(ledger_table(client_ledger).to_text(console.width), markup=False)
    spent, left = client_ledger.epsilon_spent, client_ledger.epsilon_left
    console.print(f"spent {spent:.6g}, left {left:.6g} ({client_ledger.level})", markup=False)
    releases = client_ledger.releases_left()
    if releases is not None:
        console.print(f"{count_noun(releases, 'more release')} like the last one would fit", markup=False)


def _event_text(event: Event) -> str:
    match event:
        case GaussianEvent(multiplier):
            return f"Gaussian {four_digits(multiplier)}"
        case PureEvent(epsilon):
            return f"pure {four_digits(epsilon)}"
        case NotPrivateEvent():
            return "not private"
