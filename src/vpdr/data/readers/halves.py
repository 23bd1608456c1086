"""Training and test arrays, put together with the test rows last."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from vpdr.data.findings import Findings
from vpdr.data.found import Found, files_digest
from vpdr.data.partition import Indices
from vpdr.data.rasters import Stack

Half: TypeAlias = tuple[np.ndarray, Indices]


def half(images: np.ndarray, labels: np.ndarray, classes: int = 10) -> Half:
    """Pictures as bytes with their labels, refused where they do not fit each other."""
    digits = labels.reshape(-1).astype(np.int64)
    if len(images) != len(digits) or len(digits) == 0:
        raise ValueError(f"{len(images)} pictures and {len(digits)} labels")
    if digits.min() < 0 or digits.max() >= classes:
        raise ValueError(f"labels from {digits.min()} to {digits.max()}")
    if images.shape[1] != images.shape[2]:
        raise ValueError(f"pictures of {images.shape[1]} x {images.shape[2]}")
    return as_bytes(images), digits


def as_bytes(images: np.ndarray) -> np.ndarray:
    """Grey values from 0 to 255, whatever they were: bytes, or numbers from 0 or -1 to 1."""
    if images.dtype == np.uint8:
        return images
    low, high = float(images.min()), float(images.max())
    if not (np.isfinite(low) and np.isfinite(high) and low >= -1 and high <= 255):
        raise ValueError(f"values from {low:g} to {high:g}")
    scaled = images if high > 1 else (images + 1) * 127.5 if low < 0 else images * 255.0
    grey: np.ndarray = np.clip(np.round(scaled), 0, 255).astype(np.uint8)
    return grey


def joined(train: Half | None, test: Half | None, paths: Sequence[Path], findings: Findings) -> Found | None:
    """One domain from its halves; None where one of them could not be read."""
    if train is None or test is None:
        return None
    if train[0].shape[1:] != test[0].shape[1:]:
        findings.broken(
            f"{findings.place(paths[0])}: expected training and test pictures of one size, "
            f"got {train[0].shape[1:]} and {test[0].shape[1:]}; fetch them again"
        )
        return None
    images, labels = np.concatenate([train[0], test[0]]), np.concatenate([train[1], test[1]])
    return Found(labels=labels, content=Stack(images, files_digest(paths)), tested=len(test[1]))
