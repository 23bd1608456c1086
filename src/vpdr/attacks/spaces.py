"""Input spaces of a reconstruction: images for vision, embeddings for everything else.

A space maps its inputs differentiably to public features. `adversary_feature_map` adds the encoder of a
client, or the broadcast feature map.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import nn

from vpdr.client import Client
from vpdr.encoder.backbone import Backbone
from vpdr.encoder.networks import EfficientNetLite
from vpdr.encoder.personal import BlockAdapterEncoder, FrozenEncoder, FrozenProjection, PersonalEncoder
from vpdr.types import Float, Tensor
from vpdr.validation import InvalidInput

InputFeatureMap = Callable[[Tensor], Tensor]  # inputs to features, differentiable

_MAX_PIXEL = 255.0  # backbones take images from 0 to 255
_BLOCK_LAYERS = {"expand_conv": "bn0", "depthwise_conv": "bn1", "project_conv": "bn2"}


class ImageSpace:
    """Images with values in [0, 1], as `(tanh w + 1)/2` of unconstrained variables w."""

    contains_images = True

    def __init__(self, backbone: Backbone, projection: FrozenProjection) -> None:
        self.shape: tuple[int, ...] = (3, backbone.pixels, backbone.pixels)
        self.backbone, self.projection = backbone, projection

    def decode(self, variables: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 h w"]:
        return (variables.tanh() + 1) / 2

    def public_features(self, inputs: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d"]:
        """The backbone with its own normalisation, then the frozen projection."""
        features: Tensor = self.projection(self.backbone.features(_MAX_PIXEL * inputs))
        return features

    def personal_features(self, inputs: Float[Tensor, "b 3 h w"], encoder: PersonalEncoder) -> Float[Tensor, "b d"]:
        """Features with adapters after the projection, or inside the backbone."""
        pooled = self.backbone.features(_MAX_PIXEL * inputs)
        encoder_inputs = _MAX_PIXEL * inputs if isinstance(encoder, BlockAdapterEncoder) else pooled
        features: Tensor = encoder(self.projection(pooled), encoder_inputs)
        return features

    def total_variation(self, inputs: Float[Tensor, "b 3 h w"]) -> Float[Tensor, " b"]:
        """Mean absolute difference of vertical neighbours, plus that of horizontal neighbours."""
        vertical = (inputs[:, :, 1:] - inputs[:, :, :-1]).abs().mean(dim=(1, 2, 3))
        horizontal = (inputs[..., 1:] - inputs[..., :-1]).abs().mean(dim=(1, 2, 3))
        return vertical + horizontal

    def to(self, device: str) -> "ImageSpace":
        network = copy.deepcopy(self.backbone.network).to(device)
        return ImageSpace(replace(self.backbone, network=network), copy.deepcopy(self.projection).to(device))


class EmbeddingSpace:
    """The public features themselves, for text and for data that are features already."""

    contains_images = False

    def __init__(self, dim: int) -> None:
        self.shape: tuple[int, ...] = (dim,)

    def decode(self, variables: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        return variables

    def public_features(self, inputs: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        return inputs

    def personal_features(self, inputs: Float[Tensor, "b d"], encoder: PersonalEncoder) -> Float[Tensor, "b d"]:
        """Features of an adapter after the projection; adapters inside a backbone are not supported."""
        if encoder.needs_inputs:
            raise InvalidInput(
                "a reconstruction of texts searches public features, but this encoder trains before them; "
                "use model.adapters=last with a frozen projection, or the adversary's encoder initial"
            )
        features: Tensor = encoder(inputs)
        return features

    def total_variation(self, inputs: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """Zero: there is no prior on embeddings."""
        return torch.zeros(len(inputs), device=inputs.device)

    def to(self, device: str) -> "EmbeddingSpace":
        return self


InputSpace: TypeAlias = ImageSpace | EmbeddingSpace


def attack_input_space(frozen_encoder: FrozenEncoder | None, dim: int) -> InputSpace:
    """Images where the client's samples are images; otherwise the public features of `dim` dimensions."""
    if frozen_encoder is None or not frozen_encoder.backbone.pixels:
        return EmbeddingSpace(dim)
    return ImageSpace(fold_batch_norms(frozen_encoder.backbone), frozen_encoder.projection)


def adversary_feature_map(client: Client, space: InputSpace, adversary_encoder: str, device: str) -> InputFeatureMap:
    """From inputs to the features that the adversary compares: the client's released ones, or public ones.

    A broadcast feature map is known to everybody. The client's encoder is copied, so that no gradient of the
    attack reaches the client.
    """
    if not client.release_config.encoder_kind.is_trained_on_private_data:
        broadcast_map = client.feature_map
        if broadcast_map is None:
            return space.public_features
        return lambda inputs: broadcast_map(space.public_features(inputs))
    if adversary_encoder == "initial":
        return space.public_features
    encoder = copy.deepcopy(client.model.encoder).eval().requires_grad_(False)
    if not isinstance(encoder, BlockAdapterEncoder):  # it stays on the device of the backbone that it shares
        encoder = encoder.to(device)
    return lambda inputs: space.personal_features(inputs, encoder).to(device)


@torch.no_grad()
def fold_batch_norms(backbone: Backbone) -> Backbone:
    """A copy of an EfficientNet-Lite with batch normalisation folded into the convolutions.

    The features are the same for a third less work. Other networks are returned unchanged.
    """
    if not isinstance(backbone.network, EfficientNetLite):
        return backbone
    network = copy.deepcopy(backbone.network)
    layers: list[tuple[nn.Module, str, str]] = [(network, "conv_stem", "bn0"), (network, "conv_head", "bn1")]
    for block in network.blocks:
        children = dict(block.named_children())
        layers += [(block, *pair) for pair in _BLOCK_LAYERS.items() if pair[0] in children]
    for parent, convolution, normalisation in layers:
        filters, norm = parent.get_submodule(convolution), parent.get_submodule(normalisation)
        if not isinstance(filters, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d):
            raise InvalidInput(f"expected a convolution and its batch normalisation, got {filters} and {norm}")
        if norm.running_var is None or norm.running_mean is None:
            raise InvalidInput("expected batch statistics to fold, got none; load the network's weights first")
        factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        filters.weight.mul_(factor[:, None, None, None])
        filters.bias = nn.Parameter(norm.bias - norm.running_mean * factor, requires_grad=False)
        setattr(parent, normalisation, nn.Identity())
    for weight in network.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    return replace(backbone, network=network.requires_grad_(False))
