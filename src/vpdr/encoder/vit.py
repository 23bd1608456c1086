"""Vision Transformers with patches of 16 pixels, by our own forward pass: no library's layout can move it."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vpdr.encoder.network import Adapters, Network, Site, adapted
from vpdr.encoder.transformer import NormFirst

PATCH, GRID, DEPTH, EPS = 16, 14, 12, 1e-12


class VisionTransformer(Network):
    """Patches and a class token through twelve layers; the feature is the mean of the patches alone."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.pooled_dim = dim
        self.sites = (Site(dim, channels=False),) * DEPTH
        self.patches = nn.Conv2d(3, dim, PATCH, PATCH)
        self.token = nn.Parameter(torch.empty(1, 1, dim))
        self.positions = nn.Parameter(torch.empty(1, 1 + GRID * GRID, dim))
        self.blocks = nn.ModuleList(NormFirst(dim, heads, 4 * dim, EPS) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(dim, eps=EPS)

    def features(self, x: Float[Tensor, "b 3 h w"], adapters: Adapters) -> Float[Tensor, "b p"]:
        """Adapters stand after each layer's last shortcut and see all tokens."""
        patches = self.patches(x)
        rows, columns = patches.shape[2:]
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches.flatten(2).transpose(1, 2)], dim=1)
        tokens = tokens + self._positions(rows, columns)
        for place, block in enumerate(self.blocks):
            tokens = adapted(block(tokens), adapters, place)
        normed: Tensor = self.norm(tokens)
        return normed[:, 1:].mean(1)

    def _positions(self, rows: int, columns: int) -> Float[Tensor, "1 t d"]:
        """As learnt at 224 pixels; for other sizes the grid of them is stretched."""
        if rows == columns == GRID:
            return self.positions
        grid = self.positions[:, 1:].unflatten(1, (GRID, GRID)).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, (rows, columns), mode="bicubic", align_corners=False)
        return torch.cat([self.positions[:, :1], grid.flatten(2).transpose(1, 2)], dim=1)
