"""A frozen pretrained network with its preprocessing, and its pooled features in parallel batches."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vpdr.encoder.preprocess import ImagePreprocessor, Preprocessor
from vpdr.errors import InvalidInput
from vpdr.io import cache_key, default_cache_dir, load_arrays, save_arrays
from vpdr.types import Inputs

BatchProgress: TypeAlias = Callable[[int, int], None]  # samples done, samples in total
BatchRows: TypeAlias = Int[Tensor, " _"]  # batches differ in size
ComputeBatch: TypeAlias = Callable[[BatchRows], Float[Tensor, "_ p"]]

BlockAdapters = Mapping[int, Callable[[Tensor], Tensor]]  # by the index of the block that they follow


class AdapterSite(NamedTuple):
    """A place for an adapter: the number of features or channels, and whether they form a feature map."""

    dim: int
    is_channel_map: bool


class Network(nn.Module):
    """A frozen network: nothing in it is trained, and its batch statistics never change.

    `init_negative_slope` is the argument `a` of `kaiming_uniform_` for random weights: with it, activations
    neither vanish nor explode with depth.
    """

    pooled_dim: int
    adapter_sites: tuple[AdapterSite, ...]
    init_negative_slope: float = 5**0.5

    def train(self, mode: bool = True) -> "Network":
        """Stay in evaluation mode: the features of a sample must not depend on its batch."""
        return super().train(False)

    def features(self, x: Tensor, adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features, with the output of each block passed through its adapter, if it has one."""
        raise NotImplementedError


def apply_block_adapter(
    x: Float[Tensor, "*shape"], adapters: BlockAdapters, block_index: int
) -> Float[Tensor, "*shape"]:
    """The output of the adapter after this block; `x` itself if there is none."""
    return adapters[block_index](x) if block_index in adapters else x


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

    Args:
        name: its name in the registry `BACKBONES`.
        info: what is known about it without its weights.
        network: the network.
        preprocessor: turns raw samples into inputs of the network.
        digest: identifies the weights, for the cache of features.
        origin: where the weights come from, for the record.
    """

    name: str
    info: BackboneInfo
    network: Network
    preprocessor: Preprocessor
    digest: str
    origin: str

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
        """The same weights for another image size.

        Raises:
            InvalidInput: this is not an image backbone, or the size is too small.
        """
        if not isinstance(self.preprocessor, ImagePreprocessor):
            raise InvalidInput(f"expected an image backbone to set pixels, got {self.name}; leave pixels out")
        if pixels == self.pixels:
            return self
        return replace(self, preprocessor=replace(self.preprocessor, pixels=pixels))

    def make_inputs(self, raw: object) -> Inputs:
        """Images or texts as a source of batches.

        Raises:
            InvalidInput: the samples are of another modality.
        """
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
        """The pooled features of samples, without adapters and gradients.

        Args:
            raw: the samples, as `make_inputs` takes them.
            rows: the samples to use; None for all.
            batch_size: the number of samples in a batch; 0 for the default of the device.
            progress: called with the numbers of samples done and in total.

        Returns:
            One feature for each sample, on the CPU; it does not depend on the other samples.

        Raises:
            InvalidInput: the samples are of another modality.
        """
        inputs = self.make_inputs(raw)
        if rows is not None:
            inputs = inputs.take(rows)
        out = torch.empty(len(inputs), self.pooled_dim)

        def compute(batch_rows: Int[Tensor, " b"]) -> Float[Tensor, "b p"]:
            # Inference mode is per thread, so it is entered in the thread that computes.
            with torch.inference_mode():
                return self.features(inputs.batch(batch_rows)).cpu()

        schedule = batch_schedule_for(self.device.type, batch_size)
        order = self.preprocessor.reading_order(inputs)
        run_in_batches(compute, order, out, schedule=schedule, progress=progress)
        return out


class BatchSchedule(NamedTuple):
    """The number of samples in a batch, and how batches are mapped to results."""

    batch_size: int
    map_batches: Callable[[ComputeBatch, list[BatchRows]], Iterator[Float[Tensor, "_ p"]]]


def batch_schedule_for(device: str, batch_size: int = 0) -> BatchSchedule:
    """Small batches on parallel threads for a CPU; large ones from one thread for an accelerator.

    On an accelerator each new thread would plan all convolutions again.
    """
    schedule = BatchSchedule(16, map_on_single_threads) if device == "cpu" else BatchSchedule(256, map)
    return schedule._replace(batch_size=batch_size or schedule.batch_size)


def map_on_single_threads(compute: ComputeBatch, batches: list[BatchRows]) -> Iterator[Float[Tensor, "_ p"]]:
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


def run_in_batches(
    compute: ComputeBatch,
    order: Int[Tensor, " n"],
    out: Float[Tensor, "all p"],
    *,
    schedule: BatchSchedule,
    progress: BatchProgress | None = None,
) -> None:
    """Compute the rows of `out` that `order` lists, batch by batch."""
    done, batches = 0, list(order.split(schedule.batch_size)) if len(order) else []
    for rows, features in zip(batches, schedule.map_batches(compute, batches), strict=True):
        out[rows] = features
        done += len(rows)
        if progress is not None:
            progress(done, len(order))


# Pooled features, computed once and cached on disk under a key of all that they depend on.


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
