"""What every frozen network has: places for adapters, and a pooled feature."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

Adapters = Mapping[int, Callable[[Tensor], Tensor]]  # by the number of the block that they follow


class Site(NamedTuple):
    """A place where an adapter may stand: how wide it is, and whether it is a map of channels."""

    dim: int
    channels: bool


class Network(nn.Module):
    """A frozen network: nothing in it can be trained, and its batch statistics never move.

    `slope` is what random weights are drawn with, so that activations neither fade nor grow with depth.
    """

    pooled_dim: int
    sites: tuple[Site, ...]
    slope: float = 5**0.5

    def train(self, mode: bool = True) -> "Network":
        """Stay in evaluation mode whatever the caller asks: a frozen path must not depend on the batch."""
        return super().train(False)

    def features(self, x: Tensor, adapters: Adapters) -> Float[Tensor, "b p"]:
        """The pooled feature, with each block's output passed through its adapter, where it has one."""
        raise NotImplementedError


def adapted(x: Float[Tensor, "*shape"], adapters: Adapters, place: int) -> Float[Tensor, "*shape"]:
    """What the adapter of this place makes of `x`; `x` itself where there is none."""
    return adapters[place](x) if place in adapters else x
