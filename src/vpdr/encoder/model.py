"""From pooled features to scores: the frozen path that all clients share, and the personal head."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vpdr.checks import at_least, one_of, positive
from vpdr.encoder.adapters import SeededDropout, seeded_linear
from vpdr.encoder.backbone import Backbone, Traits


class FrozenPath(nn.Module):
    """The projection into the space in which prototypes live: never trained, the same for all clients.

    It depends on no client's data, so its features are public and are computed once. Every client must be
    given the same one: only then do all prototypes live in one space. `trained` says that each client's
    personal encoder goes on from these values with a projection of its own.
    """

    def __init__(self, projection: nn.Linear, scale: float, *, trained: bool = False) -> None:
        super().__init__()
        self.projection = projection.requires_grad_(False)
        self.scale = scale
        self.trained = trained

    def forward(self, pooled: Float[Tensor, "n p"]) -> Float[Tensor, "n d"]:
        """The public feature of a pooled one; gradients pass through to what made it."""
        projected: Tensor = self.projection(pooled)
        return self.scale * projected


@dataclass(frozen=True, eq=False, slots=True)
class Trunk:
    """All that is frozen: one for all clients, whatever is copied."""

    backbone: Backbone
    path: FrozenPath

    def __deepcopy__(self, memo: dict[int, Any]) -> "Trunk":
        return self


class Projection(NamedTuple):
    """How a projection starts, and whether clients train it."""

    draw: Callable[[int, int, bool, torch.Generator], nn.Linear]
    trained: bool = False


def make_path(
    kind: str, pooled_dim: int, dim: int, *, rng: torch.Generator, scale: float = 1.0, bias: bool = True
) -> FrozenPath:
    """A projection of the named kind, drawn from the experiment's stream."""
    one_of(tuple(PROJECTIONS), projection=kind)
    at_least(1, pooled_dim=pooled_dim, dim=dim)
    positive(projection_scale=scale)
    chosen = PROJECTIONS[kind]
    return FrozenPath(chosen.draw(pooled_dim, dim, bias, rng), scale, trained=chosen.trained)


def path_of(
    backbone: Backbone, kind: str, dim: int, *, rng: torch.Generator, scale: float = 1.0
) -> FrozenPath:
    """The projection that belongs to a backbone."""
    return path_from(backbone.traits, kind, dim, rng=rng, scale=scale)


def path_from(traits: Traits, kind: str, dim: int, *, rng: torch.Generator, scale: float = 1.0) -> FrozenPath:
    """The projection behind any backbone of that kind: no weights and no samples are needed to draw it.

    A ResNet's is a 1x1 convolution without bias and a frozen batch normalisation before the pooling; all
    three are linear, so the same numbers come from a linear map and a factor after it.
    """
    scale = scale * traits.gain
    return make_path(kind, traits.pooled, dim, rng=rng, scale=scale, bias=traits.projects_with_bias)


def make_head(
    dim: int, classes: int, *, rng: torch.Generator, hidden: tuple[int, ...] = (512,), dropout: float = 0.1
) -> nn.Sequential:
    """The personal classifier (f_m): a linear map, ReLU and dropout for each hidden width, then scores."""
    parts: list[nn.Module] = []
    for width in hidden:
        parts += [seeded_linear(dim, width, rng=rng), nn.ReLU(), SeededDropout(dropout)]
        dim = width
    return nn.Sequential(*parts, seeded_linear(dim, classes, rng=rng))


def _random(pooled_dim: int, dim: int, bias: bool, rng: torch.Generator) -> nn.Linear:
    return seeded_linear(pooled_dim, dim, rng=rng, bias=bias)


def _orthogonal(pooled_dim: int, dim: int, bias: bool, rng: torch.Generator) -> nn.Linear:
    """Orthonormal rows (or columns, where the space grows) and no offset."""
    linear: nn.Linear = nn.utils.skip_init(nn.Linear, pooled_dim, dim, bias=bias)
    nn.init.orthogonal_(linear.weight, generator=rng)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


PROJECTIONS: dict[str, Projection] = {
    "random": Projection(_random),
    "orthogonal": Projection(_orthogonal),
    "train": Projection(_random, trained=True),
}
