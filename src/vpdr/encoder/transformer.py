"""Vision Transformers with patches of 16 pixels, and BERT-like text encoders (MiniLM, RoBERTa)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from vpdr.encoder.backbone import AdapterSite, BlockAdapters, Network, apply_block_adapter

VIT_PATCH, VIT_GRID, VIT_DEPTH, VIT_EPS = 16, 14, 12, 1e-12
MIN_SLICE_SIZE, MAX_SLICES = 32, 8  # of a batch of texts


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b 1 1 t"] | None) -> Float[Tensor, "b t d"]:
        """The attended tokens; the mask is true for tokens that may be attended to."""
        query, key, value = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        out: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out


class TransformerLayer(nn.Module):
    """Attention and a feed-forward network, each with a shortcut; subclasses place the normalisation."""

    def __init__(self, dim: int, heads: int, inner: int, eps: float) -> None:
        super().__init__()
        self.attention = Attention(dim, heads)
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=eps), nn.LayerNorm(dim, eps=eps)
        self.widen, self.narrow = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def feed_forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """The feed-forward network, applied to each token."""
        out: Tensor = self.narrow(F.gelu(self.widen(x)))
        return out


class PreNormLayer(TransformerLayer):
    """Normalisation before attention and before the feed-forward network (ViT)."""

    def forward(self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b 1 1 t"] | None = None) -> Float[Tensor, "b t d"]:
        """One layer."""
        x = x + self.attention(self.norm1(x), mask)
        return x + self.feed_forward(self.norm2(x))


class PostNormLayer(TransformerLayer):
    """Normalisation after each shortcut (BERT)."""

    def forward(self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b 1 1 t"] | None = None) -> Float[Tensor, "b t d"]:
        """One layer."""
        x = self.norm1(x + self.attention(x, mask))
        out: Tensor = self.norm2(x + self.feed_forward(x))
        return out


class VisionTransformer(Network):
    """Twelve layers over patches and a class token; the feature is the mean over the patches only."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.pooled_dim = dim
        self.adapter_sites = (AdapterSite(dim, is_channel_map=False),) * VIT_DEPTH
        self.patches = nn.Conv2d(3, dim, VIT_PATCH, VIT_PATCH)
        self.token = nn.Parameter(torch.empty(1, 1, dim))
        self.positions = nn.Parameter(torch.empty(1, 1 + VIT_GRID * VIT_GRID, dim))
        self.blocks = nn.ModuleList(PreNormLayer(dim, heads, 4 * dim, VIT_EPS) for _ in range(VIT_DEPTH))
        self.norm = nn.LayerNorm(dim, eps=VIT_EPS)

    def features(self, x: Float[Tensor, "b 3 h w"], adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features of normalised images; adapters follow the layers and apply to all tokens."""
        patches = self.patches(x)
        rows, columns = patches.shape[2:]
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches.flatten(2).transpose(1, 2)], dim=1)
        tokens = tokens + self._position_embeddings(rows, columns)
        for index, block in enumerate(self.blocks):
            tokens = apply_block_adapter(block(tokens), adapters, index)
        normed: Tensor = self.norm(tokens)
        return normed[:, 1:].mean(1)

    def _position_embeddings(self, rows: int, columns: int) -> Float[Tensor, "1 t d"]:
        """The embeddings trained at 224 pixels; for other sizes their grid is interpolated."""
        if rows == columns == VIT_GRID:
            return self.positions
        grid = self.positions[:, 1:].unflatten(1, (VIT_GRID, VIT_GRID)).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, (rows, columns), mode="bicubic", align_corners=False)
        return torch.cat([self.positions[:, :1], grid.flatten(2).transpose(1, 2)], dim=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEncoderConfig:
    """The hyperparameters of a BERT-like network."""

    dim: int
    heads: int
    depth: int
    vocab_size: int
    max_positions: int
    token_types: int
    first_position: int  # the position of a text's first token
    eps: float
    pool: Callable[[Float[Tensor, "b t d"], Bool[Tensor, "b t"]], Float[Tensor, "b d"]]


class TextEncoder(Network):
    """A BERT-like network; token ids and mask are one tensor of integers."""

    def __init__(self, config: TextEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.pooled_dim = config.dim
        self.adapter_sites = (AdapterSite(config.dim, is_channel_map=False),) * config.depth
        self.words = nn.Embedding(config.vocab_size, config.dim)
        self.positions = nn.Embedding(config.max_positions, config.dim)
        self.types = nn.Embedding(config.token_types, config.dim)
        self.norm = nn.LayerNorm(config.dim, eps=config.eps)
        self.blocks = nn.ModuleList(
            PostNormLayer(config.dim, config.heads, 4 * config.dim, config.eps) for _ in range(config.depth)
        )

    def features(self, x: Int[Tensor, "b 2 t"], adapters: BlockAdapters) -> Float[Tensor, "b p"]:
        """The pooled features of token ids (first row of each sample) with their mask (second row).

        A large batch is processed in slices of texts of similar length: otherwise most of it would be
        padding, which costs as much time and memory as words.
        """
        lengths = x[:, 1].sum(1)
        order = lengths.argsort(stable=True)
        features = []
        for rows in order.split(max(MIN_SLICE_SIZE, -(-len(x) // MAX_SLICES))):
            ids, mask = x[rows, :, : int(lengths[rows].max())].unbind(1)
            features.append(self.encode_word_vectors(self.words(ids), mask.bool(), adapters))
        return torch.cat(features)[order.argsort()]

    def encode_word_vectors(
        self, word_vectors: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"], adapters: BlockAdapters
    ) -> Float[Tensor, "b p"]:
        """The pooled features of word vectors, which an attack can optimise directly."""
        count = mask.long().cumsum(1) * mask
        positions = (count + self.config.first_position - 1).clamp(min=0)  # of no effect where masked
        x = self.norm(word_vectors + self.positions(positions) + self.types.weight[0])
        for index, block in enumerate(self.blocks):
            x = apply_block_adapter(block(x, mask[:, None, None, :]), adapters, index)
        return self.config.pool(x, mask)


def mean_pool(x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "b d"]:
    """The mean over the unmasked tokens."""
    weights = mask.to(x)[:, :, None]
    return (x * weights).sum(1) / weights.sum(1)


def first_token_pool(x: Float[Tensor, "b t d"], _: Bool[Tensor, "b t"]) -> Float[Tensor, "b d"]:
    """The first token, which represents the whole text."""
    return x[:, 0]
