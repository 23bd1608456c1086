"""Audit targets that keep their claim, and deliberately broken parts that the product does not offer."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from jaxtyping import Float, Int64
from torch import Tensor

from vpdr import ClassMeans
from vpdr.audits import AuditConfig, AuditTarget
from vpdr.audits.auditor import AuditOptions, request_from_options
from vpdr.audits.target import make_noise_factory
from vpdr.client import Client, Samples
from vpdr.mechanisms.base import NoiseSource
from vpdr.privacy import Adjacency

ROUNDS = 4


def make_target(*settings: str, **options: object) -> AuditTarget:
    """A target as `vpdr audit` makes it; targets are immutable, so equal ones are shared."""
    return _cached_target(AuditOptions(**{"rounds": ROUNDS, "settings": settings, **options}))


@cache
def _cached_target(options: AuditOptions) -> AuditTarget:
    return request_from_options(options).target


def make_config(trials: int = 120, seed: int = 1, **options: object) -> AuditConfig:
    return AuditConfig(**{"trials": trials, "noise": make_noise_factory(seed), **options})


@dataclass(frozen=True)
class ScaledNoise:
    """A noise source whose Gaussian draws are too small by a factor."""

    source: NoiseSource
    factor: float

    @property
    def reproducible(self) -> bool:
        return False

    def rounded_gaussian(self, scales: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        return (self.factor * self.source.rounded_gaussian(scales)).round().long()

    def discrete_laplace(self, scales: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        return self.source.discrete_laplace(scales)


def scaled_noise(factor: float, seed: int = 1) -> Callable[[], NoiseSource]:
    make_noise = make_noise_factory(seed)
    return lambda: ScaledNoise(make_noise(), factor)


def repeated_noise(seed: int = 10) -> Callable[[], NoiseSource]:
    """The mistake of seeding everything before each run."""
    return lambda: make_noise_factory(seed)()


@dataclass(frozen=True, kw_only=True)
class UnsoundMeans(ClassMeans):
    """Class means that claim a sensitivity although counts are private."""

    def sensitivity(self, adjacency, clip_norm, sizes):
        return 2 * clip_norm / sizes.double()


def target_with_unsound_means(**options: object) -> AuditTarget:
    target = make_target(adjacency=Adjacency.REPLACE_ONE, **options)
    release_config = dataclasses.replace(target.client.release_config, summariser=UnsoundMeans())
    return dataclasses.replace(target, client=dataclasses.replace(target.client, release_config=release_config))


class MisdeclaredClient(Client):
    """Declares a public encoder, and releases features of its own trained one."""

    def released_features(self, samples: Samples) -> Float[Tensor, "n d"]:
        return self.personal_features(samples)


TRAINING = ("benchmark.samples=512", "model.dim=8", "train.epochs=1", "train.batch=64", "train.lr=2e-2")


def target_with_misdeclared_encoder() -> AuditTarget:
    target = make_target(*TRAINING, rounds=3)
    fields = {field.name: getattr(target.client, field.name) for field in dataclasses.fields(Client)}
    return dataclasses.replace(target, client=MisdeclaredClient(**fields))
