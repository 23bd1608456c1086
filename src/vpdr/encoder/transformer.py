"""The layer that pictures and texts share: attention, then two linear maps, each with a shortcut."""

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Every token looks at every other one that the mask leaves visible."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def forward(
        self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b 1 1 t"] | None
    ) -> Float[Tensor, "b t d"]:
        """What the tokens gather; the mask is true where a token may be looked at."""
        query, key, value = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        gathered = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed: Tensor = self.out(gathered.transpose(1, 2).flatten(2))
        return mixed


class Layer(nn.Module):
    """The parts of a layer; its children say where the normalisation stands."""

    def __init__(self, dim: int, heads: int, inner: int, eps: float) -> None:
        super().__init__()
        self.attention = Attention(dim, heads)
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=eps), nn.LayerNorm(dim, eps=eps)
        self.widen, self.narrow = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def mapped(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """Each token by itself through the two linear maps."""
        narrowed: Tensor = self.narrow(F.gelu(self.widen(x)))
        return narrowed


class NormFirst(Layer):
    """Normalise what enters each half (ViT)."""

    def forward(
        self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b 1 1 t"] | None = None
    ) -> Float[Tensor, "b t d"]:
        """One layer."""
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mapped(self.norm2(x))


class NormLast(Layer):
    """Normalise what leaves each half, shortcut included (BERT and its kin)."""

    def forward(
        self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b 1 1 t"] | None = None
    ) -> Float[Tensor, "b t d"]:
        """One layer."""
        x = self.norm1(x + self.attention(x, mask))
        out: Tensor = self.norm2(x + self.mapped(x))
        return out
