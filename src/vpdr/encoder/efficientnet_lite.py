"""EfficientNet-Lite0, frozen: the embedded image backbone, with its own normalisation."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from vpdr.encoder.inverted_residual import InvertedResidual, SameConv, norm
from vpdr.errors import InvalidInput

POOLED_DIM = 1280
SMALLEST_PIXELS = 32


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


class EfficientNetLite0(nn.Module):
    """The frozen network: nothing in it can be trained, and its batch statistics never move.

    `digest` names the weights, so that features computed with other weights are never mistaken for these.
    """

    digest: str = ""

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem = SameConv(3, _STEM_CHANNELS, kernel=3, stride=2)
        self.bn0 = norm(_STEM_CHANNELS)
        self.blocks = nn.ModuleList(_blocks())
        self.conv_head = SameConv(_STAGES[-1].channels, POOLED_DIM, kernel=1)
        self.bn1 = norm(POOLED_DIM)
        self.fc = nn.utils.skip_init(nn.Linear, POOLED_DIM, 1000)
        self.requires_grad_(False)
        self.train(False)

    def train(self, mode: bool = True) -> "EfficientNetLite0":
        """Stay in evaluation mode whatever the caller asks: a frozen path must not depend on the batch."""
        return super().train(False)

    def features(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 1280"]:
        """The pooled feature of pictures that are already normalised to `(x - 127) / 128`."""
        x = F.relu6(self.bn0(self.conv_stem(x)))
        for block in self.blocks:
            x = block(x)
        x = F.relu6(self.bn1(self.conv_head(x)))
        return x.mean(dim=(2, 3))

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 1000"]:
        """The ImageNet scores of normalised pictures."""
        scores: Tensor = self.fc(self.features(x))
        return scores

    def pooled(
        self,
        images: UInt8[np.ndarray, "n h w 3"],
        *,
        pixels: int = 96,
        batch: int = 16,
        progress: Callable[[int, int], None] | None = None,
    ) -> Float[Tensor, "n 1280"]:
        """The pooled feature of every picture, resized to `pixels` a side; `progress` hears (done, total)."""
        if pixels < SMALLEST_PIXELS:
            raise InvalidInput(f"pixels must be at least {SMALLEST_PIXELS}, got {pixels}; use 64 to 224")
        out, done = torch.empty(len(images), POOLED_DIM), 0
        batches = [images[start : start + batch] for start in range(0, len(images), batch)]
        with _single_threads() as workers:
            for part in workers.map(lambda pictures: self._features_of(pictures, pixels), batches):
                out[done : done + len(part)] = part
                done += len(part)
                if progress is not None:
                    progress(done, len(images))
        return out

    def _features_of(self, images: UInt8[np.ndarray, "b h w 3"], pixels: int) -> Float[Tensor, "b 1280"]:
        # Inference mode belongs to a thread, so it is entered in the one that computes.
        with torch.inference_mode():
            return self.features(self.normalise(images, pixels)).cpu()

    def normalise(self, images: UInt8[np.ndarray, "b h w 3"], pixels: int) -> Float[Tensor, "b 3 p p"]:
        """Pictures as this network was trained to see them."""
        x = torch.from_numpy(np.ascontiguousarray(images)).to(self.fc.weight.device).permute(0, 3, 1, 2)
        x = x.float().contiguous(memory_format=torch.channels_last)
        if x.shape[2:] != (pixels, pixels):
            x = F.interpolate(x, (pixels, pixels), mode="bilinear", antialias=True)
        return (x - 127.0) / 128.0


@contextmanager
def _single_threads() -> Iterator[ThreadPoolExecutor]:
    """As many workers as torch has threads, each computing alone.

    Threads that share one small layer meet a hundred times a batch, and on a busy machine each meeting
    waits for the slowest: many times slower than workers that never meet.
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            yield workers
    finally:
        torch.set_num_threads(threads)


def _blocks() -> list[InvertedResidual]:
    blocks, channels = [], _STEM_CHANNELS
    for stage in _STAGES:
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
