"""Where privacy noise comes from: the operating system, or a seed that must be declared."""

import os
from dataclasses import dataclass
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class NoiseSource(Protocol):
    """Standard noise in double precision.

    Guarantee: draws are independent across calls. Samples are ordinary floating-point numbers; attacks on
    their low-order bits (Mironov 2012) are outside of the model.
    """

    @property
    def reproducible(self) -> bool:
        """Whether somebody who knows the seed can remove the noise; such a run is not private."""
        ...

    def normal(self, *shape: int) -> Float[Tensor, "..."]:
        """Standard Gaussian draws."""
        ...

    def uniform(self, *shape: int) -> Float[Tensor, "..."]:
        """Draws from the open unit interval."""
        ...


@dataclass(frozen=True, slots=True)
class SystemNoise:
    """Entropy of the operating system: the default wherever privacy is meant."""

    @property
    def reproducible(self) -> bool:
        """Nobody can repeat it."""
        return False

    def normal(self, *shape: int) -> Float[Tensor, "..."]:
        """By inversion, within 8.2 standard deviations."""
        draws: Tensor = torch.special.ndtri(self.uniform(*shape))
        return draws

    def uniform(self, *shape: int) -> Float[Tensor, "..."]:
        """The middles of 2⁵² equal cells, so that neither 0 nor 1 is drawn."""
        words = np.frombuffer(os.urandom(8 * prod(shape)), dtype=np.uint64) >> np.uint64(12)
        return torch.from_numpy((words.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)


@dataclass(frozen=True, slots=True)
class SeededNoise:
    """Noise for science: the same seed gives the same release, and therefore no secrecy."""

    rng: torch.Generator

    @property
    def reproducible(self) -> bool:
        """Whoever knows the seed can subtract the noise."""
        return True

    def normal(self, *shape: int) -> Float[Tensor, "..."]:
        """The next draws of the generator."""
        return torch.randn(*shape, generator=self.rng, dtype=torch.float64)

    def uniform(self, *shape: int) -> Float[Tensor, "..."]:
        """The next draws of the generator, 0 excluded."""
        return torch.rand(*shape, generator=self.rng, dtype=torch.float64).clamp(min=2.0**-54)


def laplace(source: NoiseSource, count: int) -> Float[Tensor, " d"]:
    """Standard Laplace draws, by inversion."""
    centred = source.uniform(count) - 0.5
    return -centred.sign() * torch.log1p(-2 * centred.abs())
