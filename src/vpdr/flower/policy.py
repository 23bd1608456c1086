"""The policy of a data owner: what a run may do with the data, and the codes of refusals."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from vpdr.config import (
    SYNTHETIC_BENCHMARKS,
    RunConfig,
    guarantee_level,
    mechanism_traits,
    selection_config,
    uploads_prototypes,
)
from vpdr.encoder.zoo import model_families
from vpdr.errors import InvalidInput, VpdrError
from vpdr.mechanisms import MECHANISMS, NoiseAllocation
from vpdr.privacy import ACCOUNTANTS, Adjacency, Budget, EncoderKind, GuaranteeLevel, NoiseOrigin, declared_encoder
from vpdr.validation import at_least, at_least_0_below_1, check_known, coerce, one_of

METRICS_LEVELS = ("nothing", "accuracy", "everything")
ADAPTIVE_ACCOUNTANTS = ("exact", "rdp")  # valid when later noise depends on earlier releases
SPLIT_ACCOUNTANTS = {"exact"}  # valid only with two fixed parts of epsilon: docs/privacy.md, section 8
REL_SLACK = 1e-9  # for rounding; the ledger itself is stricter
PRIVATE_MECHANISMS = tuple(name for name, kind in MECHANISMS.items() if kind.traits.is_private)


class RefusalCode(StrEnum):
    """The reason of a refusal, as the server receives it.

    Guarantee: all but three codes depend on the policy, the configuration, the messages and the ledger only.
    `other-data` and `own-data` depend on the owner's source as a whole and are the same whatever a server
    sends. `failed` stands for unexpected errors, and is the only code that samples and a server's settings
    could decide together: training, evaluation, broadcasts and features, where such errors are known, do not
    end in it.
    """

    NO_POLICY = "no-policy"
    BAD_REQUEST = "bad-request"
    EPSILON = "epsilon"
    DELTA = "delta"
    MECHANISM = "mechanism"
    ADJACENCY = "adjacency"
    MIN_CLASS_COUNT = "min-class-count"
    ROUNDS = "rounds"
    GUARANTEE = "guarantee"
    SIMULATION = "simulation"
    BENCHMARK = "benchmark"
    DIVISION = "division"
    PLACE = "place"
    SELECTION = "selection"
    OTHER_DATA = "other-data"
    OWN_DATA = "own-data"
    LEDGER = "ledger"
    OTHER_PLAN = "other-plan"
    ROUND_ORDER = "round-order"
    BROADCAST = "broadcast"
    BUDGET = "budget"
    BUSY = "busy"
    NO_PRIVATE_RECORD = "no-private-record"
    FAILED = "failed"


class Refusal(VpdrError):
    """A request that the client refuses; only the code is sent, the text stays in the owner's log."""

    def __init__(self, code: RefusalCode, details: str = "") -> None:
        super().__init__(f"{code}: {details}" if details else str(code))
        self.code = code


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetPolicy:
    """The privacy budget of the dataset over all runs, and its accountant."""

    epsilon: float = 1.0
    delta: float = 1e-5
    accountant: str = "exact"
    selection: float = 0.0  # share of ε reserved for selections of coordinates
    adjacency: str = str(Adjacency.REPLACE_SAME_LABEL)

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        check_known("accountant", [self.accountant], ACCOUNTANTS)
        check_known("adjacency", [self.adjacency], list(Adjacency))
        at_least_0_below_1(selection=self.selection)
        if self.selection and not self.is_split:
            raise InvalidInput(f"selection is for accountant exact, got {self.accountant}; leave it out")

    @property
    def is_split(self) -> bool:
        """Whether selections and Gaussian noise are charged to two fixed parts of ε."""
        return self.accountant in SPLIT_ACCOUNTANTS


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPolicy:
    """What a run may request."""

    mechanisms: tuple[str, ...] = PRIVATE_MECHANISMS
    rounds: int = 20
    guarantee: str = str(GuaranteeLevel.CONDITIONAL)  # the weakest level that is accepted
    min_class_count: int = 1  # smallest class whose mean may be released
    simulation: bool = False  # allow noise from the run's seed, which the server knows
    metrics: str = "nothing"  # metrics of private data sent without noise

    def __post_init__(self) -> None:
        check_known("mechanism", self.mechanisms, MECHANISMS)
        check_known("guarantee", [self.guarantee], list(GuaranteeLevel))
        at_least(1, rounds=self.rounds, min_class_count=self.min_class_count)
        one_of(METRICS_LEVELS, metrics=self.metrics)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataPolicy:
    """Where the samples are: a file of features, part of a benchmark, or (neither) supplied by an app."""

    features: str = ""  # an .npz of frozen features: train_x, train_y, test_x, test_y
    classes: int = 0  # number of classes of the feature file; public
    place: int = -1  # position among all clients, from 0: selects the member of a model family; -1: unset
    benchmark: str = ""  # the only benchmark kind that a run may name
    settings: dict[str, Any] = field(default_factory=dict)  # of that benchmark; they override the run's
    weights: str = ""  # of the backbone, a path on this machine
    device: str = "cpu"  # of the backbone, when its blocks are trained
    encoder: str = str(EncoderKind.PERSONAL)  # of an app's features: public, broadcast or personal

    def __post_init__(self) -> None:
        if self.features and self.benchmark:
            raise InvalidInput("give data.features (a file) or data.benchmark (a name), not both")
        if self.features:
            at_least(1, classes=self.classes)
        at_least(-1, place=self.place)
        declared_encoder(self.encoder)


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """The policy of one client; nothing that a server sends can change it."""

    name: str
    budget: BudgetPolicy = field(default_factory=BudgetPolicy)
    allow: RunPolicy = field(default_factory=RunPolicy)
    data: DataPolicy = field(default_factory=DataPolicy)

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise InvalidInput(f"name must be a plain word, got {self.name!r}")
        if self.budget.accountant not in ADAPTIVE_ACCOUNTANTS and not self.allow.simulation:
            raise InvalidInput(
                f"accountant {self.budget.accountant} needs noise that is fixed before all releases, "
                f"and servers choose theirs run by run; choose one of {', '.join(ADAPTIVE_ACCOUNTANTS)}"
            )

    @property
    def needs_own_split(self) -> bool:
        """Whether the split depends on private labels, so that it must be the owner's own file."""
        private_labels = self.budget.adjacency != Adjacency.REPLACE_SAME_LABEL
        return private_labels and self.data.benchmark not in {"", *SYNTHETIC_BENCHMARKS}

    @property
    def limit(self) -> Budget | None:
        """The budget of the ledger; None only if the policy accepts runs without a guarantee."""
        unlimited = self.allow.guarantee == GuaranteeLevel.NONE
        return None if unlimited else Budget(self.budget.epsilon, self.budget.delta)


_TABLES = {"budget": BudgetPolicy, "allow": RunPolicy, "data": DataPolicy}


def read_policy(path: Path) -> Policy:
    """Read a policy file.

    Raises:
        InvalidInput: the file cannot be read, or holds an unknown or invalid entry.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}; every client needs a policy") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not valid TOML: {error}") from error
    try:
        check_known("entry", content, ["name", *_TABLES])
        tables = {key: _parse_table(key, content[key]) for key in _TABLES if key in content}
        return Policy(name=coerce("name", content.get("name", ""), str), **tables)
    except (InvalidInput, TypeError) as error:
        raise InvalidInput(f"{path}: {error}") from error


def _parse_table(name: str, content: object) -> Any:
    if not isinstance(content, Mapping):
        raise InvalidInput(f"{name} must be a table of settings, got {content!r}; write [{name}]")
    types = {field.name: field.type for field in fields(_TABLES[name])}
    check_known(f"setting in [{name}]", content, types)
    values = {key: _parse_value(f"{name}.{key}", value, types[key]) for key, value in content.items()}
    return _TABLES[name](**values)


def _parse_value(name: str, value: Any, kind: Any) -> Any:
    if kind != tuple[str, ...]:
        return coerce(name, value, kind)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidInput(f"{name} must be a list of names, got {value!r}")
    return tuple(value)


def check_config_against_policy(policy: Policy, config: RunConfig) -> None:
    """Refuse a configuration that requests more than the policy allows; reads no data.

    Raises:
        Refusal: with the code of the first violation.

    Guarantee: a run that passes can spend at most the policy's (ε, δ) by its own calibration. The owner's
    ledger counts every release as well, so several such runs cannot exceed it together.
    """
    for code, violated in _violations(policy, config):
        if violated:
            raise Refusal(code, f"the run exceeds the policy of {policy.name}")
    if policy.data.place < 0 and _has_several_models(policy, config):
        raise Refusal(
            RefusalCode.PLACE, f"family {config.model.family} has one model per position; set data.place in the policy"
        )


def _has_several_models(policy: Policy, config: RunConfig) -> bool:
    """Whether the clients of this run have different models; features of an app have their own."""
    if not config.model.family or not (policy.data.features or policy.data.benchmark):
        return False
    return len(set(model_families()[config.model.family].members)) > 1


def _violations(policy: Policy, config: RunConfig) -> Iterator[tuple[RefusalCode, bool]]:
    allow, levels = policy.allow, list(GuaranteeLevel)
    yield RefusalCode.ROUNDS, config.run.rounds > allow.rounds
    if policy.data.benchmark:
        yield RefusalCode.BENCHMARK, config.benchmark.kind != policy.data.benchmark
        yield RefusalCode.DIVISION, policy.needs_own_split and not policy.data.settings.get("manifest")
    if not uploads_prototypes(config):
        return  # nothing is released
    yield RefusalCode.MECHANISM, config.mechanism.kind not in allow.mechanisms
    yield (RefusalCode.GUARANTEE, levels.index(guarantee_level(config)) > levels.index(GuaranteeLevel(allow.guarantee)))
    yield RefusalCode.EPSILON, not config.budget.epsilon <= policy.budget.epsilon
    if policy.budget.is_split:
        reserved, selection = policy.budget.selection * policy.budget.epsilon, selection_cost(config)
        yield RefusalCode.SELECTION, selection > reserved * (1 + REL_SLACK)
        yield (
            RefusalCode.EPSILON,
            config.budget.epsilon - selection > (policy.budget.epsilon - reserved) * (1 + REL_SLACK),
        )
    yield RefusalCode.DELTA, not config.budget.delta <= policy.budget.delta
    yield RefusalCode.ADJACENCY, config.budget.adjacency != policy.budget.adjacency
    yield RefusalCode.SIMULATION, config.release.noise != NoiseOrigin.SYSTEM and not allow.simulation
    # with public counts, sums hide no count and cannot leave out small classes
    public_counts = config.budget.adjacency == Adjacency.REPLACE_SAME_LABEL
    yield RefusalCode.MIN_CLASS_COUNT, public_counts and config.release.min_count < allow.min_class_count


def selection_cost(config: RunConfig) -> float:
    """The ε of all selections of a run, which are pure events next to its Gaussian noise."""
    if not mechanism_traits(config).has_selection:
        return 0.0
    num_selected = NoiseAllocation.from_fraction(config.model.dim, config.mechanism.keep).num_selected
    budget = Budget(config.budget.epsilon, config.budget.delta)
    pure = selection_config(config).calibrate(budget, config.releases, num_selected).pure_events
    return pure.epsilon if pure else 0.0
