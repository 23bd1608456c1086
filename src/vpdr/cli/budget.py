"""`vpdr calibrate` and `vpdr ledger`: the noise that a budget requires, and what a client has spent of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr import mechanisms
from vpdr.cli.output import console, print_json
from vpdr.errors import InvalidInput
from vpdr.mechanisms import MECHANISMS, base
from vpdr.mechanisms.vpp import SELECTIONS, NoiseAllocation, SelectionConfig, describe_selection
from vpdr.privacy import accountants
from vpdr.privacy.accountants import ACCOUNTANTS, Budget, GaussianEvent
from vpdr.privacy.guarantee import Adjacency
from vpdr.privacy.ledger import LedgerFile
from vpdr.prototypes import ClassMeans, ClassSums
from vpdr.report.format import count_noun, four_digits, join_and, short_number
from vpdr.report.tables import Table
from vpdr.rng import Streams

Events = tuple[accountants.Event, ...]


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
        str, typer.Option(help=f"vpp: how coordinates are selected: {', '.join(SELECTIONS)}.")
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
            selection_config=SelectionConfig(keep=keep, cap=cap, share=share, selection=selection),
        )
    )
    if as_json:
        print_json(calibration)
    else:
        _print_calibration(calibration)


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationRequest:
    """A mechanism and the budget that all its releases share."""

    mechanism: str
    budget: Budget
    rounds: int
    accountant: str
    adjacency: Adjacency
    dim: int
    selection_config: SelectionConfig  # how vpp selects coordinates


def calibrate_noise(request: CalibrationRequest) -> dict[str, Any]:
    """The noise multiplier, the ε really spent, and details of the mechanism, as `vpdr calibrate --json`."""
    private = [name for name, kind in MECHANISMS.items() if kind.traits.is_private]
    if request.mechanism not in private:
        raise InvalidInput(f"unknown mechanism {request.mechanism!r}; choose one of {', '.join(private)}")
    return CALIBRATORS.get(request.mechanism, _calibrate_plug_in)(request)


def _calibrate_plug_in(request: CalibrationRequest) -> dict[str, Any]:
    """Any other mechanism: what its own receipts say of all releases."""
    config = mechanisms.MechanismConfig(
        budget=request.budget,
        releases=request.rounds,
        clip_norm=1.0,
        dim=request.dim,
        classes=2,
        adjacency=request.adjacency,
        accountant=request.accountant,
        samples_per_class=0,
        rng=Streams(0).generator("release-space"),
        options={},
    )
    events = MECHANISMS[request.mechanism].from_config(config).receipt_for().events * request.rounds
    precision = accountants.gaussian_precision(events)
    return {
        **_common_fields(request, math.sqrt(request.rounds / precision) if precision else math.inf, events),
        "selection_scale": None,
        "kept": None,
        "energy_ratio": None,
        "reading": f"the events of {request.rounds} receipts; the multiplier is that of a Gaussian of equal cost",
    }


def _calibrate_igpp(request: CalibrationRequest) -> dict[str, Any]:
    multiplier = accountants.get_accountant(request.accountant).noise_multiplier(request.budget, request.rounds)
    return {
        **_common_fields(request, multiplier, (GaussianEvent(multiplier),) * request.rounds),
        "selection_scale": None,
        "kept": None,
        "group_noise": [1.0, 1.0],
        "group_multipliers": [multiplier, multiplier],
        "energy_ratio": 1.0,
        "reading": "all coordinates get the same noise; nothing is selected",
    }


def _calibrate_vpp(request: CalibrationRequest) -> dict[str, Any]:
    groups = NoiseAllocation.from_fraction(request.dim, request.selection_config.keep)
    selection = request.selection_config.calibrate(request.budget, request.rounds, groups.num_selected)
    accountant = accountants.get_accountant(request.accountant)
    multiplier = accountant.noise_multiplier(request.budget, request.rounds, selection.pure_events)
    isotropic = accountant.noise_multiplier(request.budget, request.rounds)
    first, second = groups.weights
    return {
        **_common_fields(request, multiplier, (*selection.events, *[GaussianEvent(multiplier)] * request.rounds)),
        "selection": request.selection_config.selection,
        "selection_scale": selection.scale or None,
        "kept": groups.num_selected,
        "group_noise": list(groups.group_scales),
        "group_multipliers": [multiplier / first**0.5, multiplier / second**0.5],
        "energy_ratio": groups.relative_energy * (multiplier / isotropic) ** 2,
        "reading": describe_selection(selection, groups),
    }


def _calibrate_rapp(request: CalibrationRequest) -> dict[str, Any]:
    multiplier = accountants.get_accountant(request.accountant).noise_multiplier(request.budget, 1)
    schedule = mechanisms.StageSchedule(releases=request.rounds)
    stages = [schedule.stage(number, multiplier) for number in range(schedule.count)]
    return {
        **_common_fields(request, multiplier, tuple(event for stage in stages for event in stage.events)),
        "selection_scale": None,
        "kept": None,
        "stages": [stage.sums.noise_multiplier for stage in stages],
        "energy_ratio": (multiplier / _calibrate_igpp(request)["noise_multiplier"]) ** 2,
        "reading": f"{schedule.count} stages, which together are one release of sums at this multiplier; "
        "each uses the centres that the stages before it have estimated, so its radius shrinks",
    }


CALIBRATORS: dict[str, Callable[[CalibrationRequest], dict[str, Any]]] = {
    "igpp": _calibrate_igpp,
    "vpp": _calibrate_vpp,
    "rapp": _calibrate_rapp,
}


def _common_fields(request: CalibrationRequest, multiplier: float, events: Events) -> dict[str, Any]:
    delta = request.budget.delta
    return {
        "mechanism": request.mechanism,
        "epsilon": request.budget.epsilon,
        "delta": delta,
        "rounds": request.rounds,
        "accountant": request.accountant,
        "adjacency": str(request.adjacency),
        "noise_multiplier": multiplier,
        "epsilon_spent": ACCOUNTANTS["joint"].epsilon(events, delta),
        "epsilon_by_accountant": ACCOUNTANTS[request.accountant].epsilon(events, delta),
        "sensitivity": {
            "means": base.describe_sensitivity(request.adjacency, ClassMeans()),
            "sums": base.describe_sensitivity(request.adjacency, ClassSums(classes=2)),
        },
    }


def _print_calibration(calibration: dict[str, Any]) -> None:
    epsilon, delta = short_number(calibration["epsilon"]), short_number(calibration["delta"])
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
        multipliers = join_and([f"{each:.4f}" for each in calibration["group_multipliers"]])
        fields |= {
            "selected": f"{calibration['kept']} coordinates at {low:.4f} of the reference noise, rest at {high:.4f}",
            "group multipliers": multipliers,
            "noise energy": f"{calibration['energy_ratio']:.3f} times that of igpp at the same budget",
        }
    if "stages" in calibration:
        fields["of each stage"] = ", ".join(f"{each:.2f}" for each in calibration["stages"])
    if calibration["selection_scale"] is not None:
        fields["selection scale"] = f"{calibration['selection_scale']:.6g} (Laplace)"
    console.print(Table.from_fields({f"  {name}": text for name, text in fields.items()}).to_text())
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
        console.print(Table.from_texts(labels, rows).to_text(console.width))
    console.print(f"spent {spent:.6g}, left {left:.6g} ({client_ledger.level})")
    if releases is not None:
        console.print(f"{count_noun(releases, 'more release')} like the last one would fit")


def _event_text(event: accountants.Event) -> str:
    match event:
        case GaussianEvent(multiplier):
            return f"Gaussian {four_digits(multiplier)}"
        case accountants.PureEvent(epsilon):
            return f"pure {four_digits(epsilon)}"
        case accountants.NotPrivateEvent():
            return "not private"
