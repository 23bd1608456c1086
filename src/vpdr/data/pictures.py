"""Pictures of a benchmark as a model is fed with them: read from disk when a batch is asked for."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from vpdr.data.augmentation import mirrored, shifted
from vpdr.data.domains import Benchmark

PADDING = 4  # pixels that a crop may be shifted by, as the paper has it


@dataclass(frozen=True, kw_only=True, eq=False)
class Pictures:
    """Rows of a benchmark's pictures, without their labels (`vpdr.types.Inputs`). Private.

    A batch has the pictures as bytes, `pixels` a side; each backbone has its own normalisation. Only the
    rows of a batch are read into memory.
    """

    arrays: tuple[UInt8[np.ndarray, "_ _ _ 3"], ...]
    rows: Int64[np.ndarray, " n"]
    pixels: int
    flips: bool = False
    padding: int = PADDING

    @classmethod
    def of(cls, benchmark: Benchmark, *, pixels: int, flips: bool = False) -> "Pictures":
        """All pictures of a benchmark, in the order of its rows."""
        arrays = tuple(domain.images for domain in benchmark.pictures)
        rows = np.arange(sum(map(len, arrays)), dtype=np.int64)
        return cls(arrays=arrays, rows=rows, pixels=pixels, flips=flips)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Int[Tensor, " m"]) -> "Pictures":
        """These pictures only, in this order; nothing is read yet."""
        return replace(self, rows=self.rows[rows.cpu().numpy()])

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> UInt8[Tensor, "b 3 p p"]:
        """These pictures; with a stream they are shifted, and mirrored where a mirror image may be."""
        pictures = self._read(self.rows[rows.cpu().numpy()])
        if rng is None:
            return pictures
        pictures = shifted(pictures, self.padding, rng)
        return mirrored(pictures, rng) if self.flips else pictures

    def _read(self, places: Int64[np.ndarray, " b"]) -> UInt8[Tensor, "b 3 p p"]:
        out = torch.empty(len(places), 3, self.pixels, self.pixels, dtype=torch.uint8)
        start = 0
        for array in self.arrays:
            here = np.flatnonzero((places >= start) & (places < start + len(array)))
            if len(here):
                some = torch.from_numpy(np.ascontiguousarray(array[places[here] - start]))
                out[torch.from_numpy(here)] = _sized(some.permute(0, 3, 1, 2), self.pixels)
            start += len(array)
        return out


def _sized(pictures: UInt8[Tensor, "b 3 h w"], pixels: int) -> UInt8[Tensor, "b 3 p p"]:
    """Bilinear, and smooth where pictures are reduced."""
    if pictures.shape[2:] == (pixels, pixels):
        return pictures
    larger = F.interpolate(pictures.float(), (pixels, pixels), mode="bilinear", antialias=True)
    return larger.round().clamp(0, 255).to(torch.uint8)
