"""From raw samples to batches of a network: images, texts and pooled features as `vpdr.types.Inputs`."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int, Int32, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from vpdr.errors import InvalidInput
from vpdr.types import Inputs

MIN_PIXELS = 32
MAX_TOKENS = 128  # of a text, with the first and the last special token
_TEXTS_PER_CALL = 1024  # texts tokenised at a time, to bound memory

RgbLevels: TypeAlias = tuple[float, float, float]  # from 0 to 255
Tokeniser: TypeAlias = Callable[[list[str]], list[list[int]]]


@dataclass(frozen=True, slots=True)
class Normalisation:
    """`(x - mean) / std` for each channel, on the scale from 0 to 255."""

    mean: RgbLevels
    std: RgbLevels

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
    """Resizes and normalises images."""

    normalisation: Normalisation
    pixels: int

    def __post_init__(self) -> None:
        if self.pixels < MIN_PIXELS:
            raise InvalidInput(f"pixels must be at least {MIN_PIXELS}, got {self.pixels}; use 64 to 224")

    def make_inputs(self, raw: object) -> Inputs:
        if isinstance(raw, np.ndarray) and raw.ndim == 4 and raw.dtype == np.uint8:
            return ImageArrayInputs(raw)
        if isinstance(raw, Inputs):
            return raw
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
        if x.shape[2:] != (self.pixels, self.pixels):
            x = F.interpolate(x, (self.pixels, self.pixels), mode="bilinear", antialias=True)
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


def load_text_preprocessor(directory: Path) -> TextPreprocessor:
    """The tokeniser of a checkpoint's directory, read by transformers; nothing is downloaded."""
    from transformers import AutoTokenizer

    try:
        tokeniser = AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidInput(
            f"expected a tokeniser in {directory} (tokenizer.json, or vocab files), found none; "
            "copy the whole directory of the public checkpoint"
        ) from error

    def tokenise(texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = tokeniser(texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
        return ids

    return TextPreprocessor(tokenise, int(tokeniser.pad_token_id))


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
