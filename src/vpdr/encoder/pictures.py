"""How a network sees a picture: its size and its own normalisation."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from vpdr.errors import InvalidInput
from vpdr.types import Inputs

SMALLEST_PIXELS = 32
Levels: TypeAlias = tuple[float, float, float]  # of red, green and blue, from 0 to 255


@dataclass(frozen=True, slots=True)
class Normalisation:
    """`(x - mean) / deviation` for each colour, on the scale from 0 to 255."""

    mean: Levels
    deviation: Levels

    def __call__(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 h w"]:
        """Pictures as the network was trained to see them."""
        mean, deviation = (x.new_tensor(levels)[:, None, None] for levels in (self.mean, self.deviation))
        return (x - mean) / deviation


LITE = Normalisation((127.0,) * 3, (128.0,) * 3)
HALVES = Normalisation((127.5,) * 3, (127.5,) * 3)
IMAGENET = Normalisation((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))


@runtime_checkable
class Eye(Protocol):
    """What turns raw inputs of one modality into what a network is fed."""

    def inputs(self, raw: object) -> Inputs:
        """Raw inputs as a source of batches; another modality is refused."""
        ...

    def prepare(self, batch: Tensor) -> Tensor:
        """A batch of them, on any device, as the network takes it."""
        ...

    def order(self, inputs: Inputs) -> Int[Tensor, " n"]:
        """The order in which it is cheapest to read them."""
        ...


@dataclass(frozen=True, slots=True)
class Lens:
    """The eye of an image network."""

    normalisation: Normalisation
    pixels: int

    def __post_init__(self) -> None:
        if self.pixels < SMALLEST_PIXELS:
            raise InvalidInput(f"pixels must be at least {SMALLEST_PIXELS}, got {self.pixels}; use 64 to 224")

    def inputs(self, raw: object) -> Inputs:
        """An array of pictures, or a source of them."""
        if isinstance(raw, np.ndarray) and raw.ndim == 4 and raw.dtype == np.uint8:
            return Frames(raw)
        if isinstance(raw, Inputs):
            return raw
        raise InvalidInput(
            f"expected pictures for an image backbone (uint8, n x height x width x 3), got {_told(raw)}; "
            "choose a text backbone for texts"
        )

    def prepare(self, batch: Tensor) -> Float[Tensor, "b 3 p p"]:
        """Resized where needed and normalised; gradients reach pictures that carry them."""
        if batch.ndim != 4 or batch.shape[1] != 3:
            raise InvalidInput(
                f"expected a batch of pictures (b x 3 x height x width), got shape {tuple(batch.shape)}; "
                "choose a text backbone for tokens"
            )
        x = batch.float().contiguous(memory_format=torch.channels_last)
        if x.shape[2:] != (self.pixels, self.pixels):
            x = F.interpolate(x, (self.pixels, self.pixels), mode="bilinear", antialias=True)
        return self.normalisation(x)

    def order(self, inputs: Inputs) -> Int[Tensor, " n"]:
        """As they stand: a memory map is read from front to back."""
        return torch.arange(len(inputs))


@dataclass(frozen=True, slots=True)
class Frames:
    """Pictures in one array, in memory or mapped from a file; read as they are asked for."""

    images: UInt8[np.ndarray, "all h w 3"]
    chosen: Int[Tensor, " n"] | None = None  # None: all of them

    def __len__(self) -> int:
        return len(self.images) if self.chosen is None else len(self.chosen)

    def take(self, rows: Int[Tensor, " m"]) -> "Frames":
        """These pictures only; nothing is read yet."""
        return Frames(self.images, rows if self.chosen is None else self.chosen[rows])

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> UInt8[Tensor, "b 3 h w"]:
        """These pictures, never augmented."""
        rows = rows if self.chosen is None else self.chosen[rows]
        return torch.from_numpy(self.images[rows.numpy()]).permute(0, 3, 1, 2)


def _told(raw: object) -> str:
    if isinstance(raw, np.ndarray):
        return f"an array of {raw.dtype} with shape {raw.shape}"
    return f"a {type(raw).__name__}"
