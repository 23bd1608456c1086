"""One client's model on pooled features: a frozen public path, a personal adapter and a personal head."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vpdr.encoder.adapters import Adapter, SeededDropout, seeded_linear
from vpdr.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """The sizes and kinds of an encoder, the same for every client of a run."""

    pooled_dim: int = 1280
    dim: int = 512
    width: int = 64
    dropout: float = 0.1
    projection: str = "random"
    projection_scale: float = 1.0

    def __post_init__(self) -> None:
        if min(self.pooled_dim, self.dim, self.width) < 1:
            raise InvalidInput(
                "pooled_dim, dim and width must be at least 1, got "
                f"{self.pooled_dim}, {self.dim} and {self.width}; use 1280, 512 and 64"
            )
        if self.projection not in PROJECTIONS:
            raise InvalidInput(
                f"projection must be one of {', '.join(PROJECTIONS)}, got {self.projection}; choose one"
            )
        if not 0 < self.projection_scale < float("inf"):
            raise InvalidInput(
                f"projection_scale must be positive and finite, got {self.projection_scale}; use 1.0"
            )


class Encoder(nn.Module):
    """From pooled features to the space in which prototypes live (h_m).

    `public` is the same for all clients and never trained; calling the encoder adds the personal adapter.
    """

    def __init__(self, projection: nn.Linear, adapter: Adapter, *, projection_scale: float = 1.0) -> None:
        super().__init__()
        self.projection = projection.requires_grad_(False)
        self.adapter = adapter
        self.projection_scale = projection_scale

    def public(self, pooled: Float[Tensor, "b p"]) -> Float[Tensor, "b d"]:
        """The frozen path, adapter bypassed: depends on no client's data, so it is computed once and kept."""
        with torch.no_grad():
            projected: Tensor = self.projection(pooled)
            return self.projection_scale * projected

    def forward(self, public: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """The personal feature of a public one."""
        feature: Tensor = self.adapter(public)
        return feature


def make_encoder(shape: EncoderShape, *, shared: torch.Generator, own: torch.Generator) -> Encoder:
    """An encoder: the projection is drawn from `shared` (the experiment), the adapter from `own`.

    Every client must be given an equal `shared` stream: only then do all prototypes live in one space.
    """
    projection = PROJECTIONS[shape.projection](shape.pooled_dim, shape.dim, shared)
    adapter = Adapter(shape.dim, shape.width, shape.dropout, rng=own)
    return Encoder(projection, adapter, projection_scale=shape.projection_scale)


def make_head(
    dim: int, classes: int, *, rng: torch.Generator, hidden: tuple[int, ...] = (512,), dropout: float = 0.1
) -> nn.Sequential:
    """The personal classifier (f_m): a linear map, ReLU and dropout for each hidden width, then scores."""
    parts: list[nn.Module] = []
    for width in hidden:
        parts += [seeded_linear(dim, width, rng=rng), nn.ReLU(), SeededDropout(dropout)]
        dim = width
    return nn.Sequential(*parts, seeded_linear(dim, classes, rng=rng))


def _random(pooled_dim: int, dim: int, rng: torch.Generator) -> nn.Linear:
    return seeded_linear(pooled_dim, dim, rng=rng)


def _orthogonal(pooled_dim: int, dim: int, rng: torch.Generator) -> nn.Linear:
    """Orthonormal rows (or columns, where the space grows) and no offset."""
    linear: nn.Linear = nn.utils.skip_init(nn.Linear, pooled_dim, dim)
    nn.init.orthogonal_(linear.weight, generator=rng)
    nn.init.zeros_(linear.bias)
    return linear


PROJECTIONS: dict[str, Callable[[int, int, torch.Generator], nn.Linear]] = {
    "random": _random,
    "orthogonal": _orthogonal,
}
