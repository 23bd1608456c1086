"""Where a reconstruction is searched for: pictures for vision, embeddings where there is no picture.

A space knows the way from its inputs to the public feature, so that a gradient can go back along it. Which
personal part follows is decided in `path_of`.
"""

import copy
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vpdr.client import Client
from vpdr.privacy import EncoderKind

Path = Callable[[Tensor], Tensor]  # inputs to features, differentiable


@runtime_checkable
class Space(Protocol):
    """A set of inputs, by unconstrained variables of one shape."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one variable."""
        ...

    @property
    def pictures(self) -> bool:
        """Whether inputs can be looked at."""
        ...

    def decode(self, variables: Float[Tensor, "b *shape"]) -> Float[Tensor, "b *shape"]:
        """The inputs that these variables stand for."""
        ...

    def public(self, inputs: Float[Tensor, "b *shape"]) -> Float[Tensor, "b d"]:
        """The feature on the path that everybody knows."""
        ...

    def roughness(self, inputs: Float[Tensor, "b *shape"]) -> Float[Tensor, " b"]:
        """What a natural input has little of."""
        ...

    def to(self, device: str) -> "Space":
        """The same space on another device."""
        ...


class PictureSpace:
    """Pictures with values in [0, 1], by `(tanh w + 1)/2`; roughness is their mean total variation."""

    pictures = True

    def __init__(self, pixels: int, pooled: nn.Module, projection: nn.Linear, scale: float) -> None:
        self.shape = (3, pixels, pixels)
        self.pooled, self.projection, self.scale = pooled, projection, scale

    def decode(self, variables: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 h w"]:
        """Into [0, 1]."""
        return (variables.tanh() + 1) / 2

    def public(self, inputs: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d"]:
        """Backbone with its own normalisation, then the frozen projection."""
        pooled = self.pooled(inputs)
        projected: Tensor = self.projection(pooled)
        return self.scale * projected

    def roughness(self, inputs: Float[Tensor, "b 3 h w"]) -> Float[Tensor, " b"]:
        """Mean absolute difference of vertical and of horizontal neighbours, added up."""
        down = (inputs[:, :, 1:] - inputs[:, :, :-1]).abs().mean(dim=(1, 2, 3))
        across = (inputs[..., 1:] - inputs[..., :-1]).abs().mean(dim=(1, 2, 3))
        return down + across

    def to(self, device: str) -> "PictureSpace":
        """The same network elsewhere."""
        moved = copy.deepcopy(self.pooled).to(device), copy.deepcopy(self.projection).to(device)
        return PictureSpace(self.shape[1], *moved, self.scale)


class EmbeddingSpace:
    """Public features themselves: what is left to search for text, and for data that are features already."""

    pictures = False

    def __init__(self, dim: int) -> None:
        self.shape = (dim,)

    def decode(self, variables: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """An embedding stands for itself."""
        return variables

    def public(self, inputs: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """It is its own feature."""
        return inputs

    def roughness(self, inputs: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """Nothing is known about natural embeddings."""
        return torch.zeros(len(inputs), device=inputs.device)

    def to(self, device: str) -> "EmbeddingSpace":
        """It has nothing to move."""
        return self


def path_of(client: Client, space: Space, phi: str, device: str) -> Path:
    """From inputs to the feature that the adversary compares: the client's released one, or the public one.

    The adapter is copied, so that no gradient of the attack ever reaches the client.
    """
    if phi == "initial" or client.promise.encoder is not EncoderKind.PERSONAL:
        return space.public
    adapter = copy.deepcopy(client.model.adapter).to(device).eval().requires_grad_(False)

    def through(inputs: Tensor) -> Tensor:
        features: Tensor = adapter(space.public(inputs))
        return features

    return through
