"""What all readers share: finding files below a directory, and joining training and test images."""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

import numpy as np

from vpdr.data.benchmark import IssueLog, RawDomain, files_digest
from vpdr.data.images import ImageArray
from vpdr.data.partition import Indices

MAX_DEPTH = 3

LabelledImages: TypeAlias = tuple[np.ndarray, Indices]


def walk_visible(root: Path, max_depth: int = MAX_DEPTH) -> Iterator[tuple[Path, list[str]]]:
    """Directories with the names of their files, sorted; nothing hidden, and not too deep."""
    for path, directories, files in os.walk(root, followlinks=True):
        directory = Path(path)
        directories[:] = sorted(name for name in directories if is_visible(name))
        yield directory, sorted(name for name in files if is_visible(name))
        if len(directory.relative_to(root).parts) >= max_depth:
            directories.clear()


def is_visible(name: str) -> bool:
    """Neither hidden nor left behind by an archive."""
    return not name.startswith((".", "__MACOSX"))


def find_file(root: Path, patterns: tuple[str, ...], prefer: str = "") -> Path | None:
    """The file whose name fits one of the patterns; first those in a directory `prefer`, then the least deep.

    An earlier pattern comes before a later one, an uncompressed file before its archive.
    """
    candidates = []
    for directory, files in walk_visible(root):
        for name in files:
            for rank, pattern in enumerate(patterns):
                if fnmatch(name.lower(), pattern):
                    path = directory / name
                    parts = path.relative_to(root).parts
                    elsewhere = prefer not in {part.lower() for part in (root.name, *parts[:-1])}
                    candidates.append((bool(prefer) and elsewhere, rank, path.suffix == ".gz", len(parts), path))
    return min(candidates)[-1] if candidates else None


def find_directory(root: Path, name: str) -> Path | None:
    """The least deep directory of that name; it may be `root` itself."""
    candidates = [directory for directory, _ in walk_visible(root) if directory.name.lower() == name]
    return min(candidates, key=lambda path: (len(path.parts), path)) if candidates else None


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
