"""What is frozen under each client, and its pooled features, computed once for all runs."""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.data import Benchmark, Domain, Pictures, Roll, TextDomain
from vpdr.encoder import (
    BACKBONES,
    PLACEMENTS,
    Backbone,
    FrozenPath,
    Member,
    Trunk,
    cached_pooled,
    family_member,
    load_backbone,
    path_from,
)
from vpdr.engines.origins import ORIGINS
from vpdr.errors import InvalidInput
from vpdr.plan.plan import Plan
from vpdr.plan.sections import BenchmarkSection
from vpdr.progress import Progress
from vpdr.rng import Streams
from vpdr.types import Inputs


def member_of(plan: Plan, index: int) -> Member:
    """The architecture of client number `index`: the plan's, or its family's in turn."""
    model = plan.model
    if model.family:
        return family_member(model.family, index)
    return Member(
        backbone=model.backbone, width=model.width, hidden=(model.hidden,), projection=model.projection
    )


def trunk_of(plan: Plan, member: Member, streams: Streams) -> Trunk:
    """The backbone and the projection of that architecture; equal shapes give equal projections."""
    return Trunk(backbone_of(plan, member.backbone), frozen_path(plan, member, streams))


def frozen_path(plan: Plan, member: Member, streams: Streams) -> FrozenPath:
    """The projection of that architecture: from the plan and its seed alone, so known without any data."""
    model, traits = plan.model, BACKBONES[member.backbone].traits
    rng = streams.draw("projection")
    return path_from(traits, member.projection, model.dim, rng=rng, scale=model.projection_scale)


def backbone_of(plan: Plan, name: str) -> Backbone:
    """A backbone with the plan's weights; a family's lie in folders that are named after its backbones."""
    weights = plan.model.weights
    if plan.model.family and weights and Path(weights).expanduser().is_dir():
        weights = str(Path(weights).expanduser() / name)
    pixels = plan.benchmark.pixels or ORIGINS[plan.benchmark.kind].pixels
    return _backbone(name, weights, plan.run.device, pixels)


@lru_cache(maxsize=4)  # a family has at most four
def _backbone(name: str, weights: str, device: str, pixels: int) -> Backbone:
    loaded = load_backbone(name, weights, device)
    return loaded.at(pixels) if pixels and loaded.pixels else loaded


@dataclass(frozen=True, slots=True)
class Wanted:
    """The features of one benchmark under one backbone; who watches makes no difference."""

    section: BenchmarkSection = field(compare=False)
    name: tuple[str, str, int, tuple[str, ...], int]
    backbone: Backbone
    fed: bool  # whether the samples themselves are needed again, by encoders that train inside the backbone
    progress: Progress = field(compare=False)


@dataclass(frozen=True, slots=True)
class Pooled:
    """A benchmark under one backbone, domain after domain."""

    benchmark: Benchmark
    features: Float[Tensor, "n p"]
    inputs: Inputs | None


def wanted(plan: Plan, backbone: Backbone, progress: Progress) -> Wanted:
    """All that its features depend on."""
    section = plan.benchmark
    name = (section.kind, section.root, section.samples, tuple(section.domains), backbone.pixels)
    return Wanted(section, name, backbone, PLACEMENTS[plan.model.adapters] is not None, progress)


@lru_cache(maxsize=4)  # every run of a comparison uses the same features
def pooled(want: Wanted) -> Pooled:
    """The features, from the cache on disk where they are there."""
    backbone, progress, origin = want.backbone, want.progress, ORIGINS[want.section.kind]
    benchmark = origin.load(want.section, backbone.pixels, progress)
    _check_modality(benchmark, backbone)
    inputs = _inputs(benchmark, backbone, origin.flips) if want.fed else None
    features, start = [], 0
    for domain in benchmark.domains:

        def told(done: int, total: int, name: str = domain.name) -> None:
            progress(f"features of {name}", done, total)

        rows = torch.arange(start, start + len(domain))
        raw = raw_of(domain) if inputs is None else inputs.take(rows)
        features.append(cached_pooled(backbone, raw, progress=told))
        start += len(domain)
    return Pooled(benchmark, torch.cat(features), inputs)


def _inputs(benchmark: Benchmark, backbone: Backbone, flips: bool) -> Inputs:
    """All samples of a benchmark as this backbone reads them, for training inside it."""
    if backbone.pixels:
        return Pictures.of(benchmark, pixels=backbone.pixels, flips=flips)
    texts = [text for domain in benchmark.domains if isinstance(domain, TextDomain) for text in domain.texts]
    return backbone.inputs(texts)


def raw_of(domain: Roll) -> object:
    """What a backbone reads of a domain: its pictures or its texts."""
    if isinstance(domain, Domain):
        return domain.images
    if isinstance(domain, TextDomain):
        return domain.texts
    raise InvalidInput(f"domain {domain.name} has labels only; load it with its samples")


def _check_modality(benchmark: Benchmark, backbone: Backbone) -> None:
    found = "text" if isinstance(benchmark.domains[0], TextDomain) else "image"
    if found != backbone.modality:
        fitting = [name for name, entry in BACKBONES.items() if entry.traits.modality == found]
        raise InvalidInput(
            f"benchmark {benchmark.name} needs a backbone for {found}s, got {backbone.name}; set "
            f"model.backbone to one of {', '.join(fitting)}"
        )
