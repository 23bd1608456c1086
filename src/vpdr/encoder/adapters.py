"""Residual adapters with seeded dropout, and the sites in a frozen network where they are inserted."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vpdr.errors import InvalidInput

BlockAdapters = Mapping[int, Callable[[Tensor], Tensor]]  # by the index of the block that they follow


class SeededDropout(nn.Module):
    """Dropout that draws from its own generator instead of the global one.

    The trainer sets `rng` for each round (see `seed_dropout`). A copy starts without a generator, so that two
    models never share one.

    Args:
        p: the probability of zeroing an entry, in [0, 1).

    Raises:
        InvalidInput: `p` is out of range; in `forward`, `rng` was not set.

    >>> dropout = SeededDropout(0.5)
    >>> seed_dropout(dropout, torch.Generator().manual_seed(0))
    >>> sorted(dropout(torch.ones(8)).unique().tolist())
    [0.0, 2.0]
    """

    rng: torch.Generator | None

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise InvalidInput(f"dropout must lie in [0, 1), got {p}; use 0.1, or 0 for none")
        self.p = p
        self.rng = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"rng": None}

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Zero entries with probability `p` and scale the others by 1 / (1 - p), in training only."""
        if not self.training or self.p == 0:
            return x
        if self.rng is None:
            raise InvalidInput("dropout in training needs a generator, got none; call seed_dropout first")
        mask = torch.empty(x.shape, device=self.rng.device).bernoulli_(1 - self.p, generator=self.rng)
        return x * mask.to(x) / (1 - self.p)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"p={self.p}"


def seed_dropout(module: nn.Module, rng: torch.Generator | None) -> None:
    """Let every `SeededDropout` inside `module` draw from one generator.

    Args:
        module: the module to search.
        rng: the generator; None to remove it.
    """
    for child in module.modules():
        if isinstance(child, SeededDropout):
            child.rng = rng


def seeded_linear(dim: int, out: int, *, rng: torch.Generator, bias: bool = True) -> nn.Linear:
    """A linear layer with torch's default initialisation, drawn from `rng`."""
    linear: nn.Linear = nn.utils.skip_init(nn.Linear, dim, out, bias=bias)
    nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5), generator=rng)
    if bias:
        nn.init.uniform_(linear.bias, -1 / math.sqrt(dim), 1 / math.sqrt(dim), generator=rng)
    return linear


class Adapter(nn.Module):
    """A residual bottleneck, `x + W_up dropout(relu(W_down x))`, that starts as the identity (W_up = 0).

    Args:
        dim: the dimension of the features.
        width: the dimension of the bottleneck.
        dropout: the probability of dropout inside the bottleneck.
        rng: the generator for the initial weights.

    >>> adapter = Adapter(4, 2, 0.0, rng=torch.Generator().manual_seed(0))
    >>> torch.equal(adapter(torch.ones(3, 4)), torch.ones(3, 4))
    True
    """

    def __init__(self, dim: int, width: int, dropout: float, *, rng: torch.Generator) -> None:
        super().__init__()
        self.down = seeded_linear(dim, width, rng=rng, bias=False)
        self.dropout = SeededDropout(dropout)
        self.up = nn.utils.skip_init(nn.Linear, width, dim, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """The input plus the output of the bottleneck."""
        residual: Tensor = self.up(self.dropout(torch.relu(self.down(x))))
        return x + residual


class ChannelAdapter(nn.Module):
    """An adapter over the channels of a feature map: 1x1 convolutions, without dropout.

    Args:
        channels: the number of channels.
        width: the number of channels of the bottleneck.
        rng: the generator for the initial weights.
    """

    def __init__(self, channels: int, width: int, *, rng: torch.Generator) -> None:
        super().__init__()
        self.down = nn.utils.skip_init(nn.Conv2d, channels, width, 1, bias=False)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5), generator=rng)
        self.up = nn.utils.skip_init(nn.Conv2d, width, channels, 1, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The input plus the output of the bottleneck."""
        residual: Tensor = self.up(torch.relu(self.down(x)))
        return x + residual


class AdapterSite(NamedTuple):
    """A place for an adapter: the number of features or channels, and whether they form a feature map."""

    dim: int
    is_channel_map: bool


class Network(nn.Module):
    """A frozen network: nothing in it is trained, and its batch statistics never change.

    `init_negative_slope` is the argument `a` of `kaiming_uniform_` for random weights: with it, activations
    neither vanish nor explode with depth.
    """

    pooled_dim: int
    adapter_sites: tuple[AdapterSite, ...]
    init_negative_slope: float = 5**0.5

    def train(self, mode: bool = True) -> "Network":
        """Stay in evaluation mode: the features of a sample must not depend on its batch."""
        return super().train(False)

    def features(self, x: Tensor, adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features, with the output of each block passed through its adapter, if it has one."""
        raise NotImplementedError


def apply_block_adapter(
    x: Float[Tensor, "*shape"], adapters: BlockAdapters, block_index: int
) -> Float[Tensor, "*shape"]:
    """The output of the adapter after this block; `x` itself if there is none."""
    return adapters[block_index](x) if block_index in adapters else x
