"""Where a reconstruction is searched for: pictures for vision, embeddings where there is no picture.

A space knows the way from its inputs to the public feature, so that a gradient can go back along it. Which
personal part follows is decided in `path_of`.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.client import Client
from vpdr.encoder import Backbone, FrozenPath, PersonalEncoder
from vpdr.encoder.personal import BlockEncoder
from vpdr.errors import InvalidInput

_LEVELS = 255.0  # a backbone reads pictures from 0 to 255

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

    def personal(self, inputs: Float[Tensor, "b *shape"], encoder: PersonalEncoder) -> Float[Tensor, "b d"]:
        """The feature that a client's own encoder makes of them."""
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

    def __init__(self, backbone: Backbone, path: FrozenPath) -> None:
        self.shape = (3, backbone.pixels, backbone.pixels)
        self.backbone, self.path = backbone, path

    def decode(self, variables: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 h w"]:
        """Into [0, 1]."""
        return (variables.tanh() + 1) / 2

    def public(self, inputs: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d"]:
        """Backbone with its own normalisation, then the frozen projection."""
        features: Tensor = self.path(self._pooled(inputs))
        return features

    def personal(self, inputs: Float[Tensor, "b 3 h w"], encoder: PersonalEncoder) -> Float[Tensor, "b d"]:
        """Through adapters after the projection, or inside the backbone."""
        pooled = self._pooled(inputs)
        fed = _LEVELS * inputs if isinstance(encoder, BlockEncoder) else pooled
        features: Tensor = encoder(self.path(pooled), fed)
        return features

    def _pooled(self, inputs: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b p"]:
        return self.backbone.features(_LEVELS * inputs)

    def roughness(self, inputs: Float[Tensor, "b 3 h w"]) -> Float[Tensor, " b"]:
        """Mean absolute difference of vertical and of horizontal neighbours, added up."""
        down = (inputs[:, :, 1:] - inputs[:, :, :-1]).abs().mean(dim=(1, 2, 3))
        across = (inputs[..., 1:] - inputs[..., :-1]).abs().mean(dim=(1, 2, 3))
        return down + across

    def to(self, device: str) -> "PictureSpace":
        """The same network elsewhere."""
        network = copy.deepcopy(self.backbone.network).to(device)
        return PictureSpace(replace(self.backbone, network=network), copy.deepcopy(self.path).to(device))


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

    def personal(self, inputs: Float[Tensor, "b d"], encoder: PersonalEncoder) -> Float[Tensor, "b d"]:
        """Through an adapter after the projection; one inside a backbone needs more than its feature."""
        if encoder.wants_inputs:
            raise InvalidInput(
                "a reconstruction of texts searches public features, but this encoder trains before them; "
                "use model.adapters=last with a frozen projection, or phi initial"
            )
        features: Tensor = encoder(inputs)
        return features

    def roughness(self, inputs: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """Nothing is known about natural embeddings."""
        return torch.zeros(len(inputs), device=inputs.device)

    def to(self, device: str) -> "EmbeddingSpace":
        """It has nothing to move."""
        return self


def path_of(client: Client, space: Space, phi: str, device: str) -> Path:
    """From inputs to the feature that the adversary compares: the client's released one, or the public one.

    A path that was broadcast is known to everybody. The encoder is copied, so that no gradient of the attack
    ever reaches the client.
    """
    if not client.promise.encoder.trained:
        told = client.path
        return space.public if told is None else lambda inputs: told(space.public(inputs))
    if phi == "initial":
        return space.public
    encoder = copy.deepcopy(client.model.encoder).eval().requires_grad_(False)
    if not isinstance(encoder, BlockEncoder):  # which stays with the backbone that it shares
        encoder = encoder.to(device)
    return lambda inputs: space.personal(inputs, encoder).to(device)
