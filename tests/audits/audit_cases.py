"""Honest subjects, and broken parts that no product option offers."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vpdr import ClassMeans
from vpdr.audits import Effort, Subject
from vpdr.audits.noises import noise_of
from vpdr.audits.requests import Wish, from_wish
from vpdr.client import Client, Samples
from vpdr.mechanisms import NoiseSource
from vpdr.privacy import Adjacency

ROUNDS = 4


def subject(*settings: str, **wish: object) -> Subject:
    return from_wish(Wish(**{"rounds": ROUNDS, "settings": settings, **wish})).subject


def effort(trials: int = 120, seed: int = 1, **settings: object) -> Effort:
    return Effort(**{"trials": trials, "noise": noise_of(seed), **settings})


@dataclass(frozen=True)
class Weaker:
    """A noise source whose Gaussian draws are too small by a factor."""

    source: NoiseSource
    factor: float

    @property
    def reproducible(self) -> bool:
        return False

    def normal(self, *shape: int) -> Float[Tensor, "..."]:
        return self.factor * self.source.normal(*shape)

    def uniform(self, *shape: int) -> Float[Tensor, "..."]:
        return self.source.uniform(*shape)


def weaker(factor: float, seed: int = 1) -> Callable[[], NoiseSource]:
    fresh = noise_of(seed)
    return lambda: Weaker(fresh(), factor)


@dataclass(frozen=True, kw_only=True)
class BoldMeans(ClassMeans):
    """Class means that claim a sensitivity although counts are private."""

    def sensitivity(self, adjacency, clip_norm, sizes):
        return 2 * clip_norm / sizes.double()


def with_bold_means(**settings: object) -> Subject:
    made = subject(adjacency=Adjacency.REPLACE_ONE, **settings)
    promise = dataclasses.replace(made.client.promise, summarise=BoldMeans())
    return dataclasses.replace(made, client=dataclasses.replace(made.client, promise=promise))


class Liar(Client):
    """Declares a public encoder and releases what its own, trained one sees."""

    def released_features(self, samples: Samples) -> Float[Tensor, "n d"]:
        return self.personal_features(samples)


def with_liar() -> Subject:
    made = subject(
        "benchmark.samples=512", "model.dim=8", "train.epochs=1", "train.batch=64", "train.lr=2e-2", rounds=3
    )
    fields = {each.name: getattr(made.client, each.name) for each in dataclasses.fields(Client)}
    return dataclasses.replace(made, client=Liar(**fields))


def same_draws(seed: int = 10) -> Callable[[], NoiseSource]:
    """The mistake of seeding everything before each run."""
    return lambda: noise_of(seed)()
