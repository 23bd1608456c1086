"""Which settings fit together, and what follows from them: names, plug-ins, and the guarantee.

Rules name no plug-in: they ask the traits that plug-ins declare.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vpdr.config import reading
from vpdr.data import ARRAYS, BENCHMARK_SPECS, OWN_DATA
from vpdr.encoder import personal, zoo
from vpdr.frameworks import FRAMEWORKS, Framework
from vpdr.mechanisms import MECHANISMS, Mechanism, MechanismConfig, MechanismTraits, SelectionConfig
from vpdr.privacy import ACCOUNTANTS, Adjacency, Budget, EncoderKind, GuaranteeLevel, guarantee
from vpdr.prototypes import SUMMARISERS, ClassMeans, Summariser
from vpdr.regulariser import REGULARISERS, RegulariserConfig
from vpdr.rng import Streams
from vpdr.validation import InvalidInput, check_known, coerce, format_error

if TYPE_CHECKING:
    from vpdr.config.config import RunConfig

SYNTHETIC_BENCHMARKS = {"synthetic"}  # features without images or texts
FEATURE_FILES = {"features"}  # features of an encoder outside of vpdr
OWN_KINDS = {*OWN_DATA, ARRAYS}
OWN_DATA_SETTINGS = tuple(dict.fromkeys(name for kind in OWN_DATA.values() for name in kind.settings))
NO_BACKBONE = (
    "benchmark {} has no images for a backbone; leave out model.family and a trained projection, and set "
    "model.adapters=last"
)
PLUGINS: dict[str, Mapping[str, Any]] = {"framework": FRAMEWORKS, "mechanism": MECHANISMS, "regulariser": REGULARISERS}

_SET_ELSEWHERE = {"summariser", "uses_broadcast_features", "clip_norm"}  # by settings of other sections
_ENCODERS = {"public": EncoderKind.PUBLIC, "broadcast": EncoderKind.BROADCAST, "personal": EncoderKind.PERSONAL}
_CHANGES = {  # by whether the noise is exact: what gives a plan a stronger guarantee
    True: "release.encoder=public and release.summariser=sums",
    False: "mechanism.kind to one with exact noise",
}
_LEVELS = list(GuaranteeLevel)  # from the strongest to the weakest


class UndeclaredEncoder(InvalidInput):
    """Features whose encoder would have to be public, and nobody has declared that it is."""


def benchmark_names() -> list[str]:
    """All values of `benchmark.kind`: those that need no files of the user's come first."""
    return ["quickstart", *SYNTHETIC_BENCHMARKS, *BENCHMARK_SPECS, *OWN_DATA, ARRAYS]


def own_data_settings(kind: str) -> tuple[str, ...]:
    """The settings that decide how own data of a kind are read."""
    return ("root", *OWN_DATA[kind].settings) if kind in OWN_DATA else ("encoder",)


def check_config(config: "RunConfig") -> None:
    """Refuse a config that cannot run, or whose guarantee is weaker than it requires, with a remedy in one line."""
    section, model = config.benchmark, config.model
    check_known("benchmark", [section.kind], benchmark_names())
    zoo.check_backbone(model.backbone)
    check_known("place of adapters", [model.adapters], personal.PLACEMENTS)
    check_known("projection", [model.projection], personal.PROJECTIONS)
    check_known("family", [model.family] if model.family else [], zoo.model_families())
    if section.kind in BENCHMARK_SPECS:
        domains = [domain.name for domain in BENCHMARK_SPECS[section.kind].domains]
        check_known(f"domain of {section.kind}", section.domains, domains)
    check_known("framework", [config.framework.kind], FRAMEWORKS)
    check_known("mechanism", [config.mechanism.kind], MECHANISMS)
    check_known("regulariser", [config.regulariser.kind], REGULARISERS)
    check_known("accountant", [config.budget.accountant], ACCOUNTANTS)
    check_known("adjacency", [config.budget.adjacency], list(Adjacency))
    check_known("summariser", [config.release.summariser], ["framework", *SUMMARISERS])
    # values that only a plug-in or an accountant can check
    budget = Budget(config.budget.epsilon, config.budget.delta)
    ACCOUNTANTS[config.budget.accountant].noise_multiplier(budget, 1)  # raises where no Gaussian is possible
    selection_config(config)
    make_regulariser(config)
    for kind in config.framework.options:
        make_framework(config, kind)
    for kind in config.mechanism.options:
        make_mechanism(config, kind, public_classes(config), Streams(config.run.seed))
    for violated, message in _rules(config):
        if violated:
            raise InvalidInput(message)
    if section.kind in FEATURE_FILES:
        check_features(config)


def _rules(config: "RunConfig") -> Iterator[tuple[bool, str]]:
    """All rules as (violated, message), in the order in which they are checked."""
    section, budget, release, weights = config.benchmark, config.budget, config.release, config.weights
    synthetic, traits = section.kind in SYNTHETIC_BENCHMARKS, mechanism_traits(config)
    pooled = section.per_domain > 1 and section.skew == "pooled"
    yield pooled, "a pool is shared by benchmark.clients; leave out benchmark.per_domain"
    message = f"benchmark {section.kind} has one client a domain; set benchmark.clients, not per_domain"
    yield synthetic and section.per_domain > 1, message
    needs_images = bool(config.model.family) or _trains_inside_backbone(config)
    yield synthetic and needs_images, NO_BACKBONE.format(section.kind)
    framework = make_framework(config, config.framework.kind)
    own_means = release.summariser == "framework" and isinstance(framework.summariser, ClassMeans)
    no_means = not own_means and release.summariser != "means"
    message = "release.min_count is for class means; leave it out, or set release.summariser=means"
    yield release.min_count > 1 and no_means, message
    for client, rounds in config.participation.schedule.items():
        is_list = isinstance(rounds, list) and all(type(round) is int for round in rounds)
        yield not is_list, f"participation.schedule.{client} must be a list of rounds, got {rounds!r}"
        message = f"participation.schedule.{client} must lie in 1 to {config.run.rounds}, got {rounds}"
        yield not all(1 <= round <= config.run.rounds for round in rounds), message
    adjacency = Adjacency(budget.adjacency)
    counts_are_private = adjacency is not Adjacency.REPLACE_SAME_LABEL and traits.is_private
    message = (
        f"adjacency {adjacency} keeps class counts private, and summariser {release.summariser} gives them "
        "away; set release.summariser=sums"
    )
    if counts_are_private and framework.has_uploads:
        yield not release_summariser(config).counts_are_private(adjacency), message
    message = (
        f"weights {weights.kind} need public counts, adjacency {adjacency} keeps them private; set weights.kind=uniform"
    )
    yield counts_are_private and weights.kind != "uniform", message
    level = guarantee_level(config)
    required = GuaranteeLevel.NONE if budget.require == "anything" else GuaranteeLevel(budget.require)
    message = (
        f"the plan requires a guarantee that is {budget.require}, this one would be {level}; "
        f"set {_CHANGES[mechanism_traits(config).is_exact]}, or lower budget.require"
    )
    yield _LEVELS.index(level) > _LEVELS.index(required), message
    if release_encoder(config) is EncoderKind.BROADCAST:
        yield from _broadcast_rules(config)
    dim, kind, summariser = config.mechanism.release_dim, config.mechanism.kind, release.summariser
    yield dim > config.model.dim, f"mechanism.release_dim must be at most model.dim = {config.model.dim}, got {dim}"
    if framework.has_uploads:  # releases that are added up must be of the same features
        check_encoder_is_fixed(config, release_encoder(config))
        hides_counts = summariser in SUMMARISERS and SUMMARISERS[summariser].counts_are_private(Adjacency.REPLACE_ONE)
        message = f"mechanism {kind} releases class sums, got summariser {summariser}; set release.summariser=sums"
        yield traits.is_accumulating and not hides_counts, message
    if config.train.is_private:
        for violated, reason in _dp_training_rules(config):
            yield violated, f"train.privacy={config.train.privacy} {reason}"


def _broadcast_rules(config: "RunConfig") -> Iterator[tuple[bool, str]]:
    """The framework must broadcast a feature map, and something must be released after it."""
    kind = config.framework.kind
    if make_framework(config, kind).encoder_kind is not EncoderKind.BROADCAST:
        variants = {name: each.from_config({}).with_broadcast_features() for name, each in FRAMEWORKS.items()}
        able = " or ".join(name for name, variant in variants.items() if variant is not None)
        yield (
            True,
            f"release.encoder=broadcast needs a framework that broadcasts a feature map ({able}), got "
            f"{kind}; set framework.kind={able}, or release.encoder=public",
        )
    yield (
        config.releases < 2,
        "release.encoder=broadcast needs at least two releases, since the first comes before any feature map, "
        f"got {config.releases}; raise run.rounds and release.count, or set release.encoder=public",
    )


def check_features(config: "RunConfig") -> None:
    """Refuse what features of an encoder outside of vpdr cannot give: a backbone, or a guarantee nobody declared.

    Guarantee: features count as those of a public encoder only if the config declares it.
    """
    section, encoder = config.benchmark, release_encoder(config)
    if config.model.family or _trains_inside_backbone(config):
        raise InvalidInput(NO_BACKBONE.format(section.kind))
    if uploads_prototypes(config) and encoder is not EncoderKind.PERSONAL and section.encoder != "public":
        got = section.encoder or "nothing"
        raise UndeclaredEncoder(
            f"releases of {encoder_setting(encoder)} features are private only if the encoder of the given features "
            f"was trained without the private samples; declare it with benchmark.encoder=public, got {got}, or set "
            "release.encoder=personal"
        )


def assignment(config: "RunConfig") -> str:
    """How samples are assigned to parts and clients.

    Guarantee: where labels are private, own data are assigned sample by sample, unless the config asks for label
    skew or for tests in a client's label proportions, which read every label.
    """
    section = config.benchmark
    labels_are_private = config.budget.adjacency != Adjacency.REPLACE_SAME_LABEL
    reads_labels = section.skew not in ("", "domain") or section.test != "whole"
    if section.kind in OWN_KINDS and labels_are_private and not reads_labels:
        return "sample_hash"
    return section.assignment


def check_encoder_is_fixed(config: "RunConfig", encoder: EncoderKind) -> None:
    """Refuse to add up releases of features that change between rounds."""
    adds_up = mechanism_traits(config).is_accumulating or config.mechanism.accumulate
    if adds_up and not encoder.is_fixed:
        raise InvalidInput(
            f"mechanism {config.mechanism.kind} adds releases up, which needs an encoder that stays as it is, got "
            f"{encoder_setting(encoder)}; set release.encoder=public"
        )


def _dp_training_rules(config: "RunConfig") -> Iterator[tuple[bool, str]]:
    """Only noisy sums of gradients may reach the encoder, and its guarantee must be of use."""
    yield (
        not uploads_prototypes(config) or release_encoder(config) is not EncoderKind.DP_TRAINED,
        "spends budget on an encoder from which nothing is released; set release.encoder=personal and a "
        "framework that uploads, or train.privacy=none",
    )
    yield (
        not mechanism_traits(config).is_private or guarantee_level(config) is GuaranteeLevel.NONE,
        "is of no use beside a release that is not private; set mechanism.kind=igpp",
    )
    yield (
        config.releases < 2,
        f"trains the encoder between two releases, and needs at least two releases, got {config.releases}; raise "
        "run.rounds and release.count, or set train.privacy=none",
    )
    yield (
        not make_framework(config, config.framework.kind).loss_is_per_sample,
        f"needs a loss of one sample each, and framework {config.framework.kind} does not say that it has "
        "one; choose another framework",
    )
    yield (
        not has_noop_regulariser(config),
        f"cannot use regulariser {config.regulariser.kind}, whose teacher is trained without privacy; set "
        "regulariser.kind=none",
    )
    yield (
        _trains_inside_backbone(config),
        "trains one adapter after the pooled feature; set model.adapters=last and a frozen projection",
    )


def coerce_options(
    section: str, tables: Mapping[str, Mapping[str, Any]], settings: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """The options of plug-ins by name: `tables` are the sub-tables of a section with these `settings`.

    The options of a framework or regulariser are the parameters of its class. Those of a mechanism are what
    its `from_config` reads; `make_mechanism` checks them.
    """
    check_known(f"{section} table", tables, PLUGINS[section])
    out: dict[str, dict[str, Any]] = {}
    for kind, options in tables.items():
        table = f"{section}.{kind}"
        for name in set(options) & set(settings):
            raise InvalidInput(f"{table}.{name} is a setting of its section; set {section}.{name}")
        out[kind] = dict(options)
        if section != "mechanism":
            types = _parameter_types(PLUGINS[section][kind])
            check_known(f"setting in [{table}]", options, types.keys() - _SET_ELSEWHERE)
            out[kind] = {name: coerce(f"{table}.{name}", value, types[name]) for name, value in options.items()}
    return out


def _parameter_types(plug_in: Any) -> dict[str, Any]:
    try:
        parameters = inspect.signature(plug_in, eval_str=True).parameters
    except NameError:  # of a type that is imported for type checkers only
        parameters = inspect.signature(plug_in).parameters
    return {name: parameter.annotation for name, parameter in parameters.items()}


@contextmanager
def _plug_in_errors(table: str) -> Iterator[None]:
    """Errors of a plug-in that cannot use its options, on one line with the name of the table."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidInput(f"[{table}] {format_error(error)}") from error


def make_framework(config: "RunConfig", kind: str) -> Framework[Any]:
    """A framework with the config's options; with `release.encoder=broadcast`, its broadcasting variant."""
    with _plug_in_errors(f"framework.{kind}"):
        framework = FRAMEWORKS[kind].from_config(config.framework.options.get(kind, {}))
    if config.release.encoder == "broadcast":
        return framework.with_broadcast_features() or framework
    return framework


def make_regulariser(config: "RunConfig") -> RegulariserConfig:
    """The regulariser of the config, at the mechanism's clip norm."""
    section, regulariser = config.regulariser, REGULARISERS[config.regulariser.kind]
    accepted = {*_parameter_types(regulariser), *section.options.get(section.kind, {})}
    options = reading.PlugInOptions(section, section.kind, accepted)
    mechanism = reading.without_notes(config).mechanism if regulariser.is_noop else config.mechanism
    with _plug_in_errors("regulariser"):
        return regulariser.from_config(mechanism.clip_norm, options)


def make_mechanism(config: "RunConfig", kind: str, classes: int, streams: Streams) -> Mechanism:
    """A mechanism, calibrated to the budget; all clients share its public random draws.

    Own options that its `from_config` has not read are refused.
    """
    section, rng = config.mechanism, streams.generator("release-space")
    options = reading.PlugInOptions(section, kind)
    is_private = MECHANISMS[kind].traits.is_private  # else the adjacency is only recorded
    adjacency = (config if is_private else reading.without_notes(config)).budget.adjacency
    mechanism_config = reading.lazily(
        MechanismConfig,
        budget=lambda: Budget(config.budget.epsilon, config.budget.delta),
        releases=lambda: config.releases,
        clip_norm=lambda: section.clip_norm,
        dim=lambda: config.model.dim,
        classes=lambda: classes,
        adjacency=lambda: Adjacency(adjacency),
        accountant=lambda: config.budget.accountant,
        samples_per_class=lambda: section.expected,
        rng=lambda: rng,
        options=lambda: options,
    )
    with _plug_in_errors(f"mechanism.{kind}"):
        mechanism = MECHANISMS[kind].from_config(mechanism_config)
    check_known(f"setting in [mechanism.{kind}]", section.options.get(kind, {}), options.names_read)
    return mechanism


def mechanism_traits(config: "RunConfig") -> MechanismTraits:
    """The traits of the config's mechanism."""
    return MECHANISMS[config.mechanism.kind].traits


def has_noop_regulariser(config: "RunConfig") -> bool:
    """Whether the regulariser adds nothing."""
    return REGULARISERS[config.regulariser.kind].is_noop


def selection_config(config: "RunConfig") -> SelectionConfig:
    """The settings of the selection of coordinates."""
    section = config.mechanism
    return SelectionConfig(keep=section.keep, cap=section.cap, share=section.share, selection=section.selection)


def _selection_is_private(config: "RunConfig") -> bool:
    return SelectionConfig(selection=config.mechanism.selection).is_private


def guarantee_level(config: "RunConfig") -> GuaranteeLevel:
    """The level of the guarantee of the config's releases."""
    if not uploads_prototypes(config):
        return GuaranteeLevel.PROVED
    traits = mechanism_traits(config)
    if not traits.is_private or (traits.has_selection and not _selection_is_private(config)):
        return GuaranteeLevel.NONE
    if release_summariser(config).basis is guarantee.SensitivityBasis.AS_PUBLISHED:
        return GuaranteeLevel.AS_PUBLISHED
    is_personal = release_encoder(config) is EncoderKind.PERSONAL
    return GuaranteeLevel.PROVED if traits.is_exact and not is_personal else GuaranteeLevel.CONDITIONAL


def ledger_budget(config: "RunConfig") -> Budget | None:
    """What the ledger of a client allows; no limit where the releases are not private."""
    if guarantee_level(config) is GuaranteeLevel.NONE:
        return None
    budget = (config if uploads_prototypes(config) else reading.without_notes(config)).budget
    return Budget(budget.epsilon, budget.delta)


def public_batch_size(config: "RunConfig", classes: int) -> float:
    """The number by which DP-SGD divides noisy sums: the declared samples, or else `train.batch`; never a count."""
    return float(config.mechanism.expected * classes or config.train.batch)


def run_parts(config: "RunConfig") -> dict[str, str]:
    """What a run is, in words of its settings: data, framework, mechanism, regulariser and budget."""
    section, level = config.benchmark, guarantee_level(config)
    split = f" ({section.skew} skew)" if section.skew else ""
    parts = {"data": f"{section.kind}{split}", "framework": config.framework.kind}
    if uploads_prototypes(config):
        parts["mechanism"] = config.mechanism.kind
    parts["regulariser"] = config.regulariser.kind
    if not uploads_prototypes(config):
        parts["budget"] = "nothing is released"
    elif level is GuaranteeLevel.NONE:
        parts["budget"] = "not private"
    else:
        parts["budget"] = f"epsilon {config.budget.epsilon:g} and delta {config.budget.delta:g}"
    return parts


def run_title(configs: Sequence["RunConfig"]) -> str:
    """One line on what runs are: `data quickstart, framework fedproto, mechanism vpp, regulariser dcr, budget ...`."""
    values: dict[str, dict[str, None]] = {}
    for config in configs:
        for part, text in run_parts(config).items():
            values.setdefault(part, {})[text] = None
    return ", ".join(f"{part} {' or '.join(texts)}" for part, texts in values.items())


def public_classes(config: "RunConfig") -> int:
    """The number of classes before data are loaded."""
    section = reading.without_notes(config).benchmark
    spec = BENCHMARK_SPECS.get(section.kind)
    return len(spec.class_names) if spec else section.classes


def release_summariser(config: "RunConfig") -> Summariser | type[Summariser]:
    """The summariser that the config names, or the framework's own."""
    kind = config.release.summariser
    if kind == "framework":
        return make_framework(config, config.framework.kind).summariser
    return SUMMARISERS[kind]


def release_encoder(config: "RunConfig") -> EncoderKind:
    """The encoder whose features are released: the config's choice, or the framework's."""
    if config.release.encoder == "framework":
        kind = make_framework(config, config.framework.kind).encoder_kind
    else:
        kind = _ENCODERS[config.release.encoder]
    return EncoderKind.DP_TRAINED if kind is EncoderKind.PERSONAL and config.train.is_private else kind


def uploads_prototypes(config: "RunConfig") -> bool:
    """Whether clients upload anything."""
    return make_framework(config, config.framework.kind).has_uploads


def _trains_inside_backbone(config: "RunConfig") -> bool:
    model = config.model
    members = zoo.model_families()[model.family].members if model.family else ()
    projections = {each.projection for each in members} or {model.projection}
    is_trained = any(personal.PROJECTIONS[name].trained_by_clients for name in projections)
    return personal.PLACEMENTS[model.adapters] is not None or is_trained


def encoder_setting(encoder: EncoderKind) -> str:
    """The setting's word for an encoder; the words in ledgers differ."""
    return next((name for name, kind in _ENCODERS.items() if kind is encoder), str(encoder))
