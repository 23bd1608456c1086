"""What the owner of a client's data allows, read from the owner's own file."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from vpdr.checks import at_least, fraction, one_of
from vpdr.errors import InvalidInput
from vpdr.mechanisms import MECHANISMS
from vpdr.plan.combinations import NOT_PRIVATE
from vpdr.plan.data_combinations import MADE_UP
from vpdr.plan.values import fitted, known
from vpdr.privacy import ACCOUNTANTS, Adjacency, Budget, EncoderKind, Level
from vpdr.privacy.terms import DECLARED

METRICS = ("nothing", "accuracy", "everything")
ADAPTIVE = ("exact", "rdp")  # of these a limit holds whatever a server makes of earlier releases
DIVIDED = {"exact"}  # it needs the two parts for that: docs/privacy.md, section 8
PRIVATE = tuple(name for name in MECHANISMS if name not in NOT_PRIVATE)


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetTerms:
    """What may ever be spent on this dataset, over all runs together, and how it is counted."""

    epsilon: float = 1.0
    delta: float = 1e-5
    accountant: str = "exact"
    selection: float = 0.0  # the part of ε that is set apart, once for all, for selections of coordinates
    adjacency: str = str(Adjacency.REPLACE_SAME_LABEL)

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        known("accountant", [self.accountant], ACCOUNTANTS)
        known("adjacency", [self.adjacency], list(Adjacency))
        fraction(selection=self.selection)
        if self.selection and not self.divided:
            raise InvalidInput(f"selection is for accountant exact, got {self.accountant}; leave it out")

    @property
    def divided(self) -> bool:
        """Whether selections and Gaussian noise are paid from two parts that were fixed before."""
        return self.accountant in DIVIDED


@dataclass(frozen=True, kw_only=True, slots=True)
class AllowTerms:
    """What a run may ask for."""

    mechanisms: tuple[str, ...] = PRIVATE
    rounds: int = 20
    guarantee: str = str(Level.CONDITIONAL)  # the weakest that is good enough
    min_class_count: int = 1  # class means of fewer samples must not be released
    simulation: bool = False  # noise from the run's seed, which the server knows
    metrics: str = "nothing"  # of private data, told to the server without noise

    def __post_init__(self) -> None:
        known("mechanism", self.mechanisms, MECHANISMS)
        known("guarantee", [self.guarantee], list(Level))
        at_least(1, rounds=self.rounds, min_class_count=self.min_class_count)
        one_of(METRICS, metrics=self.metrics)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataTerms:
    """Where the samples are: features in a file, part of a benchmark, or (neither) what an app brings."""

    features: str = ""  # an .npz with train_x, train_y, test_x, test_y on the frozen path
    classes: int = 0  # of the features' labels; public
    place: int = -1  # of this silo among all, from 0: its model, where a plan has a family; -1: not said
    benchmark: str = ""  # the one kind that a plan may name
    settings: dict[str, Any] = field(default_factory=dict)  # of that benchmark; they win over the plan's
    weights: str = ""  # of the backbone, on this machine
    device: str = "cpu"  # of the backbone, where it is trained inside
    encoder: str = str(EncoderKind.PERSONAL)  # of what an app brings: public, transcript or personal

    def __post_init__(self) -> None:
        if self.features and self.benchmark:
            raise InvalidInput("give data.features (a file) or data.benchmark (a name), not both")
        if self.features:
            at_least(1, classes=self.classes)
        at_least(-1, place=self.place)
        known("encoder", [self.encoder], DECLARED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """One client's whole policy. Nothing that a server sends can change it."""

    name: str
    budget: BudgetTerms = field(default_factory=BudgetTerms)
    allow: AllowTerms = field(default_factory=AllowTerms)
    data: DataTerms = field(default_factory=DataTerms)

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise InvalidInput(f"name must be a plain word, got {self.name!r}")
        if self.budget.accountant not in ADAPTIVE and not self.allow.simulation:
            raise InvalidInput(
                f"accountant {self.budget.accountant} holds for noise that is chosen before all releases, "
                f"and servers choose theirs run by run; choose one of {', '.join(ADAPTIVE)}"
            )

    @property
    def divides(self) -> bool:
        """Whether a division of the benchmark tells of private labels, and so must be the owner's own."""
        private = self.budget.adjacency != Adjacency.REPLACE_SAME_LABEL
        return private and self.data.benchmark not in {"", *MADE_UP}

    @property
    def limit(self) -> Budget | None:
        """What the ledger may reach; None only for owners who ask for no guarantee at all."""
        unlimited = self.allow.guarantee == Level.NONE
        return None if unlimited else Budget(self.budget.epsilon, self.budget.delta)


_TABLES = {"budget": BudgetTerms, "allow": AllowTerms, "data": DataTerms}


def read_policy(path: Path) -> Policy:
    """A policy from its file; anything that is not understood is refused, never skipped."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}; every client needs a policy") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not valid TOML: {error}") from error
    try:
        known("entry", content, ["name", *_TABLES])
        tables = {key: _table(key, content[key]) for key in _TABLES if key in content}
        return Policy(name=fitted("name", content.get("name", ""), str), **tables)
    except (InvalidInput, TypeError) as error:
        raise InvalidInput(f"{path}: {error}") from error


def _table(name: str, content: object) -> Any:
    if not isinstance(content, Mapping):
        raise InvalidInput(f"{name} must be a table of settings, got {content!r}; write [{name}]")
    kinds = {each.name: each.type for each in fields(_TABLES[name])}
    known(f"setting in [{name}]", content, kinds)
    return _TABLES[name](
        **{key: _value(f"{name}.{key}", value, kinds[key]) for key, value in content.items()}
    )


def _value(name: str, value: Any, kind: Any) -> Any:
    if kind != tuple[str, ...]:
        return fitted(name, value, kind)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidInput(f"{name} must be a list of names, got {value!r}")
    return tuple(value)
