"""From pooled features to scores: the frozen path that all clients share, and the personal head."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vpdr.checks import at_least, one_of, positive
from vpdr.encoder.adapters import SeededDropout, seeded_linear


class FrozenPath(nn.Module):
    """The projection into the space in which prototypes live: never trained, the same for all clients.

    It depends on no client's data, so its features are public and are computed once. Every client must be
    given the same one: only then do all prototypes live in one space.
    """

    def __init__(self, projection: nn.Linear, scale: float) -> None:
        super().__init__()
        self.projection = projection.requires_grad_(False)
        self.scale = scale

    def forward(self, pooled: Float[Tensor, "n p"]) -> Float[Tensor, "n d"]:
        """The public feature of a pooled one."""
        with torch.no_grad():
            projected: Tensor = self.projection(pooled)
            return self.scale * projected


def make_path(
    kind: str, pooled_dim: int, dim: int, *, rng: torch.Generator, scale: float = 1.0
) -> FrozenPath:
    """A projection of the named kind, drawn from the experiment's stream."""
    one_of(tuple(PROJECTIONS), projection=kind)
    at_least(1, pooled_dim=pooled_dim, dim=dim)
    positive(projection_scale=scale)
    return FrozenPath(PROJECTIONS[kind](pooled_dim, dim, rng), scale)


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
