"""From a config to each client's data: loading, frozen features, and the split among clients.

Features of the frozen backbone are computed once and shared by all runs of a process and, through a cache on
disk, by later ones.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.client import Samples, Shard
from vpdr.config import SYNTHETIC_BENCHMARKS, BenchmarkSection, RunConfig
from vpdr.data import BENCHMARK_SPECS
from vpdr.data.benchmark import Benchmark, ImageDomain, LabelledDomain, TextDomain
from vpdr.data.images import ImageInputs
from vpdr.data.quickstart import BACKBONE_PIXELS, DOMAIN_NAMES, load_quickstart, make_blobs
from vpdr.data.spec import BenchmarkSpec
from vpdr.data.split import ClientSplit, Split, SplitConfig, partition_domain, read_split, split_benchmark
from vpdr.encoder.backbone import Backbone, cached_pooled_features
from vpdr.encoder.personal import PLACEMENTS, FrozenEncoder, FrozenProjection, projection_for
from vpdr.encoder.preprocess import FeatureInputs
from vpdr.encoder.zoo import BACKBONES, ModelSpec, family_model_spec, load_backbone
from vpdr.errors import InvalidInput
from vpdr.rng import Streams
from vpdr.types import Inputs, ProgressCallback
from vpdr.validation import check_known


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSetup:
    """One client before the first round. The shard is private, the rest is public."""

    shard: Shard
    model_spec: ModelSpec
    frozen_encoder: FrozenEncoder | None = None  # None: data without a backbone


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSetups:
    """All clients by name, and the split that made them."""

    clients: dict[str, ClientSetup]
    classes: int
    split: Split | None = None  # None: synthetic data, which are made for each client


def load_clients(config: RunConfig, streams: Streams, progress: ProgressCallback) -> ClientSetups:
    """Load the data and split them among all clients of the config."""
    if config.benchmark.kind in SYNTHETIC_BENCHMARKS:
        setups = _make_synthetic_clients(config, streams)
    else:
        setups = _load_benchmark_clients(config, streams, progress)
    check_known("client in participation.schedule", config.participation.schedule, setups.clients)
    return setups


def load_selected_clients(
    config: RunConfig, streams: Streams, progress: ProgressCallback, positions: Mapping[str, int]
) -> ClientSetups:
    """Load some clients only, as a node does that has the data of one silo.

    Args:
        config: the config of the run.
        streams: the run's streams.
        progress: called while data are loaded.
        positions: the position of each client among all clients, which decides its architecture.
    """
    return _load_benchmark_clients(config, streams, progress, positions)


def _load_benchmark_clients(
    config: RunConfig, streams: Streams, progress: ProgressCallback, positions: Mapping[str, int] | None = None
) -> ClientSetups:
    """Each client has rows of the benchmark, as features of its own architecture."""
    by_spec: dict[ModelSpec, _EncodedBenchmark] = {}

    def encoded(position: int) -> _EncodedBenchmark:
        spec = model_spec_for(config, position)
        if spec not in by_spec:
            frozen_encoder = frozen_encoder_for(config, spec, streams)
            pooled = pooled_features(feature_key(config, frozen_encoder.backbone, progress))
            samples = _encode_benchmark(frozen_encoder, pooled)
            by_spec[spec] = _EncodedBenchmark(pooled.benchmark, frozen_encoder, samples)
        return by_spec[spec]

    benchmark = encoded(min(positions.values()) if positions else 0).benchmark
    split = load_or_draw_split(benchmark, config.benchmark, streams)
    if positions is None:
        positions = {part.client: position for position, part in enumerate(split.client_splits)}
    clients = {
        part.client: ClientSetup(
            shard=_make_shard(encoded(positions[part.client]).samples, part),
            model_spec=model_spec_for(config, positions[part.client]),
            frozen_encoder=encoded(positions[part.client]).frozen_encoder,
        )
        for part in split.client_splits
        if part.client in positions
    }
    return ClientSetups(clients=clients, classes=benchmark.classes, split=split)


@dataclass(frozen=True, slots=True)
class _EncodedBenchmark:
    """A whole benchmark as features of one architecture."""

    benchmark: Benchmark
    frozen_encoder: FrozenEncoder
    samples: Samples


@torch.no_grad()
def _encode_benchmark(frozen_encoder: FrozenEncoder, pooled: "PooledFeatures") -> Samples:
    """Frozen features, with the inputs that a trained projection or backbone needs."""
    labels = torch.from_numpy(pooled.benchmark.labels)
    inputs = pooled.inputs
    if inputs is None and frozen_encoder.projection.trained_by_clients:
        inputs = FeatureInputs(pooled.features)
    return Samples(frozen_encoder.projection(pooled.features), labels, inputs)


def _make_shard(samples: Samples, part: ClientSplit) -> Shard:
    train, test, validation = (
        samples.take(torch.from_numpy(rows)) for rows in (part.train, part.test, part.validation)
    )
    return Shard(train, test, validation if len(part.validation) else None)


def _make_synthetic_clients(config: RunConfig, streams: Streams) -> ClientSetups:
    section = config.benchmark
    per_class = max(1, section.samples // section.classes)
    blobs = make_blobs(section.clients or 4, section.classes, config.model.dim, per_class, streams)
    clients = {}
    for position, blob in enumerate(blobs):
        name, train = f"client-{position:03d}", Samples(blob.train_x, blob.train_y)
        if section.skew == "label":
            rule = SplitConfig(skew="label", concentration=section.concentration, minimum=section.minimum)
            rows = partition_domain(train.labels.numpy(), rule, streams.generator("skew", client=name))[0]
            train = train.take(torch.from_numpy(rows))
        shard = Shard(train, Samples(blob.test_x, blob.test_y))
        clients[name] = ClientSetup(shard=shard, model_spec=model_spec_for(config, position))
    return ClientSetups(clients=clients, classes=section.classes)


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkLoader:
    """How one kind of benchmark is loaded and split."""

    load: Callable[[BenchmarkSection, int, ProgressCallback], Benchmark]
    split_config: SplitConfig
    allow_flip: bool = False  # whether a mirrored image still belongs to its class
    pixels: int = 0  # 0: the backbone's own


def benchmark_loader(kind: str) -> BenchmarkLoader:
    """The loader of an embedded benchmark or of a registered one."""
    if kind in EMBEDDED_LOADERS:
        return EMBEDDED_LOADERS[kind]
    spec = BENCHMARK_SPECS[kind]
    return BenchmarkLoader(
        load=partial(_load_from_disk, spec), split_config=spec.split_config, allow_flip=spec.allow_flip
    )


def _load_from_disk(
    spec: BenchmarkSpec, section: BenchmarkSection, pixels: int, progress: ProgressCallback
) -> Benchmark:
    if not section.root:
        raise InvalidInput(
            f"benchmark {spec.name} needs its data, got no folder; give --data {spec.name}=DIR "
            f"(`vpdr data list` says where to get it)"
        )

    def report(name: str, done: int, total: int) -> None:
        progress(f"pictures of {name}", done, total)

    domains = section.domains or None
    return spec.load(Path(section.root), pixels=pixels or 224, progress=report, domains=domains)


def _load_quickstart_domains(section: BenchmarkSection, _pixels: int, _progress: ProgressCallback) -> Benchmark:
    check_known("domain of quickstart", section.domains, DOMAIN_NAMES)
    benchmark = load_quickstart(section.samples)
    names = section.domains or DOMAIN_NAMES
    domains = tuple(domain for domain in benchmark.domains if domain.name in names)
    return dataclasses.replace(benchmark, domains=domains)


EMBEDDED_LOADERS: dict[str, BenchmarkLoader] = {
    "quickstart": BenchmarkLoader(
        load=_load_quickstart_domains, split_config=SplitConfig(test_fraction=0.25), pixels=BACKBONE_PIXELS
    )
}


def load_or_draw_split(benchmark: Benchmark, section: BenchmarkSection, streams: Streams) -> Split:
    """The stored split that the config names, or a new one."""
    if section.manifest:
        split = read_split(Path(section.manifest).expanduser())
        split.check(benchmark)
        return split
    return split_benchmark(benchmark, split_config_for(section), streams)


def split_config_for(section: BenchmarkSection) -> SplitConfig:
    """The benchmark's own split, with the changes of the config."""
    own = benchmark_loader(section.kind).split_config
    return dataclasses.replace(
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


def model_spec_for(config: RunConfig, position: int) -> ModelSpec:
    """The architecture of the client at a position: the config's, or the next of its family."""
    model = config.model
    if model.family:
        return family_model_spec(model.family, position)
    return ModelSpec(backbone=model.backbone, width=model.width, hidden=(model.hidden,), projection=model.projection)


def frozen_encoder_for(config: RunConfig, spec: ModelSpec, streams: Streams) -> FrozenEncoder:
    """The backbone and the projection of an architecture; equal shapes give equal projections."""
    return FrozenEncoder(backbone_for(config, spec.backbone), frozen_projection(config, spec, streams))


def frozen_projection(config: RunConfig, spec: ModelSpec, streams: Streams) -> FrozenProjection:
    """The projection of an architecture, from the config and the seed alone."""
    model, info = config.model, BACKBONES[spec.backbone].info
    rng = streams.generator("projection")
    return projection_for(info, spec.projection, model.dim, rng=rng, scale=model.projection_scale)


def backbone_for(config: RunConfig, name: str) -> Backbone:
    """A backbone with the config's weights; those of a family lie in directories named by backbone."""
    weights = config.model.weights
    if config.model.family and weights and Path(weights).expanduser().is_dir():
        weights = str(Path(weights).expanduser() / name)
    pixels = config.benchmark.pixels or benchmark_loader(config.benchmark.kind).pixels
    return _load_backbone_at(name, weights, config.run.device, pixels)


@lru_cache(maxsize=4)  # a family has at most four
def _load_backbone_at(name: str, weights: str, device: str, pixels: int) -> Backbone:
    backbone = load_backbone(name, weights, device)
    return backbone.with_pixels(pixels) if pixels and backbone.pixels else backbone


@dataclass(frozen=True, slots=True)
class FeatureKey:
    """All that pooled features depend on; the fields that are not compared follow from it."""

    section: BenchmarkSection = field(compare=False)
    key: tuple[str, str, int, tuple[str, ...], int]
    backbone: Backbone
    keep_inputs: bool  # whether encoders train inside the backbone and need the samples themselves
    progress: ProgressCallback = field(compare=False)


@dataclass(frozen=True, slots=True)
class PooledFeatures:
    """The features of a benchmark by one backbone, domain after domain."""

    benchmark: Benchmark
    features: Float[Tensor, "n p"]
    inputs: Inputs | None


def feature_key(config: RunConfig, backbone: Backbone, progress: ProgressCallback) -> FeatureKey:
    """The key of the config's features by this backbone."""
    section = config.benchmark
    key = (section.kind, section.root, section.samples, tuple(section.domains), backbone.pixels)
    return FeatureKey(section, key, backbone, PLACEMENTS[config.model.adapters] is not None, progress)


@lru_cache(maxsize=4)  # every run of a comparison uses the same features
def pooled_features(key: FeatureKey) -> PooledFeatures:
    """The features, from the cache on disk if they are there."""
    backbone, progress, loader = key.backbone, key.progress, benchmark_loader(key.section.kind)
    benchmark = loader.load(key.section, backbone.pixels, progress)
    _check_modality(benchmark, backbone)
    inputs = _training_inputs(benchmark, backbone, loader.allow_flip) if key.keep_inputs else None
    features, start = [], 0
    for domain in benchmark.domains:

        def report(done: int, total: int, name: str = domain.name) -> None:
            progress(f"features of {name}", done, total)

        rows = torch.arange(start, start + len(domain))
        raw = raw_inputs(domain) if inputs is None else inputs.take(rows)
        features.append(cached_pooled_features(backbone, raw, progress=report))
        start += len(domain)
    return PooledFeatures(benchmark, torch.cat(features), inputs)


def _training_inputs(benchmark: Benchmark, backbone: Backbone, allow_flip: bool) -> Inputs:
    """All samples of a benchmark as this backbone reads them, for training inside it."""
    if backbone.pixels:
        return ImageInputs.from_benchmark(benchmark, pixels=backbone.pixels, allow_flip=allow_flip)
    texts = [text for domain in benchmark.domains if isinstance(domain, TextDomain) for text in domain.texts]
    return backbone.make_inputs(texts)


def raw_inputs(domain: LabelledDomain) -> object:
    """What a backbone reads of a domain: its images or its texts."""
    if isinstance(domain, ImageDomain):
        return domain.images
    if isinstance(domain, TextDomain):
        return domain.texts
    raise InvalidInput(f"domain {domain.name} has labels only; load it with its samples")


def _check_modality(benchmark: Benchmark, backbone: Backbone) -> None:
    modality = "text" if isinstance(benchmark.domains[0], TextDomain) else "image"
    if modality != backbone.modality:
        names = [name for name, entry in BACKBONES.items() if entry.info.modality == modality]
        raise InvalidInput(
            f"benchmark {benchmark.name} needs a backbone for {modality}s, got {backbone.name}; set "
            f"model.backbone to one of {', '.join(names)}"
        )
