"""Images of a benchmark: decoded once into a cache on disk, then read in batches and augmented."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from vpdr.data.benchmark import Benchmark
from vpdr.data.files import READ_ERRORS, ImageSource, IssueLog, RawDomain, files_digest
from vpdr.data.split import Indices
from vpdr.errors import InvalidInput
from vpdr.io import atomic_writer, cache_key, default_cache_dir, write_error
from vpdr.validation import not_negative

if TYPE_CHECKING:
    from PIL.Image import Image

# Increase it whenever the same files give other pixels than before.
PIXELS_VERSION = 1
PADDING = 4  # pixels by which a random crop is shifted at most, as in the paper
_CHUNK_SIZE = 64  # images decoded at a time

DecodeProgress = Callable[[int, int], None]  # images done, images in total


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Small images that were published as one array, grey or RGB (an `ImageSource`)."""

    images: UInt8[np.ndarray, "n s s"] | UInt8[np.ndarray, "n s s 3"]
    digest: str  # of the files

    def __len__(self) -> int:
        return len(self.images)

    def fingerprint(self) -> str:
        """The digest of the files that hold the array."""
        return self.digest

    def stored_size(self, pixels: int) -> int:
        """At most the size that the images have."""
        return min(pixels, int(self.images.shape[1]))

    def read(self, start: int, stop: int, size: int) -> UInt8[np.ndarray, "b s s 3"]:
        """The images from `start` to `stop`, in RGB."""
        block = self.images[start:stop]
        if block.ndim == 3:
            block = np.repeat(block[..., None], 3, axis=-1)
        if size == block.shape[1]:
            return block
        from PIL import Image

        return np.stack([_resize(Image.fromarray(image), size) for image in block])

    def check(self, row: int, issues: IssueLog) -> None:
        """Nothing to do: the array was checked when it was read."""


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """One file for each image, of any size and colour mode (an `ImageSource`)."""

    paths: Sequence[Path]

    def __len__(self) -> int:
        return len(self.paths)

    def fingerprint(self) -> str:
        """The digest of all files, in their order."""
        return files_digest(self.paths)

    def stored_size(self, pixels: int) -> int:
        """The size that the model takes: the sizes of the files differ."""
        return pixels

    def read(self, start: int, stop: int, size: int) -> UInt8[np.ndarray, "b s s 3"]:
        """The images from `start` to `stop`; a file that cannot be decoded is named in the error."""
        return np.stack([self._read_image(path, size) for path in self.paths[start:stop]])

    def check(self, row: int, issues: IssueLog) -> None:
        """Decode one image and log an error if that fails."""
        issues.try_read("a complete image", _decode, self.paths[row])

    def _read_image(self, path: Path, size: int) -> UInt8[np.ndarray, "s s 3"]:
        try:
            return _resize(_decode(path), size)
        except READ_ERRORS as error:
            raise InvalidInput(
                f"expected a complete image in {path}, got something else ({error}); download it again"
            ) from error


def _decode(path: Path) -> "Image":
    """An image in RGB, without warnings on unusual but readable files."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(path) as image:
                image.load()
                opaque = image.convert("RGBA") if "transparency" in image.info else image
                return opaque.convert("RGB")
        except Image.DecompressionBombError as error:
            raise ValueError("more pixels than any of these datasets has") from error


def _resize(image: "Image", size: int) -> UInt8[np.ndarray, "s s 3"]:
    """Bilinear, over the whole area of a pixel where the image is reduced."""
    from PIL.Image import Resampling

    if image.size != (size, size):
        image = image.resize((size, size), Resampling.BILINEAR)
    return np.asarray(image, dtype=np.uint8)


def cached_images(
    source: ImageSource, label: str, *, pixels: int, progress: DecodeProgress, cache_dir: Path | None = None
) -> UInt8[np.ndarray, "n h w 3"]:
    """All images of a source as one array, memory-mapped from the cache.

    Images are never enlarged here: small ones keep their size and are enlarged batch by batch. The file gets
    its name only when it is complete, so an interrupted call leaves nothing behind.

    Args:
        source: the images on disk.
        label: the name of the benchmark and domain, part of the cache key.
        pixels: the side of the images that the model takes.
        progress: called with the numbers of images done and in total.
        cache_dir: the directory of the cache; None for the default.

    Returns:
        The images; another size or other files give another cache file.

    Raises:
        InvalidInput: an image cannot be decoded, or the cache cannot be written.
    """
    side = source.stored_size(pixels)
    shape = (len(source), side, side, 3)
    name = cache_key("pictures", PIXELS_VERSION, label, shape, source.fingerprint())
    path = (default_cache_dir() if cache_dir is None else cache_dir) / f"{name}.npy"
    if (mapped := _open_mapped(path, shape)) is not None:
        progress(len(source), len(source))
        return mapped
    _write_cache(path, source, shape, progress)
    if (mapped := _open_mapped(path, shape)) is None:
        raise write_error(path, OSError(0, "the file is not what was written"))
    return mapped


def _write_cache(path: Path, source: ImageSource, shape: tuple[int, int, int, int], progress: DecodeProgress) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    with atomic_writer(path, mode=0o600) as file:  # private data: readable by the owner only
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, shape[0], _CHUNK_SIZE):
            stop = min(start + _CHUNK_SIZE, shape[0])
            file.write(np.ascontiguousarray(source.read(start, stop, shape[1])).data)
            progress(stop, shape[0])


def _open_mapped(path: Path, shape: tuple[int, int, int, int]) -> UInt8[np.ndarray, "n h w 3"] | None:
    """The cache file, or None if it is missing, damaged or of another shape."""
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return stored if stored.shape == shape and stored.dtype == np.uint8 else None


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageInputs:
    """Images of a benchmark without their labels, read from disk batch by batch. Private.

    They are `vpdr.types.Inputs`. A batch holds bytes: normalisation belongs to the backbone.

    Args:
        arrays: the images of each domain, in memory or mapped from disk.
        rows: the rows of the benchmark that these inputs consist of.
        pixels: the side of the images in a batch.
        allow_flip: whether augmentation may mirror an image.
        padding: the number of pixels by which augmentation may shift an image.
    """

    arrays: tuple[UInt8[np.ndarray, "_ _ _ 3"], ...]
    rows: Int64[np.ndarray, " n"]
    pixels: int
    allow_flip: bool = False
    padding: int = PADDING

    @classmethod
    def from_benchmark(cls, benchmark: Benchmark, *, pixels: int, allow_flip: bool = False) -> "ImageInputs":
        """All images of a benchmark, in the order of its rows."""
        arrays = tuple(domain.images for domain in benchmark.image_domains)
        rows = np.arange(sum(map(len, arrays)), dtype=np.int64)
        return cls(arrays=arrays, rows=rows, pixels=pixels, allow_flip=allow_flip)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Int[Tensor, " m"]) -> "ImageInputs":
        """These images only, in this order; nothing is read yet."""
        return replace(self, rows=self.rows[rows.cpu().numpy()])

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> UInt8[Tensor, "b 3 p p"]:
        """These images; with a generator they are cropped at random, and mirrored at random if allowed."""
        images = self._read(self.rows[rows.cpu().numpy()])
        if rng is None:
            return images
        images = random_crop(images, self.padding, rng)
        return random_flip(images, rng) if self.allow_flip else images

    def _read(self, rows: Int64[np.ndarray, " b"]) -> UInt8[Tensor, "b 3 p p"]:
        out = torch.empty(len(rows), 3, self.pixels, self.pixels, dtype=torch.uint8)
        start = 0
        for array in self.arrays:
            positions = np.flatnonzero((rows >= start) & (rows < start + len(array)))
            if len(positions):
                images = torch.from_numpy(np.ascontiguousarray(array[rows[positions] - start]))
                out[torch.from_numpy(positions)] = _resize_batch(images.permute(0, 3, 1, 2), self.pixels)
            start += len(array)
        return out


def random_crop(images: UInt8[Tensor, "b 3 h w"], padding: int, rng: torch.Generator) -> UInt8[Tensor, "b 3 h w"]:
    """Each image shifted by up to `padding` pixels in both directions, with black where it has no pixels."""
    not_negative(padding=padding)
    batch, _, height, width = images.shape
    offsets = torch.randint(2 * padding + 1, (2, batch), generator=rng)
    padded = F.pad(images, (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # every crop of every image, as a view
    crops: UInt8[Tensor, "b 3 h w"] = windows[torch.arange(batch), :, offsets[0], offsets[1]]
    return crops


def random_flip(images: UInt8[Tensor, "b 3 h w"], rng: torch.Generator) -> UInt8[Tensor, "b 3 h w"]:
    """Each image mirrored with probability one half."""
    flip = torch.randint(2, (len(images),), generator=rng).bool()
    flipped = images.clone()
    flipped[flip] = images[flip].flip(-1)
    return flipped


def _resize_batch(images: UInt8[Tensor, "b 3 h w"], pixels: int) -> UInt8[Tensor, "b 3 p p"]:
    """Bilinear, with antialiasing where images are reduced."""
    if images.shape[2:] == (pixels, pixels):
        return images
    resized = F.interpolate(images.float(), (pixels, pixels), mode="bilinear", antialias=True)
    return resized.round().clamp(0, 255).to(torch.uint8)


# Images that a dataset publishes as arrays.


LabelledImages: TypeAlias = tuple[np.ndarray, Indices]


def make_labelled_images(images: np.ndarray, labels: np.ndarray, classes: int = 10) -> LabelledImages:
    """Images as bytes with their labels; raises ValueError if they do not fit each other."""
    labels = labels.reshape(-1).astype(np.int64)
    if len(images) != len(labels) or len(labels) == 0:
        raise ValueError(f"{len(images)} images and {len(labels)} labels")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"labels from {labels.min()} to {labels.max()}")
    if images.shape[1] != images.shape[2]:
        raise ValueError(f"images of {images.shape[1]} x {images.shape[2]}")
    return _to_uint8(images), labels


def _to_uint8(images: np.ndarray) -> np.ndarray:
    """Grey values from 0 to 255; the input may be bytes, or numbers from 0 or -1 to 1."""
    if images.dtype == np.uint8:
        return images
    low, high = float(images.min()), float(images.max())
    if not (np.isfinite(low) and np.isfinite(high) and low >= -1 and high <= 255):
        raise ValueError(f"values from {low:g} to {high:g}")
    scaled = images if high > 1 else (images + 1) * 127.5 if low < 0 else images * 255.0
    grey: np.ndarray = np.clip(np.round(scaled), 0, 255).astype(np.uint8)
    return grey


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
