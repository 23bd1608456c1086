"""BERT-like text encoders: MiniLM and RoBERTa differ in their sizes, their positions and what they pool."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vpdr.encoder.network import Adapters, Network, Site, adapted
from vpdr.encoder.transformer import NormLast

SLICE, SLICES = 32, 8  # of a batch: at least so many texts in each, at most so many of them


@dataclass(frozen=True, kw_only=True, slots=True)
class TextShape:
    """All that tells one BERT-like network from another."""

    dim: int
    heads: int
    depth: int
    words: int
    positions: int
    types: int
    first: int  # the position of a text's first token
    eps: float
    pool: Callable[[Float[Tensor, "b t d"], Bool[Tensor, "b t"]], Float[Tensor, "b d"]]


class TextEncoder(Network):
    """Tokens through post-normalised layers; it is fed ids and mask as one tensor of integers."""

    def __init__(self, shape: TextShape) -> None:
        super().__init__()
        self.shape = shape
        self.pooled_dim = shape.dim
        self.sites = (Site(shape.dim, channels=False),) * shape.depth
        self.words = nn.Embedding(shape.words, shape.dim)
        self.positions = nn.Embedding(shape.positions, shape.dim)
        self.types = nn.Embedding(shape.types, shape.dim)
        self.norm = nn.LayerNorm(shape.dim, eps=shape.eps)
        self.blocks = nn.ModuleList(
            NormLast(shape.dim, shape.heads, 4 * shape.dim, shape.eps) for _ in range(shape.depth)
        )

    def features(self, x: Int[Tensor, "b 2 t"], adapters: Adapters) -> Float[Tensor, "b p"]:
        """The pooled feature of token ids (first row of each sample) under their mask (second row).

        A large batch goes in slices of texts that are about as long: most of it would be padding otherwise,
        which costs as much time and memory as words do.
        """
        lengths = x[:, 1].sum(1)
        order = lengths.argsort(stable=True)
        made = []
        for rows in order.split(max(SLICE, -(-len(x) // SLICES))):
            ids, mask = x[rows, :, : int(lengths[rows].max())].unbind(1)
            made.append(self.encode(self.words(ids), mask.bool(), adapters))
        return torch.cat(made)[order.argsort()]

    def encode(
        self, words: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"], adapters: Adapters
    ) -> Float[Tensor, "b p"]:
        """The same from word vectors, which an attacker may choose freely."""
        count = mask.long().cumsum(1) * mask
        places = (count + self.shape.first - 1).clamp(min=0)  # what is masked may stand anywhere
        x = self.norm(words + self.positions(places) + self.types.weight[0])
        for place, block in enumerate(self.blocks):
            x = adapted(block(x, mask[:, None, None, :]), adapters, place)
        return self.shape.pool(x, mask)


def mean_token(x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "b d"]:
    """The mean over the tokens that are there."""
    there = mask.to(x)[:, :, None]
    return (x * there).sum(1) / there.sum(1)


def first_token(x: Float[Tensor, "b t d"], _: Bool[Tensor, "b t"]) -> Float[Tensor, "b d"]:
    """Token 0, which stands for the whole text."""
    return x[:, 0]
