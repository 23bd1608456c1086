"""Which tables and figures there are, each described by one file."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from vpdr.plan.sources import read_builtin
from vpdr.plan.values import known

Table = Mapping[str, Any]
_ROOM = "vpdr.reproduce"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A difference that the page shows, seed by seed: first minus second."""

    first: str
    second: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """One table or figure: its axes, its seeds, its grid of R, and how it is laid out."""

    id: str
    title: str
    paper: str  # the paper's item
    kind: str = "table"  # which figure it is, or a table
    reader: str = "accuracy"  # what is read from a record
    attack: str = ""  # which attacks its runs are watched by
    preset: str = "paper"
    datasets: tuple[str, ...]
    frameworks: tuple[str, ...] = ("fedproto",)
    methods: tuple[str, ...]
    points: Table = field(default_factory=lambda: {"": {}})
    arms: Table = field(default_factory=dict)
    plan: Table = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    radii: tuple[float, ...] = (5.0, 10.0, 15.0, 20.0)
    columns: str = "metrics"  # or points
    metric: str = "avg"  # what verdicts, choices and differences are about
    unit: str = "%"
    tolerance: float = 2.0  # how far from the paper still agrees, in the metric's unit
    paper_key: str = ""  # where the paper's numbers are: table>{framework}>{method}
    paper_form: str = "value"
    paper_names: Table = field(default_factory=dict)  # of methods, where they differ
    paper_keys: Table = field(default_factory=dict)  # paths of single methods
    headline: str = "vpdr"
    base: str = "igpp"
    families: bool = False  # whether the points are families of models
    only: Table = field(default_factory=dict)  # how the points of a data set begin, where not all fit it
    optimum: Table = field(default_factory=dict)  # of each panel: the values that the paper names as best
    contrasts: tuple[tuple[str, str], ...] = ()  # further differences: first minus second
    alone: bool = False  # whether runs are timed, and so must not share the machine
    notes: tuple[str, ...] = ()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The differences that are asked for, where both methods are there."""
        wanted = [
            (self.headline, self.base),
            (self.headline, f"{self.headline}-random"),
            (self.base, "local"),
            (self.headline, "local"),
            *((method, self.base) for method in self.methods if method not in (self.headline, self.base)),
            *((first, second) for first, second in self.contrasts),
        ]
        there = [(a, b) for a, b in wanted if a in self.methods and b in self.methods and a != b]
        return tuple(Pair(first=a, second=b) for a, b in dict.fromkeys(there) if a != "local")

    def arm(self, method: str) -> Table | None:
        """What a method changes in a plan; None where nobody knows it."""
        found: Table | None = {**_builtin_arms(), **self.arms}.get(method)
        return found


@lru_cache(maxsize=1)
def _builtin_arms() -> dict[str, Any]:
    return read_builtin("experiments", "methods")


def ids() -> list[str]:
    """Every table and figure that can be asked for, in the order of the paper."""
    files = (resources.files(_ROOM) / "experiments").iterdir()
    names = {Path(file.name).stem for file in files if file.name.endswith(".toml")}
    order: list[str] = setting()["order"]
    return [name for name in order if name in names] + sorted(names - set(order))


def load_study(name: str) -> Study:
    """One table or figure by its id."""
    known("id", [name], ids())
    content = _read(f"experiments/{name}.toml")
    settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
    return Study(id=name, **settings)


def setting() -> dict[str, Any]:
    """What all reproductions share."""
    return _read("setting.toml")


@lru_cache(maxsize=1)
def paper_numbers() -> dict[str, Any]:
    """Every number that the paper's tables print."""
    content: dict[str, Any] = json.loads((resources.files(_ROOM) / "paper_numbers.json").read_text())
    return content


@lru_cache(maxsize=64)
def _read(file: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(_ROOM) / file).read_text())
