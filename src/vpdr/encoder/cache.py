"""Pooled features, computed once and kept on disk under a name that says what made them."""

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vpdr.encoder.efficientnet_lite import EfficientNetLite0
from vpdr.errors import InvalidInput
from vpdr.files import cannot_write, write_atomically

# Raise it whenever the same weights and pictures would give other features than before.
FEATURES_VERSION = 1

_DIGEST_SIZE = hashlib.sha256().digest_size


def cached_pooled(
    backbone: EfficientNetLite0,
    images: UInt8[np.ndarray, "n h w 3"],
    *,
    pixels: int = 96,
    folder: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Float[Tensor, "n 1280"]:
    """The backbone's pooled features, from the cache where it has them whole.

    A damaged file is noticed by its digest and computed anew. `progress` hears (done, total).
    """
    folder = default_folder() if folder is None else Path(folder)
    path = folder / f"{cache_key(backbone, images, pixels)}.pooled"
    stored = _read(path)
    if stored is not None:
        if progress is not None:
            progress(len(images), len(images))
        return stored
    features = backbone.pooled(images, pixels=pixels, progress=progress)
    _write(path, features)
    return features


def cache_key(backbone: EfficientNetLite0, images: UInt8[np.ndarray, "n h w 3"], pixels: int) -> str:
    """A name for the features of these pictures: other weights, sizes, pictures or code give another."""
    if not backbone.digest:
        raise InvalidInput("expected a backbone with loaded weights, got one without; use load_lite0")
    content = hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()
    parts = (FEATURES_VERSION, backbone.digest, pixels, images.shape, content)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def default_folder() -> Path:
    """`$VPDR_CACHE`, or `~/.cache/vpdr`."""
    chosen = os.environ.get("VPDR_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "vpdr"


def _write(path: Path, features: Float[Tensor, "n d"]) -> None:
    buffer = io.BytesIO()
    np.save(buffer, features.numpy().astype(np.float32))
    payload = buffer.getvalue()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    write_atomically(path, hashlib.sha256(payload).digest() + payload)


def _read(path: Path) -> Float[Tensor, "n d"] | None:
    """The stored features, or None where there are none that can be trusted."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}; choose another cache folder") from error
    digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    return torch.from_numpy(np.load(io.BytesIO(payload), allow_pickle=False))
