"""Features on which no release can fail."""

import torch
from jaxtyping import Float
from torch import Tensor

MOST = 1e15  # of a coordinate; beyond it, squares and sums in single precision could overflow on some samples


def usual(features: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The same features, with NaN as 0 and every coordinate within ±MOST; what was there stays bit for bit.

    Guarantee: a function of each number alone. An encoder that training or a server has made steep then gives
    every sample some feature to be clipped, so that no failure of a release can depend on a sample.
    """
    most = min(MOST, torch.finfo(features.dtype).max)
    return features.nan_to_num().clamp(-most, most)
