"""Pooled features, computed once and kept on disk under a name that says what made them."""

import hashlib
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.cache import default_folder, fetch, name_of, store
from vpdr.encoder.backbone import Backbone
from vpdr.encoder.batches import Told
from vpdr.types import Inputs

# Raise it whenever the same weights and samples would give other features than before.
FEATURES_VERSION = 3
CHUNK = 4096  # samples in one file: what an interruption costs at most, and what is in memory twice
_SLICE = 64  # samples that are read at a time to learn what they are


def cached_pooled(
    backbone: Backbone,
    raw: object,
    *,
    pixels: int = 0,
    folder: Path | None = None,
    progress: Told | None = None,
) -> Float[Tensor, "n p"]:
    """The backbone's pooled features, from the cache where it has them whole.

    `raw` is an array of pictures (in memory or mapped from a file), a list of texts, or a source of inputs;
    it is read in slices. An interrupted computation goes on at its last whole chunk; a damaged file is
    noticed by its digest and computed anew. `progress` hears (done, total).
    """
    backbone = backbone.at(pixels) if pixels else backbone
    inputs = backbone.inputs(raw)
    folder = default_folder() if folder is None else Path(folder)
    out = torch.empty(len(inputs), backbone.pooled_dim)
    for rows in torch.arange(len(inputs)).split(CHUNK) if len(inputs) else ():
        first = int(rows[0])

        def told(done: int, _: int, before: int = first) -> None:
            if progress is not None:
                progress(before + done, len(inputs))

        path = folder / f"{cache_key(backbone, inputs, rows)}.pooled"
        out[rows] = _chunk(backbone, inputs, rows, path, told)
    return out


def _chunk(
    backbone: Backbone, inputs: Inputs, rows: Int[Tensor, " m"], path: Path, progress: Told
) -> Float[Tensor, "m p"]:
    stored = fetch(path)
    if stored is not None:
        progress(len(rows), len(rows))
        return torch.from_numpy(stored["features"])
    features = backbone.pooled(inputs, rows=rows, progress=progress)
    store(path, {"features": features.numpy()})
    return features


def cache_key(backbone: Backbone, inputs: Inputs, rows: Int[Tensor, " m"]) -> str:
    """A name for the features of these samples: other weights, sizes, samples or code give another."""
    hashed = hashlib.sha256()
    for part in rows.split(_SLICE):
        batch = inputs.batch(part).numpy()
        hashed.update(f"{batch.dtype}{batch.shape}".encode())
        hashed.update(np.ascontiguousarray(batch).data)
    return name_of(FEATURES_VERSION, backbone.digest, backbone.sight, len(rows), hashed.hexdigest())
