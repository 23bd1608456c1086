"""A frozen network for many passes: batch statistics folded into the convolutions before them."""

import copy
from dataclasses import replace

import torch
from torch import nn

from vpdr.encoder import Backbone
from vpdr.encoder.efficientnet_lite import EfficientNetLite
from vpdr.errors import InvalidInput

_INSIDE = {"expand_conv": "bn0", "depthwise_conv": "bn1", "project_conv": "bn2"}  # of a block


def folded(backbone: Backbone) -> Backbone:
    """The same features for a third less work where the network is known; any other is left as it is."""
    if not isinstance(backbone.network, EfficientNetLite):
        return backbone
    made = copy.deepcopy(backbone.network)
    _fold(made, "conv_stem", "bn0")
    _fold(made, "conv_head", "bn1")
    for block in made.blocks:
        for convolution, normalisation in _INSIDE.items():
            if convolution in dict(block.named_children()):
                _fold(block, convolution, normalisation)
    for weight in made.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    return replace(backbone, network=made.requires_grad_(False))


@torch.no_grad()
def _fold(parent: nn.Module, convolution: str, normalisation: str) -> None:
    """Scale the filters, add the offset, and leave nothing to do behind them."""
    filters, norm = parent.get_submodule(convolution), parent.get_submodule(normalisation)
    if not isinstance(filters, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d):
        raise InvalidInput(f"expected a convolution and its batch normalisation, got {filters} and {norm}")
    if norm.running_var is None or norm.running_mean is None:
        raise InvalidInput("expected batch statistics to fold, got none; load the network's weights first")
    factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    filters.weight.mul_(factor[:, None, None, None])
    filters.bias = nn.Parameter(norm.bias - norm.running_mean * factor, requires_grad=False)
    setattr(parent, normalisation, nn.Identity())
