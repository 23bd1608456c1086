"""Clients whose true memberships are known."""

import torch

from vpdr.client import Samples, Shard
from vpdr.rng import Streams


def gaussian_shard(
    members: int, non_members: int, classes: int, spectrum: torch.Tensor, *, seed: int = 0, shift: float = 0.0
) -> Shard:
    """Members and non-members of one distribution, or of two that differ by `shift`."""
    rng = Streams(seed).generator("gaussians")
    centres = 3 * torch.randn(classes, len(spectrum), generator=rng)

    def draw(per_class: int, offset: float) -> Samples:
        labels = torch.arange(classes).repeat_interleave(per_class)
        noise = torch.randn(len(labels), len(spectrum), generator=rng) * spectrum.sqrt()
        return Samples(centres[labels] + noise + offset, labels)

    return Shard(draw(members, 0.0), draw(non_members, shift))
