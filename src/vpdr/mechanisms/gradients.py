"""Sums of clipped gradients with noise: all that a step of private training sees of the data."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vpdr.checks import at_least, positive
from vpdr.mechanisms.noise import NoiseSource
from vpdr.privacy.events import Gaussian
from vpdr.privacy.terms import (
    Adjacency,
    Basis,
    Counts,
    EncoderKind,
    Noise,
    Purpose,
    Receipt,
    Terms,
    member,
)

# How far one sample can move a sum of vectors of norm at most 1.
REACH = {Adjacency.REPLACE_SAME_LABEL: 2.0, Adjacency.REPLACE_ONE: 2.0, Adjacency.ADD_REMOVE: 1.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateSteps:
    """How the steps of a private training look at the data: every sample in every step, none drawn.

    Guarantee: one step is one Gaussian event of `multiplier` under `adjacency`, given that each gradient is
    a function of its own sample, of public numbers and of earlier steps (docs/privacy.md, section 14). No
    number but the noisy sum depends on the data, not even how many samples there are.
    """

    clip_norm: float  # C, of a sample's gradient over all parameters together
    multiplier: float  # noise of one step, relative to what one sample can do to the sum
    per_round: int  # E
    planned: int  # steps of the whole run: more would be paid out of what releases need
    divisor: float  # the public number that makes a mean of the sum
    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL

    def __post_init__(self) -> None:
        positive(clip_norm=self.clip_norm, divisor=self.divisor)
        at_least(1, per_round=self.per_round, planned=self.planned)
        Gaussian(self.multiplier)
        object.__setattr__(self, "adjacency", member(Adjacency, self.adjacency))

    def receipt(self, noise: NoiseSource) -> Receipt:
        """What the steps of one round cost; each event is good for one step."""
        public = self.adjacency is Adjacency.REPLACE_SAME_LABEL
        return Receipt(
            events=(Gaussian(self.multiplier),) * self.per_round,
            terms=Terms(
                adjacency=self.adjacency,
                encoder=EncoderKind.ACCOUNTED,
                counts=Counts.PUBLIC if public else Counts.PRIVATE,
                basis=Basis.PROVED,
                noise=Noise.SEEDED if noise.reproducible else Noise.SYSTEM,
            ),
            purpose=Purpose.TRAINING,
        )

    def noisy_mean(
        self, sums: Sequence[Float[Tensor, "..."]], event: Gaussian, noise: NoiseSource
    ) -> list[Float[Tensor, "..."]]:
        """The gradient to follow, from sums of clipped ones and one event that was paid for."""
        std = event.multiplier * REACH[self.adjacency] * self.clip_norm
        return [(each + std * noise.normal(*each.shape)) / self.divisor for each in sums]


def clipped_sums(
    gradients: Sequence[Float[Tensor, "b ..."]], real: Bool[Tensor, " b"], clip_norm: float
) -> list[Float[Tensor, "..."]]:
    """The sum over samples of gradients of norm at most `clip_norm`, in double precision.

    A gradient that is not finite counts as zero: one sample that overflows must not decide the step. Rows
    that only fill a batch up are left out.
    """
    wide = [each.double() for each in gradients]
    norms = torch.stack([each.flatten(1).square().sum(dim=1) for each in wide]).sum(dim=0).sqrt()
    kept = real & torch.isfinite(norms)
    scale = torch.where(kept, clip_norm / norms.clamp(min=clip_norm), 0.0)
    cleaned = [torch.where(kept.view(-1, *[1] * (each.ndim - 1)), each, 0.0) for each in wide]
    return [torch.tensordot(scale, each, dims=1) for each in cleaned]
