"""Texts as numbers: tokenised once, padded batch by batch."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Int, Int32, Int64
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.types import Inputs

LONGEST = 128  # tokens of a text that are read, first and last mark included
_SLICE = 1024  # texts that are tokenised at a time, so that memory does not grow with the corpus

Tokenise: TypeAlias = Callable[[list[str]], list[list[int]]]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokenised texts, one after the other in one array. Private."""

    ids: Int32[np.ndarray, " all"]
    starts: Int64[np.ndarray, " n"]
    lengths: Int64[np.ndarray, " n"]
    padding: int

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Int[Tensor, " m"]) -> "Tokens":
        """These texts only; the array of ids is shared."""
        return Tokens(self.ids, self.starts[rows.numpy()], self.lengths[rows.numpy()], self.padding)

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> Int64[Tensor, "b 2 t"]:
        """Ids and mask in one tensor, as wide as the longest of these texts; texts are never augmented."""
        starts, lengths = self.starts[rows.numpy()], self.lengths[rows.numpy()]
        places = np.arange(lengths.max(initial=0))
        there = places < lengths[:, None]
        ids = self.ids[np.where(there, starts[:, None] + places, 0)]
        return torch.from_numpy(
            np.stack([np.where(there, ids, self.padding), there], axis=1).astype(np.int64)
        )


@dataclass(frozen=True, slots=True)
class Reader:
    """The eye of a text network."""

    tokenise: Tokenise
    padding: int

    def inputs(self, raw: object) -> Inputs:
        """Texts, or tokens that were made of them before."""
        if isinstance(raw, Inputs):
            return raw
        if isinstance(raw, Sequence) and not isinstance(raw, str) and all(isinstance(t, str) for t in raw):
            return self._read(list(raw))
        kind = "one text" if isinstance(raw, str) else f"a {type(raw).__name__}"
        raise InvalidInput(
            f"expected a list of texts for a text backbone, got {kind}; choose an image backbone for pictures"
        )

    def _read(self, texts: list[str]) -> Tokens:
        flat: list[Int32[np.ndarray, " t"]] = []
        for start in range(0, len(texts), _SLICE):
            flat += [np.asarray(ids, np.int32) for ids in self.tokenise(texts[start : start + _SLICE])]
        lengths = np.array([len(ids) for ids in flat], np.int64)
        ids = np.concatenate(flat) if flat else np.zeros(0, np.int32)
        return Tokens(ids, lengths.cumsum() - lengths, lengths, self.padding)

    def prepare(self, batch: Tensor) -> Int[Tensor, "b 2 t"]:
        """Ids and mask as they are."""
        if batch.ndim != 3 or batch.shape[1] != 2 or batch.is_floating_point():
            raise InvalidInput(
                f"expected a batch of tokens (b x 2 x length), got shape {tuple(batch.shape)}; "
                "choose an image backbone for pictures"
            )
        return batch

    def order(self, inputs: Inputs) -> Int[Tensor, " n"]:
        """By length, so that little of a batch is padding."""
        if not isinstance(inputs, Tokens):
            return torch.arange(len(inputs))
        return torch.from_numpy(np.argsort(inputs.lengths, kind="stable"))


def reader_from(folder: Path) -> Reader:
    """The tokeniser that lies in a folder, through transformers; nothing is fetched."""
    from transformers import AutoTokenizer

    try:
        tokeniser = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidInput(
            f"expected a tokeniser in {folder} (tokenizer.json, or vocab files), found none; "
            "copy the whole folder of the public checkpoint"
        ) from error

    def tokenise(texts: list[str]) -> list[list[int]]:
        made: list[list[int]] = tokeniser(texts, truncation=True, max_length=LONGEST)["input_ids"]
        return made

    return Reader(tokenise, int(tokeniser.pad_token_id))


def hashed_reader(words: int) -> Reader:
    """For random weights, which know no words: each is a number by its checksum, the same everywhere."""

    def tokenise(texts: list[str]) -> list[list[int]]:
        usable = words - 4  # the first numbers mean padding, start and end
        return [
            [1, *(4 + zlib.crc32(word.encode()) % usable for word in text.split()[: LONGEST - 2]), 2]
            for text in texts
        ]

    return Reader(tokenise, 0)
