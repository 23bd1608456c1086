"""How much noise a budget requires, for each mechanism; no data are needed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vpdr.mechanisms import MECHANISMS, base, rapp, vpp
from vpdr.privacy import ACCOUNTANTS, Adjacency, Budget, GaussianEvent, accountants
from vpdr.prototypes import ClassMeans, ClassSums
from vpdr.rng import Streams
from vpdr.validation import InvalidInput

Events = tuple[accountants.Event, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationRequest:
    """A mechanism and the budget that all its releases share."""

    mechanism: str
    budget: Budget
    rounds: int
    accountant: str
    adjacency: Adjacency
    dim: int
    selection_config: vpp.SelectionConfig  # how vpp selects coordinates


def calibrate_noise(request: CalibrationRequest) -> dict[str, Any]:
    """The noise multiplier, the ε really spent, and details of the mechanism, as `vpdr calibrate --json`."""
    private = [name for name, kind in MECHANISMS.items() if kind.traits.is_private]
    if request.mechanism not in private:
        raise InvalidInput(f"unknown mechanism {request.mechanism!r}; choose one of {', '.join(private)}")
    return CALIBRATORS.get(request.mechanism, _calibrate_plug_in)(request)


def _calibrate_plug_in(request: CalibrationRequest) -> dict[str, Any]:
    """Any other mechanism: what its own receipts say of all releases."""
    config = base.MechanismConfig(
        budget=request.budget,
        releases=request.rounds,
        clip_norm=1.0,
        dim=request.dim,
        classes=2,
        adjacency=request.adjacency,
        accountant=request.accountant,
        samples_per_class=0,
        rng=Streams(0).generator("release-space"),
    )
    events = MECHANISMS[request.mechanism].from_config(config).receipt_for().events * request.rounds
    precision = accountants.gaussian_precision(events)
    return {
        **_common_fields(request, math.sqrt(request.rounds / precision) if precision else math.inf, events),
        "energy_ratio": None,
        "reading": f"the events of {request.rounds} receipts; the multiplier is that of a Gaussian of equal cost",
    }


def _calibrate_igpp(request: CalibrationRequest) -> dict[str, Any]:
    multiplier = accountants.get_accountant(request.accountant).noise_multiplier(request.budget, request.rounds)
    return {
        **_common_fields(request, multiplier, (GaussianEvent(multiplier),) * request.rounds),
        "group_noise": [1.0, 1.0],
        "group_multipliers": [multiplier, multiplier],
        "energy_ratio": 1.0,
        "reading": "all coordinates get the same noise; nothing is selected",
    }


def _calibrate_vpp(request: CalibrationRequest) -> dict[str, Any]:
    groups = vpp.NoiseAllocation.from_fraction(request.dim, request.selection_config.keep)
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
        "reading": vpp.describe_selection(selection, groups),
    }


def _calibrate_rapp(request: CalibrationRequest) -> dict[str, Any]:
    multiplier = accountants.get_accountant(request.accountant).noise_multiplier(request.budget, 1)
    schedule = rapp.StageSchedule(releases=request.rounds)
    stages = [schedule.stage(number, multiplier) for number in range(schedule.count)]
    return {
        **_common_fields(request, multiplier, tuple(event for stage in stages for event in stage.events)),
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
        "selection_scale": None,
        "kept": None,
    }
