"""The one way to average over a batch."""

from jaxtyping import Float
from torch import Tensor


def mean(values: Float[Tensor, " b"], weights: Float[Tensor, " b"]) -> Float[Tensor, ""]:
    """The batch mean, in which rows of weight 0 do not exist."""
    return (values * weights).sum() / weights.sum().clamp(min=1e-6)
