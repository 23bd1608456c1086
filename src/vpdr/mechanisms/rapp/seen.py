"""What a client's stages have released so far. Everything here is public: it is made of noisy numbers."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.types import Memory

_PRIOR_SPREAD = 0.4  # how far off the declared clip norm is taken to be, of its square


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """Sums over stages k, each weighted by its precision, and where the last centres were."""

    stage: int  # stages behind
    weight: Float[Tensor, ""]  # Σ w, w = 1/noise² of a sum
    sums: Float[Tensor, "p r"]  # Σ w S
    centred: Float[Tensor, "p r"]  # Σ w centre
    counts: Float[Tensor, " p"]  # Σ of noisy counts, each times its precision
    counted: Float[Tensor, ""]  # Σ of those precisions
    centres: Float[Tensor, "p r"]
    moment: Float[Tensor, ""]  # mean squared distance of a sample from its centre, as far as it is known
    moment_weight: Float[Tensor, ""]

    @classmethod
    def nothing(cls, rows: int, dim: int, radius: float) -> "Seen":
        """Before the first stage: only the declared radius is known."""
        none, flat = torch.zeros((), dtype=torch.float64), torch.zeros(rows, dim, dtype=torch.float64)
        square = torch.tensor(radius**2, dtype=torch.float64)
        return cls(
            stage=0,
            weight=none,
            sums=flat,
            centred=flat,
            counts=torch.zeros(rows, dtype=torch.float64),
            counted=none,
            centres=flat,
            moment=square,
            moment_weight=(_PRIOR_SPREAD * square) ** -2,
        )

    def memory(self) -> Memory:
        """As the client keeps it between rounds."""
        named = {name: getattr(self, name) for name in self.__slots__}
        return {**named, "stage": torch.tensor(self.stage)}

    @classmethod
    def recalled(cls, memory: Memory) -> "Seen":
        """The inverse of `memory`."""
        parts: dict[str, Any] = {**memory, "stage": int(memory["stage"])}
        return cls(**parts)

    def estimate(self, counts: Float[Tensor, " p"]) -> Float[Tensor, "p r"]:
        """The centres so far, and how far the samples were from them on average."""
        return (self.centred + self.sums / counts[:, None]) / self.weight

    def variances(self, counts: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """The noise in each coordinate of `estimate`."""
        return 1 / (counts.square() * self.weight)


def read_counts(seen: Seen, total: int | None, hidden: bool) -> Float[Tensor, " p"]:
    """Class counts as far as they are known: exact where they are public, else shrunk to their mean.

    `total` is the size of the dataset where that is public. A count below its own noise is read as that
    noise: a prototype divided by less would be noise alone.
    """
    told = seen.counts / seen.counted
    if not hidden:
        return told.clamp(min=1)
    noise = 1 / seen.counted
    mean = (told.sum() if total is None else torch.tensor(float(total))).clamp(min=1) / len(told)
    spread = ((told - mean).square().mean() - noise).clamp(min=0)
    return (mean + spread / (spread + noise) * (told - mean)).clamp(min=max(1.0, float(noise.sqrt())))
