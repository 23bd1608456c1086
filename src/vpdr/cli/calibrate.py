"""`vpdr calibrate`: how much noise a budget asks for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from vpdr.cli.printing import console, print_json
from vpdr.errors import InvalidInput
from vpdr.mechanisms.focus import SELECTIONS, Focus, Groups
from vpdr.mechanisms.rapp import Stages
from vpdr.mechanisms.statement import release_bound, selection_reading
from vpdr.privacy.accountants import ACCOUNTANTS, accountant_named
from vpdr.privacy.budget import Budget
from vpdr.privacy.events import Event, Gaussian
from vpdr.privacy.terms import Adjacency
from vpdr.prototypes import ClassMeans, ClassSums


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the user asked for."""

    mechanism: str
    budget: Budget
    rounds: int
    accountant: str
    adjacency: Adjacency
    dim: int
    focus: Focus


def calibrate(  # noqa: PLR0913 - one parameter per option of the command
    mechanism: Annotated[str, typer.Option(help="igpp, vpp or rapp.")] = "vpp",
    epsilon: Annotated[float, typer.Option(help="The ε that all rounds together may spend.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The δ of the guarantee, in (0, 1).")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="How many releases share the budget.")] = 20,
    accountant: Annotated[str, typer.Option(help=f"{', '.join(ACCOUNTANTS)}.")] = "exact",
    adjacency: Annotated[str, typer.Option(help=f"{', '.join(Adjacency)}.")] = "replace-same-label",
    dim: Annotated[int, typer.Option(help="Feature dimension d.")] = 512,
    keep: Annotated[float, typer.Option(help="Share of coordinates in the focus (ρ), at most 0.5.")] = 0.2,
    share: Annotated[float, typer.Option(help="Share of ε for the selection (r).")] = 0.1,
    cap: Annotated[float, typer.Option(help="Cap on the scores (H).")] = 0.1,
    selection: Annotated[str, typer.Option(help=f"{', '.join(SELECTIONS)}.")] = "laplace",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find the noise with which all rounds together stay within (ε, δ), and what it really spends."""
    if mechanism not in CALIBRATIONS:
        raise InvalidInput(f"unknown mechanism {mechanism!r}; choose one of {', '.join(CALIBRATIONS)}")
    if adjacency not in list(Adjacency):
        raise InvalidInput(f"unknown adjacency {adjacency!r}; choose one of {', '.join(Adjacency)}")
    request = Request(
        mechanism=mechanism,
        budget=Budget(epsilon, delta),
        rounds=rounds,
        accountant=accountant,
        adjacency=Adjacency(adjacency),
        dim=dim,
        focus=Focus(keep=keep, cap=cap, share=share, selection=selection),
    )
    answer = CALIBRATIONS[mechanism](request)
    if as_json:
        print_json(answer)
    else:
        _tell(answer)


def _igpp(request: Request) -> dict[str, Any]:
    multiplier = accountant_named(request.accountant).multiplier(request.budget, request.rounds)
    return {
        **_shared(request, multiplier, _repeated(multiplier, request)),
        "selection_scale": None,
        "kept": None,
        "group_noise": [1.0, 1.0],
        "group_multipliers": [multiplier, multiplier],
        "energy_ratio": 1.0,
        "reading": "all coordinates get the same noise; nothing is selected",
    }


def _vpp(request: Request) -> dict[str, Any]:
    groups = Groups.of(request.dim, request.focus.keep)
    plan = request.focus.plan(request.budget, request.rounds, groups.kept)
    by = accountant_named(request.accountant)
    multiplier = by.multiplier(request.budget, request.rounds, plan.beside)
    isotropic = by.multiplier(request.budget, request.rounds)
    first, second = groups.weights
    return {
        **_shared(request, multiplier, (*plan.events, *_repeated(multiplier, request))),
        "selection": request.focus.selection,
        "selection_scale": plan.laps.scale if plan.laps else None,
        "kept": groups.kept,
        "group_noise": list(groups.factors),
        "group_multipliers": [multiplier / first**0.5, multiplier / second**0.5],
        "energy_ratio": groups.energy * (multiplier / isotropic) ** 2,
        "reading": selection_reading(request.focus, plan, groups),
    }


def _rapp(request: Request) -> dict[str, Any]:
    multiplier = accountant_named(request.accountant).multiplier(request.budget, 1)
    stages = Stages(releases=request.rounds)
    made = [stages.stage(number, multiplier) for number in range(stages.count)]
    return {
        **_shared(request, multiplier, tuple(event for stage in made for event in stage.events)),
        "selection_scale": None,
        "kept": None,
        "stages": [stage.sums.multiplier for stage in made],
        "energy_ratio": (multiplier / _igpp(request)["noise_multiplier"]) ** 2,
        "reading": f"{stages.count} stages, which together are one release of sums at this multiplier; each "
        "looks around centres that the ones before it have found, so its radius shrinks",
    }


CALIBRATIONS: dict[str, Callable[[Request], dict[str, Any]]] = {"igpp": _igpp, "vpp": _vpp, "rapp": _rapp}


def _repeated(multiplier: float, request: Request) -> tuple[Event, ...]:
    return (Gaussian(multiplier),) * request.rounds


def _shared(request: Request, multiplier: float, events: tuple[Event, ...]) -> dict[str, Any]:
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
            "means": release_bound(request.adjacency, ClassMeans()),
            "sums": release_bound(request.adjacency, ClassSums(classes=2)),
        },
    }


def _tell(answer: dict[str, Any]) -> None:
    """The same for people."""
    console.print(
        f"[bold]{answer['mechanism']}[/] for epsilon {answer['epsilon']:g}, delta {answer['delta']:g} over "
        f"{answer['rounds']} rounds ({answer['accountant']} accountant, {answer['adjacency']})"
    )
    rows = {
        "noise multiplier": f"{answer['noise_multiplier']:.4f} times the sensitivity",
        "epsilon really spent": f"{answer['epsilon_spent']:.4f} "
        f"(the {answer['accountant']} accountant says {answer['epsilon_by_accountant']:.4f})",
        "of class means": answer["sensitivity"]["means"],
        "of class sums": answer["sensitivity"]["sums"],
    }
    if answer["kept"] is not None:
        low, high = answer["group_noise"]
        rows |= {
            "focus": f"{answer['kept']} coordinates at {low:.4f} of the reference noise, rest at {high:.4f}",
            "group multipliers": "{:.4f} and {:.4f}".format(*answer["group_multipliers"]),
            "noise energy": f"{answer['energy_ratio']:.3f} times that of igpp at the same budget",
        }
    if "stages" in answer:
        rows["of each stage"] = ", ".join(f"{each:.2f}" for each in answer["stages"])
    if answer["selection_scale"] is not None:
        rows["selection scale"] = f"{answer['selection_scale']:.6g} (Laplace)"
    for name, value in rows.items():
        console.print(f"  {name:<22}{value}")
    console.print(f"  {answer['reading']}")
