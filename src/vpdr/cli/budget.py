"""`vpdr calibrate` and `vpdr ledger`: the noise that a budget requires, and what a client has spent of it."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from vpdr.cli.output import console, print_json
from vpdr.mechanisms import vpp
from vpdr.mechanisms.calibration import CalibrationRequest, calibrate_noise
from vpdr.privacy import ACCOUNTANTS, Adjacency, Amendment, Budget, Ledger, LedgerFile, accountants
from vpdr.report import format as fmt
from vpdr.report import tables
from vpdr.validation import InvalidInput


def calibrate(
    mechanism: Annotated[
        str, typer.Option(help="The mechanism: igpp, vpp, rapp or one of a plug-in (`vpdr methods`).")
    ] = "vpp",
    epsilon: Annotated[float, typer.Option(help="The ε of all rounds together.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The δ of the guarantee, in (0, 1).")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="Number of releases that share the budget.")] = 20,
    accountant: Annotated[str, typer.Option(help=f"How privacy loss is composed: {', '.join(ACCOUNTANTS)}.")] = "exact",
    adjacency: Annotated[
        str, typer.Option(help=f"Which datasets are adjacent: {', '.join(Adjacency)}.")
    ] = "replace-same-label",
    dim: Annotated[int, typer.Option(help="Feature dimension d.")] = 512,
    keep: Annotated[
        float, typer.Option(help="vpp: fraction ρ of the coordinates that are selected, at most 0.5.")
    ] = 0.2,
    share: Annotated[float, typer.Option(help="vpp: fraction r of ε that is spent on the selection.")] = 0.1,
    cap: Annotated[float, typer.Option(help="vpp: upper bound H of the selection scores.")] = 0.1,
    selection: Annotated[
        str, typer.Option(help=f"vpp: how coordinates are selected: {', '.join(vpp.SELECTIONS)}.")
    ] = "laplace",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Compute the noise with which all rounds together satisfy (ε, δ), and the ε that it really spends.

    Needs no data. Exit codes: 0 done, 2 wrong input.
    """
    if adjacency not in list(Adjacency):
        raise InvalidInput(f"unknown adjacency {adjacency!r}; choose one of {', '.join(Adjacency)}")
    calibration = calibrate_noise(
        CalibrationRequest(
            mechanism=mechanism,
            budget=Budget(epsilon, delta),
            rounds=rounds,
            accountant=accountant,
            adjacency=Adjacency(adjacency),
            dim=dim,
            selection_config=vpp.SelectionConfig(keep=keep, cap=cap, share=share, selection=selection),
        )
    )
    if as_json:
        print_json(calibration)
    else:
        _print_calibration(calibration)


def _print_calibration(calibration: dict[str, Any]) -> None:
    epsilon, delta = fmt.short_number(calibration["epsilon"]), fmt.short_number(calibration["delta"])
    accountant = calibration["accountant"]
    console.print(
        f"{calibration['mechanism']} for epsilon {epsilon}, delta {delta} over {calibration['rounds']} "
        f"rounds ({accountant} accountant, {calibration['adjacency']})"
    )
    fields = {
        "noise multiplier": f"{calibration['noise_multiplier']:.4f} times the sensitivity",
        "epsilon really spent": f"{calibration['epsilon_spent']:.4f} "
        f"(the {accountant} accountant says {calibration['epsilon_by_accountant']:.4f})",
        "of class means": calibration["sensitivity"]["means"],
        "of class sums": calibration["sensitivity"]["sums"],
    }
    if calibration["kept"] is not None:
        low, high = calibration["group_noise"]
        multipliers = fmt.join_and([f"{each:.4f}" for each in calibration["group_multipliers"]])
        fields |= {
            "selected": f"{calibration['kept']} coordinates at {low:.4f} of the reference noise, rest at {high:.4f}",
            "group multipliers": multipliers,
            "noise energy": f"{calibration['energy_ratio']:.3f} times that of igpp at the same budget",
        }
    if "stages" in calibration:
        fields["of each stage"] = ", ".join(f"{each:.2f}" for each in calibration["stages"])
    if calibration["selection_scale"] is not None:
        fields["selection scale"] = f"{calibration['selection_scale']:.6g} (Laplace)"
    fields |= {name: str(value) for name, value in calibration.items() if name not in _PRINTED}  # of plug-ins
    console.print(tables.Table.from_fields({f"  {name}": text for name, text in fields.items()}).to_text())
    console.print(f"  {calibration['reading']}")


_PRINTED = {  # in words of their own above, or in the first line
    *("mechanism", "epsilon", "delta", "rounds", "accountant", "adjacency", "noise_multiplier", "epsilon_spent"),
    *("epsilon_by_accountant", "sensitivity", "selection", "selection_scale", "kept", "group_noise"),
    *("group_multipliers", "energy_ratio", "stages", "reading"),
}


class LedgerCommands(typer.core.TyperGroup):
    """`vpdr ledger FILE` is `vpdr ledger show FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `show` unless a command is named."""
        return super().parse_args(ctx, args if args and args[0] in self.commands else ["show", *args])


ledger = typer.Typer(cls=LedgerCommands, rich_markup_mode="markdown", help="Show or amend what a client has spent.")
LedgerArgument = Annotated[
    Path, typer.Argument(help="A ledger file, such as runs/paper/ledgers/client-000.json.", metavar="FILE")
]


@ledger.command()
def show(
    file: LedgerArgument,
    head: Annotated[str | None, typer.Option(help="A head noted earlier: is its history still in the file?")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ledger as one JSON object.")] = False,
) -> None:
    """Show what a client has released and when, the ε spent, and what its budget still allows.

    The file is only read; `vpdr ledger amend FILE` changes its budget or its client. Note the head that is printed:
    with `--head` it shows later that nothing was cut off or turned back. Exit codes: 0 done, 1 the noted head is
    not in the file, 2 the file is missing or damaged.
    """
    client_ledger = LedgerFile(file).read()
    noted = None if head is None else _find_head(client_ledger, head)
    if as_json:
        print_json(_ledger_content(client_ledger) | ({} if noted is None else {"noted_head": noted}))
    else:
        _print_ledger(client_ledger)
        if noted is not None and noted["in_file"]:
            count, total = noted["lines_before"], len(client_ledger.chain) - 1
            console.print(f"the noted head is that after {count} of {fmt.count_noun(total, 'line')}")
        elif noted is not None:
            console.print("the noted head is not in this file: it was turned back or cut, or it is another ledger")
    if noted is not None and not noted["in_file"]:
        raise typer.Exit(1)


@ledger.command()
def amend(
    file: LedgerArgument,
    epsilon: Annotated[
        float | None, typer.Option(help="The new ε of the budget: higher, or lower down to what is spent.")
    ] = None,
    client: Annotated[str | None, typer.Option(help="The new name of the client.")] = None,
    reason: Annotated[str, typer.Option(help="Why, in one line; it is recorded.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the ledger as one JSON object.")] = False,
) -> None:
    """Change the budget or the client of a ledger; the change is an entry of its history.

    The new budget is what is claimed for all releases, also those before. Exit codes: 0 done, 2 wrong input.
    """
    ledger_file = LedgerFile(file)
    ledger_file.amend(epsilon=epsilon, client=client, reason=reason)
    if as_json:
        print_json(_ledger_content(ledger_file.read()))
    else:
        _print_ledger(ledger_file.read())


def _find_head(client_ledger: Ledger, head: str) -> dict[str, Any]:
    """Where in the history a noted head is."""
    if not re.fullmatch("[0-9a-f]{64}", head):
        raise InvalidInput(f"expected a head of 64 hexadecimal digits, as vpdr ledger prints it, got {head!r}")
    in_file = head in client_ledger.chain
    return {"head": head, "in_file": in_file, "lines_before": client_ledger.chain.index(head) if in_file else None}


def _ledger_content(client_ledger: Ledger) -> dict[str, Any]:
    budget = client_ledger.budget
    hashes = [
        head
        for line, head in zip(client_ledger.lines(), client_ledger.chain[1:], strict=True)
        if line["kind"] == "charge"
    ]
    charges = [
        {
            "round": entry.round,
            "time": entry.time or None,
            "run": entry.run or None,
            "mechanism": entry.mechanism or None,
            "purpose": str(entry.receipt.purpose),
            "events": [accountants.event_to_dict(event) for event in entry.receipt.events],
            "level": str(entry.receipt.level),
            "encoder": str(entry.receipt.terms.encoder),
            "counts": str(entry.receipt.terms.counts),
            "noise": str(entry.receipt.terms.noise),
            "epsilon_so_far": epsilon,
            "hash": head,
        }
        for (entry, epsilon), head in zip(client_ledger.history(), hashes, strict=True)
    ]
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
        "releases": charges,
        "amendments": [asdict(change) for change in client_ledger.amendments],
        "head": client_ledger.head,
    }


def _print_ledger(client_ledger: Ledger) -> None:
    console.print(f"{client_ledger.client}: {client_ledger.description}")
    rows, changes = [], client_ledger.amendments
    for count, (entry, epsilon) in enumerate(client_ledger.history()):
        rows += [_amendment_row(change) for change in changes if change.position == count]
        receipt = entry.receipt
        events = ", ".join(_event_text(event) for event in receipt.events) or "nothing"
        events = events if entry.is_release else f"{receipt.purpose}: {events}"
        terms = [str(receipt.terms.encoder), str(receipt.terms.noise), str(receipt.level)]
        rows.append([entry.time, entry.run, entry.mechanism, str(entry.round), events, *terms, f"{epsilon:.4f}"])
    rows += [_amendment_row(change) for change in changes if change.position == len(client_ledger.entries)]
    if rows:
        labels = ["time", "run", "mechanism", "round", "events", "encoder", "noise", "guarantee", "epsilon so far"]
        has_stamps = any(row[0] for row in rows)  # the ledger of a simulation has no clock
        shown = slice(0 if has_stamps else 3, None)
        table = tables.Table.from_texts(labels[shown], [row[shown] for row in rows])
        console.print(table.to_text(None if has_stamps else console.width))  # a line of a history stays one line
    spent, releases = client_ledger.epsilon_spent, client_ledger.releases_left()
    console.print(f"spent {spent:.6g}, left {client_ledger.epsilon_left:.6g} ({client_ledger.level})")
    if releases is not None:
        console.print(f"{fmt.count_noun(releases, 'more release')} like the last one would fit")
    console.print(f"head {client_ledger.head}")


def _amendment_row(change: Amendment) -> list[str]:
    old, new = (fmt.short_number(each) if isinstance(each, float) else str(each) for each in (change.old, change.new))
    text = f"{change.what} {old} to {new}" + (f" ({change.reason})" if change.reason else "")
    return [change.time, change.run, "", "", text, "", "", "", ""]


def _event_text(event: accountants.Event) -> str:
    match event:
        case accountants.GaussianEvent(multiplier):
            return f"Gaussian {fmt.four_digits(multiplier)}"
        case accountants.PureEvent(epsilon):
            return f"pure {fmt.four_digits(epsilon)}"
        case accountants.NotPrivateEvent():
            return "not private"
