"""Pooled features, computed once and kept on disk under a name that says what made them."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vpdr.cache import default_folder, fetch, name_of, store
from vpdr.encoder.efficientnet_lite import EfficientNetLite0
from vpdr.errors import InvalidInput

# Raise it whenever the same weights and pictures would give other features than before.
FEATURES_VERSION = 2


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
    stored = fetch(path)
    if stored is not None:
        if progress is not None:
            progress(len(images), len(images))
        return torch.from_numpy(stored["features"])
    features = backbone.pooled(images, pixels=pixels, progress=progress)
    store(path, {"features": features.numpy().astype(np.float32)})
    return features


def cache_key(backbone: EfficientNetLite0, images: UInt8[np.ndarray, "n h w 3"], pixels: int) -> str:
    """A name for the features of these pictures: other weights, sizes, pictures or code give another."""
    if not backbone.digest:
        raise InvalidInput("expected a backbone with loaded weights, got one without; use load_lite0")
    content = hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()
    return name_of(FEATURES_VERSION, backbone.digest, pixels, images.shape, content)
