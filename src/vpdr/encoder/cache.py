"""Pooled features, computed once and cached on disk under a key of all that they depend on."""

import hashlib
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.encoder.backbone import Backbone, BatchProgress
from vpdr.io import cache_key, default_cache_dir, load_arrays, save_arrays
from vpdr.types import Inputs

# Increase it whenever the same weights and samples give other features than before.
FEATURES_VERSION = 3
CHUNK_SIZE = 4096  # samples in one file: the most that an interruption costs
_READ_SIZE = 64  # samples read at a time to hash them


def cached_pooled_features(
    backbone: Backbone,
    raw: object,
    *,
    pixels: int = 0,
    cache_dir: Path | None = None,
    progress: BatchProgress | None = None,
) -> Float[Tensor, "n p"]:
    """The pooled features of samples, from the cache if they are complete there.

    An interrupted computation continues after its last complete chunk; a damaged file is detected by its
    digest and computed again.

    Args:
        backbone: the network.
        raw: an array of images (in memory or mapped from disk), a list of texts, or `Inputs`.
        pixels: the side of the images; 0 for the backbone's own.
        cache_dir: the directory of the cache; None for the default.
        progress: called with the numbers of samples done and in total.

    Returns:
        One feature for each sample, on the CPU.

    Raises:
        InvalidInput: the samples are of another modality, or the cache cannot be written.
    """
    backbone = backbone.with_pixels(pixels) if pixels else backbone
    inputs = backbone.make_inputs(raw)
    cache_dir = default_cache_dir() if cache_dir is None else Path(cache_dir)
    out = torch.empty(len(inputs), backbone.pooled_dim)
    for rows in torch.arange(len(inputs)).split(CHUNK_SIZE) if len(inputs) else ():

        def chunk_progress(done: int, _: int, start: int = int(rows[0])) -> None:
            if progress is not None:
                progress(start + done, len(inputs))

        path = cache_dir / f"{feature_cache_key(backbone, inputs, rows)}.pooled"
        out[rows] = _load_or_compute_chunk(backbone, inputs, rows, path, chunk_progress)
    return out


def _load_or_compute_chunk(
    backbone: Backbone, inputs: Inputs, rows: Int[Tensor, " m"], path: Path, progress: BatchProgress
) -> Float[Tensor, "m p"]:
    stored = load_arrays(path)
    if stored is not None:
        progress(len(rows), len(rows))
        return torch.from_numpy(stored["features"])
    features = backbone.pooled_features(inputs, rows=rows, progress=progress)
    save_arrays(path, {"features": features.numpy()})
    return features


def feature_cache_key(backbone: Backbone, inputs: Inputs, rows: Int[Tensor, " m"]) -> str:
    """A key of the weights, the preprocessing, the samples and the version of this code."""
    digest = hashlib.sha256()
    for part in rows.split(_READ_SIZE):
        batch = inputs.batch(part).numpy()
        digest.update(f"{batch.dtype}{batch.shape}".encode())
        digest.update(np.ascontiguousarray(batch).data)
    return cache_key(FEATURES_VERSION, backbone.digest, backbone.preprocessing_key, len(rows), digest.hexdigest())
