"""A frozen pretrained network with its preprocessing, and its pooled features in parallel batches."""

import copy
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import nn

from vpdr.encoder.networks import AdapterSite, BlockAdapters, Network
from vpdr.io import cache_key, default_cache_dir, load_arrays, save_arrays
from vpdr.types import Float, Inputs, Int, Int32, Int64, Tensor, UInt8
from vpdr.validation import InvalidInput, format_error

MIN_PIXELS = 32
MAX_TOKENS = 128  # of a text, with the first and the last special token
_TEXTS_PER_CALL = 1024  # texts tokenised at a time, to bound memory

RgbLevels: TypeAlias = tuple[float, float, float]  # from 0 to 255
Tokeniser: TypeAlias = Callable[[list[str]], list[list[int]]]
BatchProgress: TypeAlias = Callable[[int, int], None]  # samples done, samples in total
BatchRows: TypeAlias = Int[Tensor, " _"]  # batches differ in size
ComputeBatch: TypeAlias = Callable[[BatchRows], Float[Tensor, "_ p"]]

FEATURES_VERSION = 3  # increase it whenever the same weights and samples give other features than before
CHUNK_SIZE = 4096  # samples in one file: the most that an interruption costs
_READ_SIZE = 64  # samples read at a time to hash them
_EXAMPLE_TEXTS = ["one", "two words", "three other words"]
_CPU_BATCH_SIZE, _ACCELERATOR_BATCH_SIZE = 16, 256


@dataclass(frozen=True, slots=True)
class Normalisation:
    """`(x - mean) / std` for each channel, on the scale from 0 to 255."""

    mean: RgbLevels
    std: RgbLevels

    @classmethod
    def from_levels(cls, mean: Iterable[float], std: Iterable[float], levels: float = 255.0) -> "Normalisation":
        """From a mean and a standard deviation on the scale where `levels` of ours are 1."""
        (mean_r, mean_g, mean_b), (std_r, std_g, std_b) = ([levels * float(x) for x in each] for each in (mean, std))
        return cls((mean_r, mean_g, mean_b), (std_r, std_g, std_b))

    def __call__(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 h w"]:
        mean, std = (x.new_tensor(levels)[:, None, None] for levels in (self.mean, self.std))
        return (x - mean) / std


LITE_NORMALISATION = Normalisation((127.0,) * 3, (128.0,) * 3)
INCEPTION_NORMALISATION = Normalisation((127.5,) * 3, (127.5,) * 3)
IMAGENET_NORMALISATION = Normalisation((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))


@runtime_checkable
class Preprocessor(Protocol):
    """Turns raw samples of one modality into inputs of a network."""

    def make_inputs(self, raw: object) -> Inputs:
        """Raw samples, or their `Inputs`, as a source of batches; another modality is refused."""

    def prepare(self, batch: Tensor) -> Tensor:
        """A batch as the network takes it, on the device of the batch; gradients flow to it."""

    def reading_order(self, inputs: Inputs) -> Int[Tensor, " n"]:
        """The order in which batches are cheapest."""


@dataclass(frozen=True, slots=True)
class ImagePreprocessor:
    """Resizes, crops and normalises images.

    With a crop, the shorter side gets `pixels` and the middle is used; without one, images become squares.
    """

    normalisation: Normalisation
    pixels: int
    crop: int = 0  # the side of the middle part; 0: all of the image
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        if self.pixels < MIN_PIXELS:
            raise InvalidInput(f"pixels must be at least {MIN_PIXELS}, got {self.pixels}; use 64 to 224")

    def with_pixels(self, pixels: int) -> "ImagePreprocessor":
        """The same for another size; the crop is the same share of the image."""
        return replace(self, pixels=pixels, crop=self.crop * pixels // self.pixels)

    def make_inputs(self, raw: object) -> Inputs:
        if isinstance(raw, Inputs):
            return raw
        if isinstance(raw, np.ndarray) and raw.ndim == 4 and raw.dtype == np.uint8:
            return ImageArrayInputs(raw)
        got = (
            f"an array of {raw.dtype} with shape {raw.shape}"
            if isinstance(raw, np.ndarray)
            else f"a {type(raw).__name__}"
        )
        raise InvalidInput(
            f"expected images for an image backbone (uint8, n x height x width x 3), got {got}; "
            "choose a text backbone for texts"
        )

    def prepare(self, batch: Tensor) -> Float[Tensor, "b 3 p p"]:
        if batch.ndim != 4 or batch.shape[1] != 3:
            raise InvalidInput(
                f"expected a batch of images (b x 3 x height x width), got shape {tuple(batch.shape)}; "
                "choose a text backbone for tokens"
            )
        x = batch.float().contiguous(memory_format=torch.channels_last)
        height, width = batch.shape[2:]
        shorter = min(height, width)
        size = [self.pixels * side // shorter if self.crop else self.pixels for side in (height, width)]
        if [height, width] != size:
            is_smooth = self.interpolation in ("bilinear", "bicubic")
            x = nn.functional.interpolate(x, size, mode=self.interpolation, antialias=is_smooth)
            x = x.clamp(0, 255) if self.interpolation == "bicubic" else x  # it overshoots at edges
        if self.crop:
            top, left = ((side - self.crop) // 2 for side in size)
            x = x[:, :, top : top + self.crop, left : left + self.crop]
        return self.normalisation(x)

    def reading_order(self, inputs: Inputs) -> Int[Tensor, " n"]:
        return torch.arange(len(inputs))  # a memory map is read sequentially


@dataclass(frozen=True, slots=True)
class ImageArrayInputs:
    """Images in one array, in memory or mapped from disk, read batch by batch without augmentation. Private."""

    images: UInt8[np.ndarray, "all h w 3"]
    rows: Int[Tensor, " n"] | None = None  # None for all

    def __len__(self) -> int:
        return len(self.images) if self.rows is None else len(self.rows)

    def take(self, rows: Int[Tensor, " m"]) -> "ImageArrayInputs":
        return ImageArrayInputs(self.images, rows if self.rows is None else self.rows[rows])

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> UInt8[Tensor, "b 3 h w"]:
        rows = rows if self.rows is None else self.rows[rows]
        return torch.from_numpy(self.images[rows.numpy()]).permute(0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """Tokenised texts, concatenated in one array. Private."""

    ids: Int32[np.ndarray, " all"]  # of the tokens of all texts
    starts: Int64[np.ndarray, " n"]  # the index of the first token of each text
    lengths: Int64[np.ndarray, " n"]  # the number of tokens of each text
    padding_id: int

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Int[Tensor, " m"]) -> "TokenInputs":
        return TokenInputs(self.ids, self.starts[rows.numpy()], self.lengths[rows.numpy()], self.padding_id)

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> Int64[Tensor, "b 2 t"]:
        """Ids and mask in one tensor, padded to the longest of these texts; texts are not augmented."""
        starts, lengths = self.starts[rows.numpy()], self.lengths[rows.numpy()]
        positions = np.arange(lengths.max(initial=0))
        mask = positions < lengths[:, None]
        ids = self.ids[np.where(mask, starts[:, None] + positions, 0)]
        ids = np.where(mask, ids, self.padding_id)
        return torch.from_numpy(np.stack([ids, mask], axis=1).astype(np.int64))


@dataclass(frozen=True, slots=True)
class TextPreprocessor:
    """Tokenises texts."""

    tokenise: Tokeniser
    padding_id: int

    def make_inputs(self, raw: object) -> Inputs:
        if isinstance(raw, Inputs):
            return raw
        if isinstance(raw, Sequence) and not isinstance(raw, str) and all(isinstance(t, str) for t in raw):
            tokens: list[Int32[np.ndarray, " t"]] = []
            for start in range(0, len(raw), _TEXTS_PER_CALL):
                block = self.tokenise(list(raw[start : start + _TEXTS_PER_CALL]))
                tokens += [np.asarray(ids, np.int32) for ids in block]
            lengths = np.array([len(ids) for ids in tokens], np.int64)
            all_ids = np.concatenate(tokens) if tokens else np.zeros(0, np.int32)
            return TokenInputs(all_ids, lengths.cumsum() - lengths, lengths, self.padding_id)
        kind = "one text" if isinstance(raw, str) else f"a {type(raw).__name__}"
        raise InvalidInput(
            f"expected a list of texts for a text backbone, got {kind}; choose an image backbone for images"
        )

    def prepare(self, batch: Tensor) -> Int[Tensor, "b 2 t"]:
        if batch.ndim != 3 or batch.shape[1] != 2 or batch.is_floating_point():
            raise InvalidInput(
                f"expected a batch of tokens (b x 2 x length), got shape {tuple(batch.shape)}; "
                "choose an image backbone for images"
            )
        return batch

    def reading_order(self, inputs: Inputs) -> Int[Tensor, " n"]:
        """By length, so that a batch has little padding."""
        if not isinstance(inputs, TokenInputs):
            return torch.arange(len(inputs))
        return torch.from_numpy(np.argsort(inputs.lengths, kind="stable"))


def make_hashing_preprocessor(vocab_size: int) -> TextPreprocessor:
    """A tokeniser for random weights: the id of a word is its checksum modulo the vocabulary."""

    def tokenise(texts: list[str]) -> list[list[int]]:
        usable = vocab_size - 4  # the first ids are padding, start and end
        return [
            [1, *(4 + zlib.crc32(word.encode()) % usable for word in text.split()[: MAX_TOKENS - 2]), 2]
            for text in texts
        ]

    return TextPreprocessor(tokenise, 0)


@dataclass(frozen=True, slots=True)
class FeatureInputs:
    """Pooled features as inputs, for encoders that train nothing before their projection. Private."""

    features: Float[Tensor, "n p"]  # one for each sample

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: Int[Tensor, " m"]) -> "FeatureInputs":
        return FeatureInputs(self.features[rows])

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> Float[Tensor, "b p"]:
        return self.features[rows]


def example_images(pixels: int) -> UInt8[np.ndarray, "3 s s 3"]:
    """Three different smooth images: what resizes them in another way gives nearly the same pixels."""
    side = np.linspace(0, 1, pixels)
    waves = [[np.sin((3 + image) * side[:, None] + (1 + channel) * side) for channel in range(3)] for image in range(3)]
    return np.ascontiguousarray((127.5 + 127 * np.array(waves)).round().astype(np.uint8).transpose(0, 2, 3, 1))


def example_batch(preprocessor: Preprocessor) -> Tensor:
    """Three different samples as a network takes them."""
    images = example_images(preprocessor.pixels) if isinstance(preprocessor, ImagePreprocessor) else None
    inputs = preprocessor.make_inputs(_EXAMPLE_TEXTS if images is None else images)
    return preprocessor.prepare(inputs.batch(torch.arange(3)))


@dataclass(frozen=True, kw_only=True, slots=True)
class BackboneInfo:
    """What is known about a backbone before its weights are loaded."""

    modality: str  # image or text
    pooled_dim: int
    adapter_width: int  # as in the paper; for feature maps that of the widest block
    first_adapter_block: int = 0  # the first block that has an adapter in the paper
    projection_bias: bool = True
    projection_gain: float = 1.0  # of the frozen normalisation after the projection


def _call(function: Callable[..., Any], x: Tensor) -> Any:
    """A user's function on a batch of images, or on ids and mask of tokens."""
    return function(x) if x.is_floating_point() else function(*x.unbind(1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Backbone:
    """A frozen encoder with its preprocessing, from samples to pooled features.

    All clients share its weights: a deep copy is the same object, and no state dict of a client holds them.

    Args:
        name: how records call it.
        info: what is known about it without its weights.
        network: the frozen network.
        preprocessor: from raw samples to the network's inputs.
        digest: SHA-256 of the weights.
        origin: where the weights come from.
        architecture: what features depend on besides weights, preprocessing and samples, for their cache.
        is_cached: whether features are stored on disk.

    Guarantee: the network is never trained.

    >>> backbone = Backbone.from_module(nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten()), pixels=32)
    >>> backbone.pooled_features(np.zeros((5, 40, 40, 3), np.uint8)).shape
    torch.Size([5, 12])
    """

    name: str
    info: BackboneInfo
    network: Network
    preprocessor: Preprocessor
    digest: str
    origin: str
    architecture: str = ""
    is_cached: bool = True

    @classmethod
    def from_module(
        cls,
        module: nn.Module | Callable[..., Tensor],
        *,
        name: str = "module",
        pixels: int = 224,
        mean: RgbLevels = (0.0, 0.0, 0.0),
        std: RgbLevels = (1.0, 1.0, 1.0),
        tokenise: Tokeniser | None = None,
        padding_id: int = 0,
        version: str = "",
    ) -> "Backbone":
        """A backbone from a module or a function of your own, for `vpdr.build` or the registry `BACKBONES`.

        Args:
            module: from a batch to its pooled features, batch x dim. The batch is of images, batch x 3 x pixels x
                pixels, or for texts two arguments, ids and mask of the tokens, both batch x length. It is copied.
            name: how records call it.
            pixels: the side to which images are resized.
            mean, std: of each channel on the scale from 0 to 1; images are normalised as (x / 255 - mean) / std.
            tokenise: from a list of texts to the ids of each; with it, the module reads texts.
            padding_id: the id that fills up shorter texts.
            version: a name for this module and its code, under which features are stored on disk for later
                processes; empty: they are not stored.

        Returns:
            The backbone, with places for adapters after the blocks that its structure shows.

        Raises:
            InvalidInput: the module cannot be called, or the feature of a sample depends on its batch.

        Guarantee: nobody knows on which data the module was trained; a release that is proved with
            `release.encoder=public` is so only if no client's private samples were among them.

        >>> layers = [nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()) for _ in range(4)]
        >>> module = nn.Sequential(nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> backbone = Backbone.from_module(module, pixels=64)
        >>> backbone.pooled_dim, len(backbone.network.adapter_sites)
        (3, 4)
        """
        preprocessor: Preprocessor = ImagePreprocessor(Normalisation.from_levels(mean, std), pixels)
        if tokenise is not None:
            preprocessor = TextPreprocessor(tokenise, padding_id)
        own, call = (
            (copy.deepcopy(module), _call)
            if isinstance(module, nn.Module)
            else (nn.Identity(), lambda _, x: _call(module, x))
        )
        digest = hashlib.sha256()
        for key, value in own.state_dict().items():
            digest.update(key.encode() + value.cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return cls.from_network(
            Network(own, call, example_batch(preprocessor)),
            preprocessor,
            name=name,
            digest=digest.hexdigest(),
            origin="Python",
            architecture=version,
            is_cached=bool(version),
        )

    @classmethod
    def from_network(
        cls, network: Network, preprocessor: Preprocessor, *, info: BackboneInfo | None = None, **fields: Any
    ) -> "Backbone":
        """A backbone with the properties of its network; adapters are as narrow as the paper's.

        They are: 8 for tokens of 192 dimensions, and an eighth of the channels of feature maps.
        """
        widest = max(network.adapter_sites, default=AdapterSite(network.pooled_dim, is_channel_map=False))
        info = info or BackboneInfo(
            modality="image" if isinstance(preprocessor, ImagePreprocessor) else "text",
            pooled_dim=network.pooled_dim,
            adapter_width=max(1, widest.dim // (8 if widest.is_channel_map else 24)),
        )
        return cls(info=info, network=network, preprocessor=preprocessor, **fields)

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
        architecture = f" {self.architecture}" if self.architecture else ""
        if not isinstance(self.preprocessor, ImagePreprocessor):
            return f"{self.modality} on {self.device.type}{architecture}"
        if self.preprocessor.crop or self.preprocessor.interpolation != "bilinear":
            return f"{self.preprocessor!r} on {self.device.type}{architecture}"
        mean, std = self.preprocessor.normalisation.mean, self.preprocessor.normalisation.std
        # This text is part of the keys of caches on users' disks: with another one, all features would be
        # computed again.
        normalisation = f"Normalisation(mean={mean!r}, deviation={std!r})"
        return f"Lens(normalisation={normalisation}, pixels={self.pixels!r}) on {self.device.type}{architecture}"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        weight = next(self.network.parameters(), None)
        return torch.device("cpu") if weight is None else weight.device

    def with_pixels(self, pixels: int) -> "Backbone":
        """The same weights for another image size; refused for a text backbone."""
        if not isinstance(self.preprocessor, ImagePreprocessor):
            raise InvalidInput(f"expected an image backbone to set pixels, got {self.name}; leave pixels out")
        if pixels == self.pixels:
            return self
        resized = replace(self, preprocessor=self.preprocessor.with_pixels(pixels))
        try:
            with torch.no_grad():
                resized.features(torch.zeros(1, 3, pixels, pixels))
        except (AssertionError, RuntimeError, ValueError) as error:
            reason = format_error(error)
            raise InvalidInput(
                f"{self.name} cannot take images of {pixels} pixels ({reason}); leave pixels out"
            ) from error
        return resized

    def to(self, device: str) -> "Backbone":
        """The same backbone, moved to a device; InvalidInput if this machine does not have it."""
        try:
            target = torch.device(device)
            if target.type == "cuda":
                torch.backends.cudnn.allow_tf32 = False  # so that results are as precise as on a CPU
            return replace(self, network=self.network.to(target))
        except (RuntimeError, AssertionError) as error:
            raise InvalidInput(
                f"expected a device that this machine has, got {device!r}; use cpu, or cuda if there is one"
            ) from error

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
    if not backbone.is_cached:
        return backbone.pooled_features(inputs, progress=progress)
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
