"""Residual bottlenecks, and the seeded parts they are made of."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vpdr.errors import InvalidInput


class SeededDropout(nn.Module):
    """Dropout that draws from an explicit stream, so that no other client or library can move it.

    The trainer sets `rng` for each round (see `seed_dropout`). A copy starts without a stream: two models
    must not draw from one.
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
        """Zero a share `p` of the entries and scale the rest up, in training only."""
        if not self.training or self.p == 0:
            return x
        if self.rng is None:
            raise InvalidInput("dropout in training needs a random stream, got none; call seed_dropout first")
        kept = torch.empty(x.shape, device=self.rng.device).bernoulli_(1 - self.p, generator=self.rng)
        return x * kept.to(x) / (1 - self.p)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"p={self.p}"


def seed_dropout(module: nn.Module, rng: torch.Generator | None) -> None:
    """Let every dropout inside `module` draw from `rng`, in the order in which they are reached."""
    for part in module.modules():
        if isinstance(part, SeededDropout):
            part.rng = rng


def seeded_linear(dim: int, out: int, *, rng: torch.Generator, bias: bool = True) -> nn.Linear:
    """A linear map with the usual initial values, drawn from `rng`."""
    linear: nn.Linear = nn.utils.skip_init(nn.Linear, dim, out, bias=bias)
    nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5), generator=rng)
    if bias:
        nn.init.uniform_(linear.bias, -1 / math.sqrt(dim), 1 / math.sqrt(dim), generator=rng)
    return linear


class Adapter(nn.Module):
    """`x + W_up dropout(relu(W_down x))`, without biases; W_up = 0 at first, so it starts as the identity."""

    def __init__(self, dim: int, width: int, dropout: float, *, rng: torch.Generator) -> None:
        super().__init__()
        self.down = seeded_linear(dim, width, rng=rng, bias=False)
        self.dropout = SeededDropout(dropout)
        self.up = nn.utils.skip_init(nn.Linear, width, dim, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """The input with what the bottleneck adds to it."""
        added: Tensor = self.up(self.dropout(torch.relu(self.down(x))))
        return x + added


class ChannelAdapter(nn.Module):
    """The same over the channels of a picture's map, by 1x1 convolutions and without dropout."""

    def __init__(self, channels: int, width: int, *, rng: torch.Generator) -> None:
        super().__init__()
        self.down = nn.utils.skip_init(nn.Conv2d, channels, width, 1, bias=False)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5), generator=rng)
        self.up = nn.utils.skip_init(nn.Conv2d, width, channels, 1, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The input with what the bottleneck adds to it."""
        added: Tensor = self.up(torch.relu(self.down(x)))
        return x + added
