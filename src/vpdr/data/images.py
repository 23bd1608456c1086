"""Images of a benchmark: decoded from files, or published as arrays; read in batches and augmented."""

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vpdr.data.benchmark import Benchmark, Indices
from vpdr.data.spec import READ_ERRORS, IssueLog, RawDomain, files_digest
from vpdr.io import cache_key
from vpdr.types import Int, Int64, Tensor, UInt8
from vpdr.validation import InvalidInput, at_least

PADDING = 4  # pixels by which a random crop is shifted at most, as in the paper


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Small images that were published as one array, grey or RGB (an `ImageSource`)."""

    images: UInt8[np.ndarray, "n h w"] | UInt8[np.ndarray, "n h w 3"]
    digest: str  # of the files

    def __len__(self) -> int:
        return len(self.images)

    def fingerprint(self) -> str:
        return self.digest

    def take(self, rows: Indices) -> "ImageArray":
        return ImageArray(self.images[rows], cache_key(self.digest, rows.tobytes()))

    def stored_size(self, pixels: int) -> int:
        return min(pixels, int(self.images.shape[1]))

    def read(self, start: int, stop: int, size: int) -> UInt8[np.ndarray, "b s s 3"]:
        block = self.images[start:stop]
        if block.ndim == 3:
            block = np.repeat(block[..., None], 3, axis=-1)
        if block.shape[1:3] == (size, size):
            return block
        return np.stack([_resize(Image.fromarray(image), size) for image in block])

    def check(self, row: int, issues: IssueLog) -> None:
        """Nothing to do: the array was checked when it was read."""


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """One file for each image, of any size and colour mode (an `ImageSource`)."""

    paths: Sequence[Path]
    remedy: str = "download it again"  # for a damaged file

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, rows: Indices) -> "ImageFiles":
        return replace(self, paths=[self.paths[row] for row in rows])

    def fingerprint(self) -> str:
        return files_digest(self.paths)

    def stored_size(self, pixels: int) -> int:
        return pixels

    def read(self, start: int, stop: int, size: int) -> UInt8[np.ndarray, "b s s 3"]:
        images = []
        for path in self.paths[start:stop]:
            try:
                images.append(_resize(self.decode(path), size))
            except READ_ERRORS as error:
                raise InvalidInput(
                    f"expected a complete image in {path}, got something else ({error}); {self.remedy}"
                ) from error
        return np.stack(images)

    def decode(self, path: Path) -> Image.Image:
        """The image in a file."""
        return _decode(path)

    def check(self, row: int, issues: IssueLog) -> None:
        issues.try_read("a complete image", self.decode, self.paths[row])


@dataclass(frozen=True, eq=False)
class EncodedImages(ImageFiles):
    """Images of any format in the rows of a table; `paths` are the numbers of the rows."""

    read_file: Callable[[int], bytes | str] = field(kw_only=True)  # the content of an image, or its path
    digest: str = field(kw_only=True)  # of the table

    def fingerprint(self) -> str:
        return cache_key(self.digest, [path.name for path in self.paths])

    def decode(self, path: Path) -> Image.Image:
        """The image in a row."""
        content = self.read_file(int(path.name))
        return _decode(Path(content) if isinstance(content, str) else io.BytesIO(content))


def _decode(path: Path | io.BytesIO) -> Image.Image:
    """An image in RGB, without warnings on unusual but readable files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(path) as image:
                image.load()
                opaque = image.convert("RGBA") if "transparency" in image.info else image
                return opaque.convert("RGB")
        except Image.DecompressionBombError as error:
            raise ValueError("more pixels than any of these datasets has") from error


def _resize(image: Image.Image, size: int) -> UInt8[np.ndarray, "s s 3"]:
    """Bilinear, over the whole area of a pixel where the image is reduced."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.uint8)


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageInputs:
    """Images of a benchmark without their labels, read from disk batch by batch. Private.

    They are `vpdr.types.Inputs`. A batch holds bytes: normalisation belongs to the backbone.
    """

    arrays: tuple[UInt8[np.ndarray, "_ _ _ 3"], ...]  # of each domain, in memory or mapped from disk
    rows: Int64[np.ndarray, " n"]  # of the benchmark
    pixels: int  # the side of the images in a batch
    allow_flip: bool = False  # whether augmentation may mirror an image
    padding: int = PADDING  # pixels by which augmentation may shift an image

    @classmethod
    def from_benchmark(cls, benchmark: Benchmark, *, pixels: int, allow_flip: bool = False) -> "ImageInputs":
        """All images of a benchmark, in the order of its rows."""
        arrays = tuple(domain.images for domain in benchmark.image_domains)
        rows = np.arange(sum(map(len, arrays)), dtype=np.int64)
        return cls(arrays=arrays, rows=rows, pixels=pixels, allow_flip=allow_flip)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Int[Tensor, " m"]) -> "ImageInputs":
        return replace(self, rows=self.rows[rows.cpu().numpy()])

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> UInt8[Tensor, "b 3 p p"]:
        """These images; with a generator they are cropped at random, and mirrored at random if allowed."""
        selected = self.rows[rows.cpu().numpy()]
        images = torch.empty(len(selected), 3, self.pixels, self.pixels, dtype=torch.uint8)
        start = 0
        for array in self.arrays:
            positions = np.flatnonzero((selected >= start) & (selected < start + len(array)))
            if len(positions):
                block = torch.from_numpy(np.ascontiguousarray(array[selected[positions] - start])).permute(0, 3, 1, 2)
                if block.shape[2:] != (self.pixels, self.pixels):
                    size = (self.pixels, self.pixels)
                    resized = torch.nn.functional.interpolate(block.float(), size, mode="bilinear", antialias=True)
                    block = resized.round().clamp(0, 255).to(torch.uint8)
                images[torch.from_numpy(positions)] = block
            start += len(array)
        if rng is None:
            return images
        images = random_crop(images, self.padding, rng)
        return random_flip(images, rng) if self.allow_flip else images


def random_crop(images: UInt8[Tensor, "b 3 h w"], padding: int, rng: torch.Generator) -> UInt8[Tensor, "b 3 h w"]:
    """Each image shifted by up to `padding` pixels in both directions, with black where it has no pixels."""
    at_least(0, padding=padding)
    batch, _, height, width = images.shape
    offsets = torch.randint(2 * padding + 1, (2, batch), generator=rng)
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # every crop of every image, as a view
    return windows[torch.arange(batch), :, offsets[0], offsets[1]]


def random_flip(images: UInt8[Tensor, "b 3 h w"], rng: torch.Generator) -> UInt8[Tensor, "b 3 h w"]:
    """Each image mirrored with probability one half."""
    flip = torch.randint(2, (len(images),), generator=rng).bool()
    flipped = images.clone()
    flipped[flip] = images[flip].flip(-1)
    return flipped


LabelledImages = tuple[np.ndarray, Indices]


def make_labelled_images(images: np.ndarray, labels: np.ndarray, classes: int = 10) -> LabelledImages:
    """Images as bytes with their labels; raises ValueError if they do not fit each other.

    Images may be bytes, or numbers from 0 to 255, from 0 to 1 or from -1 to 1.
    """
    labels = labels.reshape(-1).astype(np.int64)
    if len(images) != len(labels) or len(labels) == 0:
        raise ValueError(f"{len(images)} images and {len(labels)} labels")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"labels from {labels.min()} to {labels.max()}")
    if images.shape[1] != images.shape[2]:
        raise ValueError(f"images of {images.shape[1]} x {images.shape[2]}")
    if images.dtype != np.uint8:
        low, high = float(images.min()), float(images.max())
        if not (np.isfinite(low) and np.isfinite(high) and low >= -1 and high <= 255):
            raise ValueError(f"values from {low:g} to {high:g}")
        scaled = images if high > 1 else (images + 1) * 127.5 if low < 0 else images * 255.0
        images = np.clip(np.round(scaled), 0, 255).astype(np.uint8)
    return images, labels


def concat_train_test(
    train: LabelledImages | None, test: LabelledImages | None, paths: Sequence[Path], issues: IssueLog
) -> RawDomain | None:
    """One domain, the test images last; None if one part could not be read."""
    if train is None or test is None:
        return None
    if train[0].shape[1:] != test[0].shape[1:]:
        issues.error(
            f"{issues.relative_path(paths[0])}: expected training and test images of one size, "
            f"got {train[0].shape[1:]} and {test[0].shape[1:]}; download them again"
        )
        return None
    images, labels = np.concatenate([train[0], test[0]]), np.concatenate([train[1], test[1]])
    return RawDomain(labels=labels, content=ImageArray(images, files_digest(paths)), test_size=len(test[1]))
