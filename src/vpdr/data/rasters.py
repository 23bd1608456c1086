"""Two kinds of pictures on disk: one large array, or a file for each."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from vpdr.data.findings import DAMAGE, Findings
from vpdr.data.found import files_digest
from vpdr.errors import InvalidInput

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, eq=False)
class Stack:
    """Small pictures that came as one array, grey or in colour."""

    images: UInt8[np.ndarray, "n s s"] | UInt8[np.ndarray, "n s s 3"]
    origin: str  # a digest of its files

    def __len__(self) -> int:
        return len(self.images)

    def fingerprint(self) -> str:
        """Of the files that the array was in."""
        return self.origin

    def side(self, pixels: int) -> int:
        """Never more than they have."""
        return min(pixels, int(self.images.shape[1]))

    def block(self, start: int, stop: int, side: int) -> UInt8[np.ndarray, "b s s 3"]:
        """Some pictures, in three channels."""
        some = self.images[start:stop]
        if some.ndim == 3:
            some = np.repeat(some[..., None], 3, axis=-1)
        if side == some.shape[1]:
            return some
        from PIL import Image  # most commands never need it

        return np.stack([_resized(Image.fromarray(one), side) for one in some])

    def check(self, row: int, findings: Findings) -> None:
        """An array was checked when it was read."""


@dataclass(frozen=True, eq=False)
class PictureFiles:
    """A file for each picture, of any size and colour."""

    paths: Sequence[Path]

    def __len__(self) -> int:
        return len(self.paths)

    def fingerprint(self) -> str:
        """Of all files, in their order."""
        return files_digest(self.paths)

    def side(self, pixels: int) -> int:
        """As the model wants them: what the files have differs from one to the next."""
        return pixels

    def block(self, start: int, stop: int, side: int) -> UInt8[np.ndarray, "b s s 3"]:
        """Some pictures, decoded; one that cannot be is refused by its name."""
        return np.stack([self._picture(path, side) for path in self.paths[start:stop]])

    def check(self, row: int, findings: Findings) -> None:
        """Decode one picture whole."""
        path = self.paths[row]
        findings.attempt("a whole picture", _decoded, path)

    def _picture(self, path: Path, side: int) -> UInt8[np.ndarray, "s s 3"]:
        try:
            return _resized(_decoded(path), side)
        except DAMAGE as error:
            raise InvalidInput(
                f"expected a whole picture in {path}, got something else ({error}); fetch it again"
            ) from error


def _decoded(path: Path) -> "Image":
    """A picture in three channels, without a word on odd but readable files."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(path) as picture:
                picture.load()
                plain = picture.convert("RGBA") if "transparency" in picture.info else picture
                return plain.convert("RGB")
        except Image.DecompressionBombError as error:
            raise ValueError("more pixels than any of these sets has") from error


def _resized(picture: "Image", side: int) -> UInt8[np.ndarray, "s s 3"]:
    """Bilinear over the whole area of a pixel, so that reduced pictures are smooth."""
    from PIL.Image import Resampling

    if picture.size != (side, side):
        picture = picture.resize((side, side), Resampling.BILINEAR)
    return np.asarray(picture, dtype=np.uint8)
