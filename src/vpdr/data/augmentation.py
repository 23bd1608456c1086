"""Small changes that leave a picture what it is: a shifted crop, and a mirror image where that is allowed."""

import torch
from jaxtyping import UInt8
from torch import Tensor

from vpdr.checks import not_negative


def shifted(
    pictures: UInt8[Tensor, "b 3 h w"], padding: int, rng: torch.Generator
) -> UInt8[Tensor, "b 3 h w"]:
    """Each picture moved by up to `padding` pixels each way, with black where nothing was: a random crop."""
    not_negative(padding=padding)
    batch, _, height, width = pictures.shape
    offsets = torch.randint(2 * padding + 1, (2, batch), generator=rng)
    padded = torch.nn.functional.pad(pictures, (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # every crop of every picture, as a view
    crops: UInt8[Tensor, "b 3 h w"] = windows[torch.arange(batch), :, offsets[0], offsets[1]]
    return crops


def mirrored(pictures: UInt8[Tensor, "b 3 h w"], rng: torch.Generator) -> UInt8[Tensor, "b 3 h w"]:
    """Each picture as it is or as in a mirror, with equal chances."""
    turned = torch.randint(2, (len(pictures),), generator=rng).bool()
    seen = pictures.clone()
    seen[turned] = pictures[turned].flip(-1)
    return seen
