"""From a config to what a run uses: each setting is read where it counts, and only there. No data are loaded.

`vpdr.federation` builds from these parts and reads no section itself, so a setting that no part has read
changes nothing; `vpdr.config.effects` refuses it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vpdr.client import ReleaseConfig, TrainConfig
from vpdr.config import reading, rules
from vpdr.config.config import BenchmarkSection, RunConfig
from vpdr.data import BENCHMARK_SPECS
from vpdr.data.benchmark import SplitConfig
from vpdr.data.own import POOL_CLIENTS
from vpdr.encoder import zoo
from vpdr.encoder.backbone import Backbone
from vpdr.frameworks import Framework
from vpdr.mechanisms import base, split_budget_with_training
from vpdr.privacy import Adjacency, Ledger, NoiseOrigin
from vpdr.prototypes import SUMMARISERS, ClassMeans, Summariser, summarisers
from vpdr.regulariser import RegulariserConfig
from vpdr.rng import Streams
from vpdr.validation import InvalidInput

QUICKSTART_SPLIT = SplitConfig(test_fraction=0.25)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataPlan:
    """Which data are loaded, and how they are split among clients."""

    source: BenchmarkSection  # holds only those settings that the reader of this kind of data uses
    split: SplitConfig | Path  # or the file of a stored split
    pool_split: SplitConfig | None = None  # of own data, where neither they nor the config name clients
    checks_classes: bool = True  # whether a class without samples is refused

    def split_of(self, *, is_pool: bool) -> SplitConfig | Path:
        """The split of data that name their clients, or of a pool that does not."""
        return self.pool_split if is_pool and self.pool_split else self.split


def data_plan(config: RunConfig) -> DataPlan:
    """The data of a config and their split."""
    section = config.benchmark
    source = data_source(section)
    if section.kind in rules.SYNTHETIC_BENCHMARKS:
        return DataPlan(source=source, split=_synthetic_split(section))
    # where labels are private, an error would reveal who lacks a class
    labels_are_public = reading.without_notes(config).budget.adjacency == Adjacency.REPLACE_SAME_LABEL
    checks_classes = labels_are_public and not source.client  # another silo may have the missing classes
    if section.manifest:
        split = Path(section.manifest).expanduser()
        return DataPlan(source=source, split=split, checks_classes=checks_classes)
    pool = _pool_split(config) if section.kind in rules.OWN_KINDS and not section.skew and not source.client else None
    return DataPlan(source=source, split=_split_config(config), pool_split=pool, checks_classes=checks_classes)


def data_source(section: BenchmarkSection) -> BenchmarkSection:
    """The settings that decide which samples are loaded; all others have their default."""
    if section.kind in rules.SYNTHETIC_BENCHMARKS:
        return BenchmarkSection(
            kind=section.kind, clients=section.clients or 4, classes=section.classes, samples=section.samples
        )
    if section.kind in BENCHMARK_SPECS:
        return BenchmarkSection(kind=section.kind, root=section.root, domains=section.domains)
    if section.kind in rules.OWN_KINDS:
        values = {name: getattr(section, name) for name in rules.own_data_settings(section.kind)}
        return BenchmarkSection(kind=section.kind, domains=section.domains, **values)
    return BenchmarkSection(kind=section.kind, samples=section.samples, domains=section.domains)


def own_split(kind: str) -> SplitConfig:
    """How a benchmark is split where the config says nothing else."""
    if kind in rules.OWN_KINDS:
        return SplitConfig()
    return BENCHMARK_SPECS[kind].split_config if kind in BENCHMARK_SPECS else QUICKSTART_SPLIT


def _pool_split(config: RunConfig) -> SplitConfig:
    """The split of samples without clients: by Dirichlet draws, or one by one where no label may decide."""
    clients = config.benchmark.clients or POOL_CLIENTS
    if rules.assignment(config) == "sample_hash":
        return replace(_split_config(config), per_domain=clients)
    return replace(_split_config(config, "pooled"), clients=clients)


def _split_config(config: RunConfig, default_skew: str = "") -> SplitConfig:
    section, assignment = config.benchmark, rules.assignment(config)
    own = own_split(section.kind)
    skew = section.skew or default_skew or own.skew
    changes: dict[str, Any] = {
        "skew": skew,
        "train_fraction": section.train_fraction or own.train_fraction,
        "validation_fraction": section.validation_fraction,
        "test": section.test,
        "assignment": assignment,
    }
    if assignment == "sample_hash":
        # a replaced sample keeps its place, and one that is added or removed moves those of all others
        changes["identity"] = "content" if config.budget.adjacency == Adjacency.ADD_REMOVE else "row"
    if not _has_official_tests(section):
        changes["test_fraction"] = section.test_fraction or own.test_fraction
    if skew == "pooled":
        changes["clients"] = section.clients or own.clients
    else:
        changes["per_domain"] = section.per_domain
    if skew != "domain":
        changes["concentration"] = section.concentration
    if skew != "domain" or changes["per_domain"] > 1:
        changes["minimum"] = section.minimum
    return replace(own, **changes)


def _has_official_tests(section: BenchmarkSection) -> bool:
    """Whether all domains that are loaded come with their own test samples."""
    if section.kind not in BENCHMARK_SPECS:
        return False
    names = section.domains
    return all(domain.test for domain in BENCHMARK_SPECS[section.kind].domains if not names or domain.name in names)


def _synthetic_split(section: BenchmarkSection) -> SplitConfig:
    """Every synthetic client is a domain of its own; labels may be skewed inside, and no other skew counts."""
    if reading.without_notes(section).skew != "label":
        return SplitConfig(skew="domain")
    return SplitConfig(skew=section.skew, concentration=section.concentration, minimum=section.minimum)


@dataclass(frozen=True, kw_only=True, slots=True)
class BackbonePlan:
    """How backbones are loaded."""

    weights: str
    weights_by_name: bool  # a directory of weights holds one for each backbone
    device: str
    pixels: int  # 0: what the benchmark and the backbone are made for
    projection_scale: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPlan:
    """The models of the clients."""

    specs: tuple[zoo.ModelSpec, ...]  # they are assigned to clients in turn
    adapters: str
    dim: int
    dropout: float
    backbone: BackbonePlan | None  # None: the data are made for each client

    def spec_for(self, position: int) -> zoo.ModelSpec:
        """The architecture of the client at a position."""
        return self.specs[position % len(self.specs)]


def model_plan(config: RunConfig) -> ModelPlan:
    """The models of a config."""
    model, has_backbone = config.model, config.benchmark.kind not in rules.SYNTHETIC_BENCHMARKS
    backbone = None
    specs = model_specs(config)
    if config.benchmark.kind in rules.FEATURE_FILES:  # only their projection counts
        scale = model.projection_scale
        backbone = BackbonePlan(weights="", weights_by_name=False, device="cpu", pixels=0, projection_scale=scale)
    elif has_backbone:
        reads_images = any(_modality(spec.backbone) == "image" for spec in specs)
        backbone = BackbonePlan(
            weights=model.weights,
            weights_by_name=bool(model.family),
            device=config.run.device,
            pixels=config.benchmark.pixels if reads_images else 0,
            projection_scale=model.projection_scale,
        )
    return ModelPlan(specs=specs, adapters=model.adapters, dim=model.dim, dropout=model.dropout, backbone=backbone)


def model_specs(config: RunConfig) -> tuple[zoo.ModelSpec, ...]:
    """The architectures of a config: its own, or the members of its family."""
    model, is_synthetic = config.model, config.benchmark.kind in rules.SYNTHETIC_BENCHMARKS
    if not is_synthetic and model.family:
        return zoo.model_families()[model.family].members
    quiet = reading.without_notes(config).model
    projection = (quiet if is_synthetic else model).projection
    backbone = (quiet if is_synthetic or config.benchmark.kind in rules.FEATURE_FILES else model).backbone
    return (zoo.ModelSpec(backbone=backbone, width=model.width, hidden=(model.hidden,), projection=projection),)


def _modality(backbone: str) -> str:
    return zoo.BACKBONES[backbone].info.modality if backbone in zoo.BACKBONES else "image"


def with_own_backbone(config: RunConfig, backbone: Backbone) -> tuple[RunConfig, Backbone]:
    """The config that names it, and the backbone with the config's device and size of images."""
    model, section = config.model, config.benchmark
    if not isinstance(backbone, Backbone):
        raise InvalidInput(f"expected a vpdr.Backbone, got a {type(backbone).__name__}; use vpdr.Backbone.from_module")
    if section.kind in rules.SYNTHETIC_BENCHMARKS:
        raise InvalidInput(f"benchmark {section.kind} has no samples for a backbone; leave out backbone")
    if model.family or model.weights:
        raise InvalidInput("backbone comes with its weights; leave out model.family and model.weights")
    backbone = backbone.to(config.run.device)
    if section.pixels and backbone.pixels:
        backbone = backbone.with_pixels(section.pixels)
    return replace(config, model=replace(model, backbone=zoo.PYTHON_PREFIX + backbone.name)), backbone


def train_config(config: RunConfig, classes: int) -> TrainConfig:
    """Fine-tuning of every client."""
    train = config.train
    return TrainConfig(
        classes=classes, epochs=train.epochs, batch_size=train.batch, lr=train.lr, weight_decay=train.weight_decay
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Participation:
    """Who takes part in a round: by a schedule, or drawn."""

    schedule: Mapping[str, list[int]] | None = None
    fraction: float = 1.0
    dropout: float = 0.0


def participation(config: RunConfig) -> Participation:
    """Who takes part in the rounds of a config."""
    section = config.participation
    if section.schedule:
        return Participation(schedule=section.schedule)
    return Participation(fraction=section.fraction, dropout=section.dropout)


def make_framework(config: RunConfig) -> Framework[Any]:
    """The framework of a config."""
    return rules.make_framework(config, config.framework.kind)


def client_weights(config: RunConfig) -> str:
    """How clients are weighted at the server; `uniform` where the broadcast does not depend on it."""
    framework = make_framework(config)
    if not framework.has_uploads:
        return "uniform"
    summariser, one = _make_summariser(config, framework, classes=1), torch.ones(1)
    has_variances = rules.mechanism_traits(config).is_private and summariser.variances(one, one) is not None
    return config.weights.kind if framework.uses_weights(has_variances=has_variances) else "uniform"


def make_release_config(config: RunConfig, framework: Framework[Any], classes: int, streams: Streams) -> ReleaseConfig:
    """How every client of the config releases, and trains its encoder if that is private."""
    if not framework.has_uploads:
        config = reading.without_notes(config)  # nothing is released
    mechanism, dpsgd_config = rules.make_mechanism(config, config.mechanism.kind, classes, streams), None
    if config.train.is_private:
        mechanism, dpsgd_config = split_budget_with_training(
            mechanism,
            releases=config.releases,
            rounds=config.run.rounds,
            steps_per_round=config.train.epochs,
            training_share=config.train.private_share,
            clip_norm=config.train.gradient_clip,
            expected_batch_size=rules.public_batch_size(config, classes),
        )
    return ReleaseConfig(
        mechanism=mechanism,
        summariser=_make_summariser(config, framework, classes),
        encoder_kind=rules.release_encoder(config),
        max_releases=config.releases,
        clip_norm=reading.without_notes(config).mechanism.clip_norm,
        make_noise=base.ReleaseNoise(None if config.release.noise == NoiseOrigin.SYSTEM else streams),
        dpsgd_config=dpsgd_config,
    )


def _make_summariser(config: RunConfig, framework: Framework[Any], classes: int) -> Summariser:
    summariser, kind = framework.summariser, config.release.summariser
    if kind == "framework" and not isinstance(summariser, ClassMeans):
        return summariser
    name = "means" if kind == "framework" else kind  # release.min_count applies to a framework's means
    settings = summarisers.SummariserConfig(classes=classes, min_count=config.release.min_count)
    return SUMMARISERS[name].from_config(settings)


def make_ledger(config: RunConfig, client: str) -> Ledger:
    """The empty ledger of a client."""
    budget = rules.ledger_budget(config)
    if budget is None or not rules.uploads_prototypes(config):
        config = reading.without_notes(config)  # nothing is spent: the accountant is only recorded
    return Ledger(
        client=client, budget=budget, accountant=config.budget.accountant, adjacency=Adjacency(config.budget.adjacency)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedRun:
    """All parts of a run that follow from its config."""

    data: DataPlan
    model: ModelPlan
    train: TrainConfig
    framework: Framework[Any]
    regulariser: RegulariserConfig
    release: ReleaseConfig
    ledger: Ledger
    participation: Participation
    client_weights: str
    run: Mapping[str, Any]  # name, seed and length
    required: str  # the weakest guarantee that is accepted


def resolve(config: RunConfig) -> ResolvedRun:
    """All parts of a run; no data are read, so the number of classes may be another than that of the data."""
    run, framework, classes = config.run, make_framework(config), rules.public_classes(config)
    return ResolvedRun(
        data=data_plan(config),
        model=model_plan(config),
        train=train_config(config, classes),
        framework=framework,
        regulariser=rules.make_regulariser(config),
        release=make_release_config(config, framework, classes, Streams(run.seed)),
        ledger=make_ledger(config, run.name),
        participation=participation(config),
        client_weights=client_weights(config),
        run={
            "name": run.name,
            "rounds": run.rounds,
            "seed": run.seed,
            "threads": run.threads,
            "measure_every": run.measure_every,
        },
        required=config.budget.require,
    )
