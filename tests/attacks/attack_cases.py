"""Clients and uploads whose truth is known."""

import torch

from vpdr.client import Samples, Shard
from vpdr.rng import Streams


def gaussian_shard(
    inside: int, outside: int, classes: int, spectrum: torch.Tensor, *, seed: int = 0, shift: float = 0.0
) -> Shard:
    """Members and non-members of one distribution, or of two that `shift` keeps apart."""
    rng = Streams(seed).draw("gaussians")
    centres = 3 * torch.randn(classes, len(spectrum), generator=rng)

    def drawn(count: int, moved: float) -> Samples:
        labels = torch.arange(classes).repeat_interleave(count)
        noise = torch.randn(len(labels), len(spectrum), generator=rng) * spectrum.sqrt()
        return Samples(centres[labels] + noise + moved, labels)

    return Shard(drawn(inside, 0.0), drawn(outside, shift))
