"""From a config to a federation: clients with their releases and ledgers, and the server."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import torch

import vpdr.data.benchmark as data
from vpdr.client import Client, Model, Samples, Shard
from vpdr.config import BenchmarkSection, RunConfig, resolve, rules
from vpdr.data import ARRAYS, BENCHMARK_SPECS, OWN_DATA, Dataset, DatasetOptions, quickstart, read_dataset
from vpdr.data.images import ImageInputs
from vpdr.data.own import DatasetDescription
from vpdr.data.spec import BenchmarkSpec
from vpdr.encoder import personal, zoo
from vpdr.encoder.backbone import Backbone, BackboneInfo, FeatureInputs, cached_pooled_features
from vpdr.frameworks import Framework, FrameworkState, ServerContext
from vpdr.rng import Streams
from vpdr.types import Float, Inputs, ProgressCallback, Prototypes, Tensor, no_progress
from vpdr.validation import InvalidInput, check_known


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSetup:
    """One client before the first round. The shard is private, the rest is public."""

    shard: Shard
    model_spec: zoo.ModelSpec
    frozen_encoder: personal.FrozenEncoder | None = None  # None: data without a backbone


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSetups:
    """All clients by name, and the split that made them."""

    clients: dict[str, ClientSetup]
    classes: int
    split: data.Split | None = None  # None: synthetic data, which are made for each client
    description: DatasetDescription | None = None  # of the user's own data, for the record


def load_clients(
    config: RunConfig,
    streams: Streams,
    progress: ProgressCallback,
    positions: Mapping[str, int] | None = None,
    *,
    own_backbone: Backbone | None = None,
    split_key: bytes | None = None,
    dataset: Dataset | None = None,
) -> ClientSetups:
    """Load the data and split them among the clients of the config.

    With `positions` only these clients are loaded, as by a node that has the data of one silo: the position
    of each among all clients decides its architecture. `own_backbone` replaces that of the config,
    `split_key` is the owner's, for a split sample by sample, and `dataset` is data in memory.
    """
    data_plan, models = resolve.data_plan(config), resolve.model_plan(config)
    source = data_plan.source
    if source.kind in rules.SYNTHETIC_BENCHMARKS and positions is None:
        return _make_synthetic_clients(config, data_plan, models, streams)
    backbones = models.backbone
    if backbones is None:
        raise InvalidInput(f"benchmark {source.kind} is made for all clients at once; it has no data of single clients")

    loader = benchmark_loader(source, dataset)

    @cache
    def encode(spec: zoo.ModelSpec) -> tuple[data.Benchmark, personal.FrozenEncoder | None, Samples]:
        """The whole benchmark by one architecture; equal shapes give equal projections."""
        if loader.modality == "features":
            rules.check_features(config)
            benchmark = loader.load(source, 0, progress)
            return benchmark, None, _given_features(benchmark, models, backbones, spec.projection, streams)
        backbone = own_backbone or load_backbone(backbones, loader.pixels, spec.backbone)
        rng, scale = streams.generator("projection"), backbones.projection_scale
        projection = personal.projection_for(backbone.info, spec.projection, models.dim, rng=rng, scale=scale)
        key = (source.kind, source.root, source.samples, tuple(source.domains), backbone.pixels, loader.dataset)
        keep_inputs = personal.PLACEMENTS[models.adapters] is not None
        benchmark, features, inputs = pooled_features(FeatureKey(source, loader, key, backbone, keep_inputs, progress))
        if inputs is None and projection.trained_by_clients:
            inputs = FeatureInputs(features)
        with torch.no_grad():
            samples = Samples(projection(features), torch.from_numpy(benchmark.labels), inputs)
        return benchmark, personal.FrozenEncoder(backbone, projection), samples

    benchmark = encode(models.spec_for(min(positions.values()) if positions else 0))[0]
    if data_plan.checks_classes:
        benchmark.check_every_class()
    split = _read_or_draw_split(benchmark, data_plan.split_of(is_pool=loader.is_pool), streams, split_key)
    if positions is None:
        positions = {part.client: position for position, part in enumerate(split.client_splits)}
        check_known("client in participation.schedule", resolve.participation(config).schedule or (), positions)
    clients = {}
    for part in split.client_splits:
        if part.client in positions:
            spec = models.spec_for(positions[part.client])
            _, frozen_encoder, samples = encode(spec)
            train, test, validation = (
                samples.take(torch.from_numpy(rows)) for rows in (part.train, part.test, part.validation)
            )
            shard = Shard(train, test, validation if len(part.validation) else None)
            clients[part.client] = ClientSetup(shard=shard, model_spec=spec, frozen_encoder=frozen_encoder)
    return ClientSetups(clients=clients, classes=benchmark.classes, split=split, description=loader.description)


def _read_or_draw_split(
    benchmark: data.Benchmark, rule: data.SplitConfig | Path, streams: Streams, key: bytes | None
) -> data.Split:
    if not isinstance(rule, Path):
        return data.split_benchmark(benchmark, rule, streams, key=key)
    split = data.read_split(rule)
    split.check(benchmark)
    return split


def _given_features(
    benchmark: data.Benchmark,
    models: resolve.ModelPlan,
    backbones: resolve.BackbonePlan,
    projection_kind: str,
    streams: Streams,
) -> Samples:
    """Features of an encoder outside of vpdr: as they are if they fit the model, else projected at random."""
    domains = [domain for domain in benchmark.domains if isinstance(domain, data.FeatureDomain)]
    features = torch.cat([torch.from_numpy(domain.features) for domain in domains])
    if features.shape[1] != models.dim:
        info = BackboneInfo(modality="features", pooled_dim=features.shape[1], adapter_width=0)
        rng, scale = streams.generator("projection"), backbones.projection_scale
        projection = personal.projection_for(info, projection_kind, models.dim, rng=rng, scale=scale)
        with torch.no_grad():
            features = projection(features)
    return Samples(features, torch.from_numpy(benchmark.labels))


def _make_synthetic_clients(
    config: RunConfig, data_plan: resolve.DataPlan, models: resolve.ModelPlan, streams: Streams
) -> ClientSetups:
    source, rule = data_plan.source, data_plan.split
    per_class = max(1, source.samples // source.classes)
    blobs = quickstart.make_blobs(source.clients, source.classes, models.dim, per_class, streams)
    clients = {}
    for position, blob in enumerate(blobs):
        name, train = f"client-{position:03d}", Samples(blob.train_x, blob.train_y)
        if isinstance(rule, data.SplitConfig) and rule.skew == "label":
            rows = data.partition_domain(train.labels.numpy(), rule, streams.generator("skew", client=name))[0]
            train = train.take(torch.from_numpy(rows))
        shard = Shard(train, Samples(blob.test_x, blob.test_y))
        clients[name] = ClientSetup(shard=shard, model_spec=models.spec_for(position))
    check_known("client in participation.schedule", resolve.participation(config).schedule or (), clients)
    return ClientSetups(clients=clients, classes=source.classes)


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkLoader:
    """How one kind of benchmark is loaded and split."""

    load: Callable[[BenchmarkSection, int, ProgressCallback], data.Benchmark]
    modality: str = "image"
    allow_flip: bool = False  # whether a mirrored image still belongs to its class
    pixels: int = 0  # 0: the backbone's own
    dataset: Dataset | None = None  # the user's own data

    @property
    def is_pool(self) -> bool:
        """Whether nothing says which samples belong to which client."""
        return self.dataset is not None and self.dataset.is_pool

    @property
    def description(self) -> DatasetDescription | None:
        """What the record states about the user's own data."""
        return None if self.dataset is None else self.dataset.describe()


def benchmark_loader(section: BenchmarkSection, dataset: Dataset | None = None) -> BenchmarkLoader:
    """The loader of an embedded benchmark, of a registered one, or of the user's own data."""
    if section.kind in OWN_DATA:
        dataset = read_dataset(section.kind, section.root, dataset_options(section))
    elif section.kind == ARRAYS and dataset is None:
        raise InvalidInput("benchmark arrays is data in memory, got none; give vpdr.run or vpdr.build a dataset")
    if dataset is None and section.kind not in BENCHMARK_SPECS:
        return BenchmarkLoader(load=_load_quickstart_domains, pixels=quickstart.BACKBONE_PIXELS)
    spec = BENCHMARK_SPECS[section.kind] if dataset is None else dataset.to_spec()
    load = partial(_load_from_disk, spec)
    return BenchmarkLoader(load=load, modality=spec.modality, allow_flip=spec.allow_flip, dataset=dataset)


def dataset_options(section: BenchmarkSection) -> DatasetOptions:
    """How the user's own data are read."""
    return DatasetOptions(
        label_column=section.label_column,
        input_column=section.input_column,
        client_column=section.client_column,
        split_column=section.split_column,
        class_names=tuple(section.class_names),
        client=section.client,
    )


def _load_from_disk(
    spec: BenchmarkSpec, section: BenchmarkSection, pixels: int, progress: ProgressCallback
) -> data.Benchmark:
    if not section.root and not spec.is_own:
        raise InvalidInput(
            f"benchmark {spec.name} needs its data, got no folder; give --data {spec.name}=DIR "
            f"(`vpdr data list` says where to get it)"
        )
    return spec.load(
        Path(section.root),
        pixels=pixels or 224,
        progress=lambda name, done, total: progress(f"images of {name}", done, total),
        domains=section.domains or None,
    )


def _load_quickstart_domains(section: BenchmarkSection, _pixels: int, _progress: ProgressCallback) -> data.Benchmark:
    check_known("domain of quickstart", section.domains, quickstart.DOMAIN_NAMES)
    benchmark = quickstart.load_quickstart(section.samples)
    names = section.domains or quickstart.DOMAIN_NAMES
    return replace(benchmark, domains=tuple(each for each in benchmark.domains if each.name in names))


def load_backbone(plan: resolve.BackbonePlan, default_pixels: int, name: str) -> Backbone:
    """A backbone, for images of the benchmark's size; weights of a family lie in directories named by backbone."""
    weights = plan.weights
    if plan.weights_by_name and weights and Path(weights).expanduser().is_dir():
        weights = str(Path(weights).expanduser() / name)
    return _load_backbone_at(name, weights, plan.device, plan.pixels or default_pixels)


@lru_cache(maxsize=4)  # a family has at most four
def _load_backbone_at(name: str, weights: str, device: str, pixels: int) -> Backbone:
    backbone = zoo.load_backbone(name, weights, device)
    return backbone.with_pixels(pixels) if pixels and backbone.pixels else backbone


@dataclass(frozen=True, slots=True)
class FeatureKey:
    """All that pooled features depend on; the fields that are not compared follow from it."""

    section: BenchmarkSection = field(compare=False)
    loader: BenchmarkLoader = field(compare=False)
    key: tuple[str, str, int, tuple[str, ...], int, Dataset | None]
    backbone: Backbone
    keep_inputs: bool  # whether encoders train inside the backbone and need the samples themselves
    progress: ProgressCallback = field(compare=False)


@lru_cache(maxsize=4)  # every run of a comparison uses the same features
def pooled_features(key: FeatureKey) -> tuple[data.Benchmark, Float[Tensor, "n p"], Inputs | None]:
    """A benchmark, its features, domain after domain, from the cache on disk if they are there, and its samples."""
    backbone, progress, loader = key.backbone, key.progress, key.loader
    benchmark = loader.load(key.section, backbone.pixels, progress)
    modality = "text" if isinstance(benchmark.domains[0], data.TextDomain) else "image"
    if modality != backbone.modality:
        names = [name for name, entry in zoo.BACKBONES.items() if entry.info.modality == modality]
        raise InvalidInput(
            f"benchmark {benchmark.name} needs a backbone for {modality}s, got {backbone.name}; set "
            f"model.backbone to one of {', '.join(names)}, or {zoo.HF_PREFIX}FOLDER_OR_ID"
        )
    inputs: Inputs | None = None
    if key.keep_inputs and backbone.pixels:
        inputs = ImageInputs.from_benchmark(benchmark, pixels=backbone.pixels, allow_flip=loader.allow_flip)
    elif key.keep_inputs:
        inputs = backbone.make_inputs([text for domain in benchmark.text_domains for text in domain.texts])
    features, start = [], 0
    for domain in benchmark.domains:
        if inputs is not None:
            raw: object = inputs.take(torch.arange(start, start + len(domain)))
        elif isinstance(domain, data.ImageDomain | data.TextDomain):
            raw = domain.images if isinstance(domain, data.ImageDomain) else domain.texts
        else:
            raise InvalidInput(f"domain {domain.name} has labels only; load it with its samples")
        features.append(cached_pooled_features(backbone, raw, progress=partial(progress, f"features of {domain.name}")))
        start += len(domain)
    return benchmark, torch.cat(features), inputs


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """The server: it knows the config, the clients' names and public weights; it has no data and no models.

    Guarantee: a broadcast is computed from uploads and public numbers only, so it costs no privacy.

    Args:
        config: the config of the run.
        framework: how uploads are aggregated.
        names: the clients' names, sorted.
        classes: the public number of classes.
        weights: the weight of each client in each class; row i belongs to names[i].

    >>> from vpdr.config import RunConfig
    >>> from vpdr.federation import build
    >>> server = build(RunConfig.from_dict({"benchmark": {"kind": "synthetic"}, "model": {"dim": 8}})).server
    >>> server.sample_participants(1) == list(server.names)
    True
    """

    config: RunConfig
    framework: Framework[Any]
    names: tuple[str, ...]
    classes: int
    weights: Float[Tensor, "m c"]

    def init_state(self) -> FrameworkState:
        """The framework's state before the first round."""
        return self.framework.init_state(self.context(0, self.names))

    def sample_participants(self, round: int) -> list[str]:
        """The clients of a round: by the schedule if there is one, else drawn from seed and round alone.

        Args:
            round: the round, from 1.

        Returns:
            Their names, sorted.
        """
        rule = resolve.participation(self.config)
        if rule.schedule:
            return [name for name in self.names if round in rule.schedule.get(name, ())]
        if rule.fraction == 1 and rule.dropout == 0:
            return list(self.names)
        rng, count = Streams(self.config.run.seed).generator("participation", round=round), len(self.names)
        num_sampled = math.ceil(rule.fraction * count - 1e-9)
        sampled = set(torch.randperm(count, generator=rng)[:num_sampled].tolist())
        fails = torch.rand(count, generator=rng) < rule.dropout
        return [name for row, name in enumerate(self.names) if row in sampled and not bool(fails[row])]

    def aggregate(
        self, uploads: Mapping[str, Prototypes], state: FrameworkState, round: int
    ) -> tuple[Any, FrameworkState]:
        """Aggregate the uploads of a round.

        Args:
            uploads: the prototypes of each client that sent some, by its name.
            state: the framework's state after the round before; `init_state` at the start. It is not changed.
            round: the round, from 1.

        Returns:
            The broadcast, and the framework's new state.

        Raises:
            InvalidInput: the uploads do not fit each other, or hold NaN or infinity.
        """
        senders = [name for name in self.names if name in uploads]
        return self.framework.aggregate([uploads[name] for name in senders], state, self.context(round, senders))

    def context(self, round: int, senders: Sequence[str]) -> ServerContext:
        """What the server may use besides the uploads of these clients."""
        return ServerContext(
            round=round,
            classes=self.classes,
            dim=self.config.model.dim,
            streams=Streams(self.config.run.seed).fork("server"),
            weights=self.weights[[self.names.index(name) for name in senders]],
        )


@dataclass(frozen=True, kw_only=True)
class Federation:
    """The clients and the server of one run.

    Args:
        config: the config of the run.
        clients: all clients, sorted by id.
        server: the server, with the framework of the run and the clients' public weights.
        streams: the random streams of the run.
        client_setups: what each client was made from: its data and model. Private.
        split: the rows of each client, where the data are a real benchmark.
        description: what the record states about the user's own data.

    Guarantee: equal configs give equal clients, and the server gets none of their data.

    >>> from vpdr.config import RunConfig
    >>> federation = build(RunConfig.from_dict({"benchmark": {"kind": "synthetic", "clients": 2}, "model": {"dim": 8}}))
    >>> len(federation.clients), federation.server.names == tuple(client.id for client in federation.clients)
    (2, True)
    """

    config: RunConfig
    clients: tuple[Client, ...]
    server: Server
    streams: Streams
    client_setups: dict[str, ClientSetup]
    split: data.Split | None = None
    description: DatasetDescription | None = None


def build(
    config: RunConfig,
    progress: ProgressCallback = no_progress,
    *,
    backbone: Backbone | None = None,
    dataset: Dataset | None = None,
) -> Federation:
    """Load the data and make all clients.

    Args:
        config: the config of the run.
        progress: called while data are loaded and features computed.
        backbone: your own encoder, from `Backbone.from_module` or `load_backbone`; None: `config.model.backbone`.
            The federation's config names it `python:NAME`.
        dataset: data in memory, instead of those that the config names.

    Returns:
        The clients before their first round, and the server.

    Raises:
        InvalidInput: data or weights are missing or do not fit the config.

    Guarantee: nothing is released and no ledger is charged.

    >>> federation = build(RunConfig.from_dict({"benchmark": {"kind": "synthetic"}, "model": {"dim": 8}}))
    >>> federation.clients[0].release(1).vectors.shape[1]
    8
    """
    config = config_for(config, dataset)
    if backbone is not None:
        config, backbone = resolve.with_own_backbone(config, backbone)
    setups = load_clients(config, Streams(config.run.seed), progress, own_backbone=backbone, dataset=dataset)
    factory, names = ClientFactory(config, setups.classes), sorted(setups.clients)
    labels = [setups.clients[name].shard.train.labels for name in names]
    counts = torch.stack([torch.bincount(each, minlength=setups.classes) for each in labels])
    weights = {  # class counts are used only where the config declares them public
        "uniform": torch.ones_like(counts),
        "client_size": counts.sum(1, keepdim=True).expand(-1, setups.classes),
        "class_count": counts,
    }
    server = Server(
        config=config,
        framework=factory.framework,
        names=tuple(names),
        classes=setups.classes,
        weights=weights[resolve.client_weights(config)].float(),
    )
    return Federation(
        config=config,
        clients=tuple(factory.make_client(name, setups.clients[name]) for name in names),
        server=server,
        streams=factory.streams,
        client_setups=setups.clients,
        split=setups.split,
        description=setups.description,
    )


def config_for(config: RunConfig, dataset: Dataset | None) -> RunConfig:
    """The config, with the kind of a dataset in memory if there is one."""
    if dataset is None:
        return config
    return replace(config, benchmark=replace(config.benchmark, kind=ARRAYS, root=""))


class ClientFactory:
    """What all clients of a config share; it makes each client from its own data."""

    def __init__(self, config: RunConfig, classes: int) -> None:
        self.config, self.classes, self.streams = config, classes, Streams(config.run.seed)
        self.framework = resolve.make_framework(config)
        self.release_config = resolve.make_release_config(config, self.framework, classes, self.streams)

    def make_client(self, name: str, setup: ClientSetup) -> Client:
        """A client before its first round; equal shapes of models start from equal parameters."""
        model, spec, streams = resolve.model_plan(self.config), setup.model_spec, self.streams
        adapter = personal.AdapterConfig(adapters=model.adapters, width=spec.width, dropout=model.dropout)
        encoder = personal.make_encoder(adapter, model.dim, setup.frozen_encoder, rng=streams.generator("adapter"))
        rng = streams.generator("head")
        head = personal.make_head(model.dim, self.classes, rng=rng, hidden=spec.hidden, dropout=model.dropout)
        return Client(
            id=name,
            shard=setup.shard,
            model=Model(encoder.eval(), head.eval()),
            framework=self.framework,
            release_config=self.release_config,
            regulariser_config=rules.make_regulariser(self.config),
            ledger=resolve.make_ledger(self.config, name),
            train_config=resolve.train_config(self.config, self.classes),
            streams=streams,
        )
