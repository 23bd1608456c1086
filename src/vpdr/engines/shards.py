"""From a plan's benchmark to the data of each client."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.client import Samples, Shard
from vpdr.data.domains import Benchmark
from vpdr.data.partition import Indices, dirichlet, keep, skew_labels, split_train_test
from vpdr.data.quickstart import load_quickstart
from vpdr.data.synthetic import blobs
from vpdr.encoder import POOLED_DIM, cached_pooled, load_lite0, make_path
from vpdr.plan.plan import Plan
from vpdr.plan.sections import BenchmarkSection
from vpdr.plan.values import known
from vpdr.rng import Streams

EVEN = 1e6  # a concentration at which every client gets the same share of every class

Progress = Callable[[str, int, int], None]


def shards_of(plan: Plan, streams: Streams, progress: Progress) -> tuple[dict[str, Shard], int]:
    """The data of each client by its name, and the number of classes."""
    shards, classes = _MAKERS[plan.benchmark.kind](plan, streams, progress)
    known("client in participation.schedule", plan.participation.schedule, shards)
    return shards, classes


def _quickstart(plan: Plan, streams: Streams, progress: Progress) -> tuple[dict[str, Shard], int]:
    benchmark, pooled = pooled_quickstart(plan.benchmark.samples, plan.benchmark.pixels or 96, progress)
    model = plan.model
    path = make_path(
        model.projection,
        POOLED_DIM,
        model.dim,
        rng=streams.draw("projection"),
        scale=model.projection_scale,
    )
    shards: dict[str, Shard] = {}
    for domain, features in zip(benchmark.domains, pooled, strict=True):
        everything = Samples(path(features), torch.from_numpy(domain.labels))
        shards |= _dealt(plan.benchmark, domain.name, everything, streams)
    return shards, benchmark.classes


def _dealt(section: BenchmarkSection, domain: str, everything: Samples, streams: Streams) -> dict[str, Shard]:
    """One domain's samples to its clients; all of them are tested on the same samples of the domain."""
    labels = everything.labels.numpy()
    train, test = split_train_test(
        labels, section.test_fraction or 0.25, streams.draw("split", client=domain)
    )
    train = keep(labels, train, section.train_fraction or 1.0, streams.draw("keep", client=domain))
    parts = _parts(section, labels[train], streams.draw("skew", client=domain))
    names = [domain] if len(parts) == 1 else [f"{domain}-{number}" for number in range(1, len(parts) + 1)]
    tested = everything.take(torch.from_numpy(test))
    return {
        name: Shard(everything.take(torch.from_numpy(train[part])), tested)
        for name, part in zip(names, parts, strict=True)
    }


def _parts(section: BenchmarkSection, labels: Indices, rng: torch.Generator) -> tuple[Indices, ...]:
    """Which training samples of a domain each of its clients gets."""
    if section.skew == "label" and section.per_domain == 1:
        return skew_labels([labels], section.concentration, rng, section.minimum)
    alpha = section.concentration if section.skew == "label" else EVEN
    if section.per_domain > 1:
        return dirichlet(labels, section.per_domain, alpha, rng, section.minimum)
    return (np.arange(len(labels)),)


def _synthetic(plan: Plan, streams: Streams, _: Progress) -> tuple[dict[str, Shard], int]:
    section = plan.benchmark
    each = max(1, section.samples // section.classes)
    made = blobs(section.clients or 4, section.classes, plan.model.dim, each, streams)
    shards = {
        f"client-{index:03d}": Shard(Samples(one.train_x, one.train_y), Samples(one.test_x, one.test_y))
        for index, one in enumerate(made)
    }
    if section.skew == "label":
        for name, shard in shards.items():
            rows = _parts(section, shard.train.labels.numpy(), streams.draw("skew", client=name))[0]
            shards[name] = Shard(shard.train.take(torch.from_numpy(rows)), shard.test)
    return shards, section.classes


@lru_cache(maxsize=2)  # every run of a comparison uses the same features
def pooled_quickstart(
    samples: int, pixels: int, progress: Progress
) -> tuple[Benchmark, tuple[Float[Tensor, "n 1280"], ...]]:
    """The embedded benchmark with its pooled features, from the cache where they are there."""
    benchmark = load_quickstart(samples)
    backbone = load_lite0()
    features = []
    for domain in benchmark.domains:

        def told(done: int, total: int, name: str = domain.name) -> None:
            progress(name, done, total)

        features.append(cached_pooled(backbone, domain.images, pixels=pixels, progress=told))
    return benchmark, tuple(features)


_MAKERS = {"quickstart": _quickstart, "synthetic": _synthetic}
