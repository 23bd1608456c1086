"""ResNets of basic blocks, with torchvision's parameter names."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vpdr.encoder.backbone import AdapterSite, BlockAdapters, Network, apply_block_adapter

CHANNELS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = nn.Sequential()
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(
        self, x: Float[Tensor, "b c h w"], adapters: BlockAdapters, block_index: int
    ) -> Float[Tensor, "b o y x"]:
        """The adapter follows the second convolution, before the shortcut is added."""
        branch = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(apply_block_adapter(branch, adapters, block_index) + self.downsample(x))


class ResNet(Network):
    """A stem and four stages of basic blocks; the feature is the mean over all positions."""

    def __init__(self, depths: tuple[int, ...]) -> None:
        super().__init__()
        self.pooled_dim = CHANNELS[-1]
        self.adapter_sites = tuple(
            AdapterSite(out, is_channel_map=True)
            for out, depth in zip(CHANNELS, depths, strict=True)
            for _ in range(depth)
        )
        self.conv1 = nn.Conv2d(3, CHANNELS[0], 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(CHANNELS[0])
        self.layer1, self.layer2, self.layer3, self.layer4 = _make_stages(depths)

    def features(self, x: Float[Tensor, "b 3 h w"], adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features of normalised images."""
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        blocks = [block for stage in (self.layer1, self.layer2, self.layer3, self.layer4) for block in stage]
        for index, block in enumerate(blocks):
            x = block(x, adapters, index)
        return x.mean(dim=(2, 3))


def _make_stages(depths: tuple[int, ...]) -> list[nn.ModuleList]:
    stages, channels = [], CHANNELS[0]
    for out, depth in zip(CHANNELS, depths, strict=True):
        blocks = nn.ModuleList()
        for repeat in range(depth):
            blocks.append(BasicBlock(channels, out, 2 if repeat == 0 and channels != out else 1))
            channels = out
        stages.append(blocks)
    return stages
