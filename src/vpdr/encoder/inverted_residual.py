"""The one building block of the Lite networks: expand, filter each channel, project."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


def norm(channels: int) -> nn.BatchNorm2d:
    """Batch normalisation with the constant that the weights were trained with."""
    return nn.BatchNorm2d(channels, eps=1e-3)


class SameConv(nn.Conv2d):
    """A convolution without bias whose output has ceil(size / stride) pixels.

    The padding that this takes is split unevenly where it is odd, with the larger part at the bottom and
    the right: the weights were trained so, and with even padding every strided layer is off by a pixel.
    """

    def __init__(self, channels: int, out: int, *, kernel: int, stride: int = 1, groups: int = 1) -> None:
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(channels, out, kernel, stride, padding, groups=groups, bias=False)

    def reset_parameters(self) -> None:
        """Draw nothing: the weights are always loaded, and the global generator stays untouched."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o y x"]:
        """Pad as the training did, then convolve."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride > 1:
            top, bottom = _margins(x.shape[2], kernel, stride)
            left, right = _margins(x.shape[3], kernel, stride)
            x = F.pad(x, (left, right, top, bottom))
        return super().forward(x)


class InvertedResidual(nn.Module):
    """Expand with 1x1, filter each channel by itself, project with 1x1; add the input where shapes allow."""

    def __init__(self, channels: int, out: int, *, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.expands = expansion > 1
        self.adds = stride == 1 and channels == out
        if self.expands:
            self.expand_conv = SameConv(channels, inner, kernel=1)
            self.bn0 = norm(inner)
        self.depthwise_conv = SameConv(inner, inner, kernel=kernel, stride=stride, groups=inner)
        self.bn1 = norm(inner)
        self.project_conv = SameConv(inner, out, kernel=1)
        self.bn2 = norm(out)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o y x"]:
        """One block, without squeeze-and-excitation: that is what makes the network lite."""
        y: Tensor = F.relu6(self.bn0(self.expand_conv(x))) if self.expands else x
        y = F.relu6(self.bn1(self.depthwise_conv(y)))
        y = self.bn2(self.project_conv(y))
        return x + y if self.adds else y


def _margins(size: int, kernel: int, stride: int) -> tuple[int, int]:
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2
