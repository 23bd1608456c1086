"""From the names that public checkpoints give their tensors to ours."""

import re
from collections.abc import Mapping
from typing import TypeAlias

from torch import Tensor

Rules: TypeAlias = tuple[tuple[str, str], ...]  # pattern and replacement, tried one after the other

_LAYER: Rules = (
    (r"^(?:encoder\.layer|layers)\.(\d+)\.", r"blocks.\1."),
    (r"\.attention\.(?:attention\.|self\.)?(?:query|q_proj)\.", ".attention.query."),
    (r"\.attention\.(?:attention\.|self\.)?(?:key|k_proj)\.", ".attention.key."),
    (r"\.attention\.(?:attention\.|self\.)?(?:value|v_proj)\.", ".attention.value."),
    (r"\.attention\.output\.LayerNorm\.", ".norm1."),
    (r"\.attention\.(?:output\.dense|o_proj)\.", ".attention.out."),
    (r"\.output\.LayerNorm\.", ".norm2."),
    (r"\.(?:intermediate\.dense|mlp\.fc1)\.", ".widen."),
    (r"\.(?:output\.dense|mlp\.fc2)\.", ".narrow."),
)

vit_rules: Rules = (
    (r"^vit\.", ""),
    (r"^embeddings\.cls_token$", "token"),
    (r"^embeddings\.position_embeddings$", "positions"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patches."),
    *_LAYER,
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"^layernorm\.", "norm."),
)

bert_rules: Rules = (
    (r"^(?:bert|roberta)\.", ""),
    (r"^embeddings\.word_embeddings\.", "words."),
    (r"^embeddings\.position_embeddings\.", "positions."),
    (r"^embeddings\.token_type_embeddings\.", "types."),
    (r"^embeddings\.LayerNorm\.", "norm."),
    *_LAYER,
)

# The names of torchvision are ours; the others are those of transformers, which count from 0.
resnet_rules: Rules = (
    (r"^(?:module|resnet)\.", ""),
    (r"^embedder\.embedder\.convolution\.", "conv1."),
    (r"^embedder\.embedder\.normalization\.", "bn1."),
    *((rf"^encoder\.stages\.{stage}\.layers\.", f"layer{stage + 1}.") for stage in range(4)),
    *((rf"\.layer\.{half}\.convolution\.", f".conv{half + 1}.") for half in range(2)),
    *((rf"\.layer\.{half}\.normalization\.", f".bn{half + 1}.") for half in range(2)),
    (r"\.shortcut\.convolution\.", ".downsample.0."),
    (r"\.shortcut\.normalization\.", ".downsample.1."),
)

lite_rules: Rules = ((r"(^|\.)_", r"\1"),)  # `_blocks.0._bn1.weight`


def renamed(tensors: Mapping[str, Tensor], rules: Rules) -> dict[str, Tensor]:
    """The same tensors under our names; what no rule knows keeps its own."""
    made: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        made[name] = tensor
    return made
