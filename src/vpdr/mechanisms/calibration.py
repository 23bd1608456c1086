"""How much noise a budget requires, for each mechanism; no data are needed."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from vpdr.mechanisms import MECHANISMS, base, vpp
from vpdr.privacy import ACCOUNTANTS, Adjacency, Budget, accountants
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
        options=asdict(request.selection_config),
    )
    kind = MECHANISMS[request.mechanism]
    calibration = (
        kind.calibration(config) if isinstance(kind, base.DescribesCalibration) else _from_receipts(config, kind)
    )
    multiplier, energy_ratio = calibration.noise_multiplier, None
    if calibration.relative_energy is not None:
        isotropic = accountants.get_accountant(request.accountant).noise_multiplier(request.budget, request.rounds)
        energy_ratio = calibration.relative_energy * (multiplier / isotropic) ** 2
    return {
        **_common_fields(request, multiplier, calibration.events),
        **calibration.details,
        "energy_ratio": energy_ratio,
        "reading": calibration.reading,
    }


def _from_receipts(config: base.MechanismConfig, kind: type[base.Mechanism]) -> base.Calibration:
    """A mechanism that does not describe its calibration: what its own receipts say of all releases."""
    events = kind.from_config(config).receipt_for().events * config.releases
    precision = accountants.gaussian_precision(events)
    return base.Calibration(
        noise_multiplier=math.sqrt(config.releases / precision) if precision else math.inf,
        events=events,
        reading=f"the events of {config.releases} receipts; the multiplier is that of a Gaussian of equal cost",
    )


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
