"""From a config to each client's data: loading, frozen features, and the split among clients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path

import torch

import vpdr.data.benchmark as data
from vpdr.client import Samples, Shard
from vpdr.config import BenchmarkSection, RunConfig, rules
from vpdr.data import BENCHMARK_SPECS, quickstart
from vpdr.data.images import ImageInputs
from vpdr.data.spec import BenchmarkSpec
from vpdr.encoder import personal, zoo
from vpdr.encoder.backbone import Backbone, FeatureInputs, cached_pooled_features
from vpdr.rng import Streams
from vpdr.types import Float, Inputs, ProgressCallback, Tensor
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


def load_clients(
    config: RunConfig, streams: Streams, progress: ProgressCallback, positions: Mapping[str, int] | None = None
) -> ClientSetups:
    """Load the data and split them among the clients of the config.

    With `positions` only these clients are loaded, as by a node that has the data of one silo: the position
    of each among all clients decides its architecture.
    """
    section = config.benchmark
    if section.kind in rules.SYNTHETIC_BENCHMARKS and positions is None:
        return _make_synthetic_clients(config, streams)

    @cache
    def encode(spec: zoo.ModelSpec) -> tuple[data.Benchmark, personal.FrozenEncoder, Samples]:
        """The whole benchmark by one architecture; equal shapes give equal projections."""
        model, backbone = config.model, backbone_for(config, spec.backbone)
        info, rng = zoo.BACKBONES[spec.backbone].info, streams.generator("projection")
        projection = personal.projection_for(info, spec.projection, model.dim, rng=rng, scale=model.projection_scale)
        key = (section.kind, section.root, section.samples, tuple(section.domains), backbone.pixels)
        keep_inputs = personal.PLACEMENTS[model.adapters] is not None
        benchmark, features, inputs = pooled_features(FeatureKey(section, key, backbone, keep_inputs, progress))
        if inputs is None and projection.trained_by_clients:
            inputs = FeatureInputs(features)
        with torch.no_grad():
            samples = Samples(projection(features), torch.from_numpy(benchmark.labels), inputs)
        return benchmark, personal.FrozenEncoder(backbone, projection), samples

    benchmark = encode(model_spec_for(config, min(positions.values()) if positions else 0))[0]
    if section.manifest:
        split = data.read_split(Path(section.manifest).expanduser())
        split.check(benchmark)
    else:
        own = benchmark_loader(section.kind).split_config
        split_config = replace(
            own,
            test_fraction=section.test_fraction or own.test_fraction,
            train_fraction=section.train_fraction or own.train_fraction,
            validation_fraction=section.validation_fraction,
            skew=section.skew or own.skew,
            concentration=section.concentration,
            clients=section.clients or own.clients,
            per_domain=section.per_domain,
            minimum=section.minimum,
            test=section.test,
        )
        split = data.split_benchmark(benchmark, split_config, streams)
    if positions is None:
        positions = {part.client: position for position, part in enumerate(split.client_splits)}
        check_known("client in participation.schedule", config.participation.schedule, positions)
    clients = {}
    for part in split.client_splits:
        if part.client in positions:
            spec = model_spec_for(config, positions[part.client])
            _, frozen_encoder, samples = encode(spec)
            train, test, validation = (
                samples.take(torch.from_numpy(rows)) for rows in (part.train, part.test, part.validation)
            )
            shard = Shard(train, test, validation if len(part.validation) else None)
            clients[part.client] = ClientSetup(shard=shard, model_spec=spec, frozen_encoder=frozen_encoder)
    return ClientSetups(clients=clients, classes=benchmark.classes, split=split)


def _make_synthetic_clients(config: RunConfig, streams: Streams) -> ClientSetups:
    section = config.benchmark
    per_class = max(1, section.samples // section.classes)
    blobs = quickstart.make_blobs(section.clients or 4, section.classes, config.model.dim, per_class, streams)
    clients = {}
    for position, blob in enumerate(blobs):
        name, train = f"client-{position:03d}", Samples(blob.train_x, blob.train_y)
        if section.skew == "label":
            rule = data.SplitConfig(skew="label", concentration=section.concentration, minimum=section.minimum)
            rows = data.partition_domain(train.labels.numpy(), rule, streams.generator("skew", client=name))[0]
            train = train.take(torch.from_numpy(rows))
        shard = Shard(train, Samples(blob.test_x, blob.test_y))
        clients[name] = ClientSetup(shard=shard, model_spec=model_spec_for(config, position))
    check_known("client in participation.schedule", config.participation.schedule, clients)
    return ClientSetups(clients=clients, classes=section.classes)


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkLoader:
    """How one kind of benchmark is loaded and split."""

    load: Callable[[BenchmarkSection, int, ProgressCallback], data.Benchmark]
    split_config: data.SplitConfig
    allow_flip: bool = False  # whether a mirrored image still belongs to its class
    pixels: int = 0  # 0: the backbone's own


def benchmark_loader(kind: str) -> BenchmarkLoader:
    """The loader of an embedded benchmark or of a registered one."""
    if kind not in BENCHMARK_SPECS:
        split_config, pixels = data.SplitConfig(test_fraction=0.25), quickstart.BACKBONE_PIXELS
        return BenchmarkLoader(load=_load_quickstart_domains, split_config=split_config, pixels=pixels)
    spec = BENCHMARK_SPECS[kind]
    load = partial(_load_from_disk, spec)
    return BenchmarkLoader(load=load, split_config=spec.split_config, allow_flip=spec.allow_flip)


def _load_from_disk(
    spec: BenchmarkSpec, section: BenchmarkSection, pixels: int, progress: ProgressCallback
) -> data.Benchmark:
    if not section.root:
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


def model_spec_for(config: RunConfig, position: int) -> zoo.ModelSpec:
    """The architecture of the client at a position: the config's, or the next of its family."""
    model = config.model
    if model.family:
        return zoo.family_model_spec(model.family, position)
    hidden = (model.hidden,)
    return zoo.ModelSpec(backbone=model.backbone, width=model.width, hidden=hidden, projection=model.projection)


def backbone_for(config: RunConfig, name: str) -> Backbone:
    """A backbone with the config's weights; those of a family lie in directories named by backbone."""
    weights = config.model.weights
    if config.model.family and weights and Path(weights).expanduser().is_dir():
        weights = str(Path(weights).expanduser() / name)
    pixels = config.benchmark.pixels or benchmark_loader(config.benchmark.kind).pixels
    return _load_backbone_at(name, weights, config.run.device, pixels)


@lru_cache(maxsize=4)  # a family has at most four
def _load_backbone_at(name: str, weights: str, device: str, pixels: int) -> Backbone:
    backbone = zoo.load_backbone(name, weights, device)
    return backbone.with_pixels(pixels) if pixels and backbone.pixels else backbone


@dataclass(frozen=True, slots=True)
class FeatureKey:
    """All that pooled features depend on; the fields that are not compared follow from it."""

    section: BenchmarkSection = field(compare=False)
    key: tuple[str, str, int, tuple[str, ...], int]
    backbone: Backbone
    keep_inputs: bool  # whether encoders train inside the backbone and need the samples themselves
    progress: ProgressCallback = field(compare=False)


@lru_cache(maxsize=4)  # every run of a comparison uses the same features
def pooled_features(key: FeatureKey) -> tuple[data.Benchmark, Float[Tensor, "n p"], Inputs | None]:
    """A benchmark, its features, domain after domain, from the cache on disk if they are there, and its samples."""
    backbone, progress, loader = key.backbone, key.progress, benchmark_loader(key.section.kind)
    benchmark = loader.load(key.section, backbone.pixels, progress)
    modality = "text" if isinstance(benchmark.domains[0], data.TextDomain) else "image"
    if modality != backbone.modality:
        names = [name for name, entry in zoo.BACKBONES.items() if entry.info.modality == modality]
        raise InvalidInput(
            f"benchmark {benchmark.name} needs a backbone for {modality}s, got {backbone.name}; set "
            f"model.backbone to one of {', '.join(names)}"
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
