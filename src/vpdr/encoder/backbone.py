"""A frozen pretrained network with its preprocessing, and its pooled features in parallel batches."""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.encoder.networks import BlockAdapters, Network
from vpdr.encoder.preprocess import ImagePreprocessor, Preprocessor
from vpdr.errors import InvalidInput
from vpdr.io import cache_key, default_cache_dir, load_arrays, save_arrays
from vpdr.types import Inputs

BatchProgress: TypeAlias = Callable[[int, int], None]  # samples done, samples in total
BatchRows: TypeAlias = Int[Tensor, " _"]  # batches differ in size
ComputeBatch: TypeAlias = Callable[[BatchRows], Float[Tensor, "_ p"]]

# Increase it whenever the same weights and samples give other features than before.
FEATURES_VERSION = 3
CHUNK_SIZE = 4096  # samples in one file: the most that an interruption costs
_READ_SIZE = 64  # samples read at a time to hash them
_CPU_BATCH_SIZE, _ACCELERATOR_BATCH_SIZE = 16, 256


@dataclass(frozen=True, kw_only=True, slots=True)
class BackboneInfo:
    """What is known about a backbone before its weights are loaded."""

    modality: str  # image or text
    pooled_dim: int
    adapter_width: int  # as in the paper; for feature maps that of the widest block
    first_adapter_block: int = 0  # the first block that has an adapter in the paper
    projection_bias: bool = True
    projection_gain: float = 1.0  # of the frozen normalisation after the projection


@dataclass(frozen=True, kw_only=True, eq=False)
class Backbone:
    """A frozen pretrained network with its preprocessing.

    All clients share its weights: a deep copy is the same object, and no state dict of a client holds them.
    """

    name: str  # in the registry `BACKBONES`
    info: BackboneInfo
    network: Network
    preprocessor: Preprocessor
    digest: str  # identifies the weights, for the cache of features
    origin: str  # where the weights come from, for the record

    def __deepcopy__(self, memo: dict[int, Any]) -> "Backbone":
        return self

    @property
    def modality(self) -> str:
        """The kind of samples: `image` or `text`."""
        return self.info.modality

    @property
    def pooled_dim(self) -> int:
        """The dimension of the pooled features."""
        return self.network.pooled_dim

    @property
    def pixels(self) -> int:
        """The side of the images that the network takes; 0 for texts."""
        return self.preprocessor.pixels if isinstance(self.preprocessor, ImagePreprocessor) else 0

    @property
    def preprocessing_key(self) -> str:
        """All that the features depend on besides weights and samples, for the cache of features."""
        if not isinstance(self.preprocessor, ImagePreprocessor):
            return f"{self.modality} on {self.device.type}"
        mean, std = self.preprocessor.normalisation.mean, self.preprocessor.normalisation.std
        # This text is part of the keys of caches on users' disks: with another one, all features would be
        # computed again.
        normalisation = f"Normalisation(mean={mean!r}, deviation={std!r})"
        return f"Lens(normalisation={normalisation}, pixels={self.pixels!r}) on {self.device.type}"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.network.parameters()).device

    def with_pixels(self, pixels: int) -> "Backbone":
        """The same weights for another image size; refused for a text backbone."""
        if not isinstance(self.preprocessor, ImagePreprocessor):
            raise InvalidInput(f"expected an image backbone to set pixels, got {self.name}; leave pixels out")
        if pixels == self.pixels:
            return self
        return replace(self, preprocessor=replace(self.preprocessor, pixels=pixels))

    def make_inputs(self, raw: object) -> Inputs:
        """Images or texts as a source of batches; samples of another modality are refused."""
        return self.preprocessor.make_inputs(raw)

    def features(self, batch: Tensor, adapters: BlockAdapters | None = None) -> Float[Tensor, "b p"]:
        """The pooled features of one batch of images (0 to 255) or tokens, with gradients."""
        x = self.preprocessor.prepare(batch.to(self.device))
        return self.network.features(x, {} if adapters is None else adapters)

    def pooled_features(
        self,
        raw: object,
        *,
        rows: Int[Tensor, " m"] | None = None,
        batch_size: int = 0,
        progress: BatchProgress | None = None,
    ) -> Float[Tensor, "m p"]:
        """The pooled features of samples on the CPU, without adapters and gradients.

        `raw` is what `make_inputs` takes, `rows` the samples to use (None for all). Batches are small and on
        parallel threads on a CPU; on an accelerator they are large and on one thread, since each new thread
        would plan all convolutions again.
        """
        inputs = self.make_inputs(raw)
        if rows is not None:
            inputs = inputs.take(rows)
        out = torch.empty(len(inputs), self.pooled_dim)

        def compute(batch_rows: Int[Tensor, " b"]) -> Float[Tensor, "b p"]:
            # Inference mode is per thread, so it is entered in the thread that computes.
            with torch.inference_mode():
                return self.features(inputs.batch(batch_rows)).cpu()

        is_on_cpu = self.device.type == "cpu"
        batch_size = batch_size or (_CPU_BATCH_SIZE if is_on_cpu else _ACCELERATOR_BATCH_SIZE)
        batches = list(self.preprocessor.reading_order(inputs).split(batch_size)) if len(inputs) else []
        results = _map_on_single_threads(compute, batches) if is_on_cpu else map(compute, batches)
        done = 0
        for batch_rows, features in zip(batches, results, strict=True):
            out[batch_rows] = features
            done += len(batch_rows)
            if progress is not None:
                progress(done, len(inputs))
        return out


def _map_on_single_threads(compute: ComputeBatch, batches: list[BatchRows]) -> Iterator[Float[Tensor, "_ p"]]:
    """Map with as many workers as torch has threads, each worker with a single thread.

    Threads that share a small layer synchronise a hundred times for each batch, which is many times slower
    on a busy machine than workers that never synchronise.
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            yield from workers.map(compute, batches)
    finally:
        torch.set_num_threads(threads)


def cached_pooled_features(
    backbone: Backbone,
    raw: object,
    *,
    pixels: int = 0,
    cache_dir: Path | None = None,
    progress: BatchProgress | None = None,
) -> Float[Tensor, "n p"]:
    """The pooled features of samples on the CPU, from the cache where they are complete there.

    An interrupted computation continues after its last complete chunk; a damaged file is detected by its
    digest and computed again. `pixels` is 0 for the backbone's own size.
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
        stored = load_arrays(path)
        if stored is None:
            out[rows] = backbone.pooled_features(inputs, rows=rows, progress=chunk_progress)
            save_arrays(path, {"features": out[rows].numpy()})
        else:
            out[rows] = torch.from_numpy(stored["features"])
            chunk_progress(len(rows), len(rows))
    return out


def feature_cache_key(backbone: Backbone, inputs: Inputs, rows: Int[Tensor, " m"]) -> str:
    """A key of the weights, the preprocessing, the samples and the version of this code."""
    digest = hashlib.sha256()
    for part in rows.split(_READ_SIZE):
        batch = inputs.batch(part).numpy()
        digest.update(f"{batch.dtype}{batch.shape}".encode())
        digest.update(np.ascontiguousarray(batch).data)
    return cache_key(FEATURES_VERSION, backbone.digest, backbone.preprocessing_key, len(rows), digest.hexdigest())
