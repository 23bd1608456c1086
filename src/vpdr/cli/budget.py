"""`vpdr calibrate` and `vpdr ledger`: the noise that a budget requires, and what a client has spent of it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr.cli.output import console, print_json
from vpdr.mechanisms import vpp
from vpdr.mechanisms.calibration import CalibrationRequest, calibrate_noise
from vpdr.privacy import ACCOUNTANTS, Adjacency, Budget, LedgerFile, accountants
from vpdr.report import format as fmt
from vpdr.report import tables
from vpdr.validation import InvalidInput


def calibrate(
    mechanism: Annotated[str, typer.Option(help="The mechanism: igpp, vpp or rapp.")] = "vpp",
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
    console.print(tables.Table.from_fields({f"  {name}": text for name, text in fields.items()}).to_text())
    console.print(f"  {calibration['reading']}")


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
    budget, history = client_ledger.budget, list(client_ledger.history())
    spent, left, releases = client_ledger.epsilon_spent, client_ledger.epsilon_left, client_ledger.releases_left()
    if as_json:
        charges = [
            {
                "round": entry.round,
                "purpose": str(entry.receipt.purpose),
                "events": [accountants.event_to_dict(event) for event in entry.receipt.events],
                "level": str(entry.receipt.level),
                "encoder": str(entry.receipt.terms.encoder),
                "counts": str(entry.receipt.terms.counts),
                "noise": str(entry.receipt.terms.noise),
                "epsilon_so_far": epsilon,
            }
            for entry, epsilon in history
        ]
        content = {
            "client": client_ledger.client,
            "epsilon": None if budget is None else budget.epsilon,
            "delta": None if budget is None else budget.delta,
            "accountant": client_ledger.accountant,
            "adjacency": str(client_ledger.adjacency),
            "level": str(client_ledger.level),
            "epsilon_spent": spent,
            "epsilon_left": left,
            "releases_left": releases,
            "releases": charges,
        }
        print_json(content)
        return
    console.print(f"{client_ledger.client}: {client_ledger.description}")
    rows = []
    for entry, epsilon in history:
        receipt = entry.receipt
        events = ", ".join(_event_text(event) for event in receipt.events) or "nothing"
        events = events if entry.is_release else f"{receipt.purpose}: {events}"
        terms = [str(receipt.terms.encoder), str(receipt.terms.noise), str(receipt.level)]
        rows.append([str(entry.round), events, *terms, f"{epsilon:.4f}"])
    if rows:
        labels = ["round", "events", "encoder", "noise", "guarantee", "epsilon so far"]
        console.print(tables.Table.from_texts(labels, rows).to_text(console.width))
    console.print(f"spent {spent:.6g}, left {left:.6g} ({client_ledger.level})")
    if releases is not None:
        console.print(f"{fmt.count_noun(releases, 'more release')} like the last one would fit")


def _event_text(event: accountants.Event) -> str:
    match event:
        case accountants.GaussianEvent(multiplier):
            return f"Gaussian {fmt.four_digits(multiplier)}"
        case accountants.PureEvent(epsilon):
            return f"pure {fmt.four_digits(epsilon)}"
        case accountants.NotPrivateEvent():
            return "not private"
