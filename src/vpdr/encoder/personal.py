"""The frozen projection that all clients share, and the personal encoder (h_m) and head (f_m) of a client."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from vpdr.encoder.backbone import Backbone, BackboneInfo
from vpdr.types import Float, Tensor
from vpdr.validation import InvalidInput, at_least, at_least_0_below_1, one_of, positive


class SeededDropout(nn.Module):
    """Dropout that draws from its own generator instead of the global one.

    The trainer sets `rng` for each round (see `seed_dropout`). A copy starts without a generator, so that two
    models never share one.

    >>> dropout = SeededDropout(0.5)
    >>> seed_dropout(dropout, torch.Generator().manual_seed(0))
    >>> sorted(dropout(torch.ones(8)).unique().tolist())
    [0.0, 2.0]
    """

    rng: torch.Generator | None

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise InvalidInput(f"dropout must lie in [0, 1), got {p}; use 0.1, or 0 for none")
        self.p = p
        self.rng = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"rng": None}

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Zero entries with probability `p` and scale the others by 1 / (1 - p), in training only."""
        if not self.training or self.p == 0:
            return x
        if self.rng is None:
            raise InvalidInput("dropout in training needs a generator, got none; call seed_dropout first")
        mask = torch.empty(x.shape, device=self.rng.device).bernoulli_(1 - self.p, generator=self.rng)
        return x * mask.to(x) / (1 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def seed_dropout(module: nn.Module, rng: torch.Generator | None) -> None:
    """Let every `SeededDropout` inside `module` draw from one generator; None removes it."""
    for child in module.modules():
        if isinstance(child, SeededDropout):
            child.rng = rng


def seeded_linear(dim: int, out: int, *, rng: torch.Generator, bias: bool = True) -> nn.Linear:
    """A linear layer with torch's default initialisation, drawn from `rng`."""
    linear: nn.Linear = nn.utils.skip_init(nn.Linear, dim, out, bias=bias)
    nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5), generator=rng)
    if bias:
        nn.init.uniform_(linear.bias, -1 / math.sqrt(dim), 1 / math.sqrt(dim), generator=rng)
    return linear


class Adapter(nn.Module):
    """A residual bottleneck, `x + W_up dropout(relu(W_down x))`, that starts as the identity (W_up = 0).

    `dim` and `width` are the dimensions of the features and of the bottleneck. Over the channels of a feature
    map, both matrices are 1x1 convolutions.

    >>> adapter = Adapter(4, 2, 0.0, rng=torch.Generator().manual_seed(0))
    >>> torch.equal(adapter(torch.ones(3, 4)), torch.ones(3, 4))
    True
    """

    def __init__(
        self, dim: int, width: int, dropout: float, *, rng: torch.Generator, is_channel_map: bool = False
    ) -> None:
        super().__init__()
        layer, kernel = (nn.Conv2d, (1,)) if is_channel_map else (nn.Linear, ())
        self.down = nn.utils.skip_init(layer, dim, width, *kernel, bias=False)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5), generator=rng)
        self.dropout = SeededDropout(dropout)
        self.up = nn.utils.skip_init(layer, width, dim, *kernel, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        residual: Tensor = self.up(self.dropout(torch.relu(self.down(x))))
        return x + residual


class FrozenProjection(nn.Module):
    """The linear map from pooled features into the space of the prototypes, with a factor after it.

    It is never trained and depends on no client's data, so its features are public and computed once. Where
    projections are `trained_by_clients`, each personal encoder trains its own copy.

    Guarantee: prototypes of different clients are in one space only if all clients have the same projection.
    """

    def __init__(self, linear: nn.Linear, scale: float, *, trained_by_clients: bool = False) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.scale = scale
        self.trained_by_clients = trained_by_clients

    def forward(self, pooled: Float[Tensor, "n p"]) -> Float[Tensor, "n d"]:
        """The public features; gradients flow to the pooled features."""
        projected: Tensor = self.linear(pooled)
        return self.scale * projected

    def trainable_copy(self) -> nn.Linear:
        """A linear layer to train, with the same initial weights."""
        return copy.deepcopy(self.linear).requires_grad_(True)


@dataclass(frozen=True, eq=False, slots=True)
class FrozenEncoder:
    """The backbone and the projection, shared by all clients; a deep copy is the same object."""

    backbone: Backbone
    projection: FrozenProjection

    def __deepcopy__(self, memo: dict[int, Any]) -> "FrozenEncoder":
        return self


class ProjectionKind(NamedTuple):
    """How a projection is initialised, and whether clients train it."""

    orthogonal: bool = False  # orthonormal rows (columns, if the dimension grows); else torch's default
    trained_by_clients: bool = False


PROJECTIONS = {
    "random": ProjectionKind(),
    "orthogonal": ProjectionKind(orthogonal=True),
    "train": ProjectionKind(trained_by_clients=True),
}


def projection_for(
    info: BackboneInfo, kind: str, dim: int, *, rng: torch.Generator, scale: float = 1.0
) -> FrozenProjection:
    """The projection after a backbone; neither its weights nor samples are needed to draw it.

    `kind` is a name in `PROJECTIONS`, and `rng` must be the same for all clients. For a ResNet the projection
    is a 1x1 convolution without bias and a frozen batch normalisation before the pooling; all three are
    linear, so a linear layer and a factor give the same features.
    """
    scale = scale * info.projection_gain
    one_of(tuple(PROJECTIONS), projection=kind)
    at_least(1, pooled_dim=info.pooled_dim, dim=dim)
    positive(projection_scale=scale)
    if PROJECTIONS[kind].orthogonal:
        linear = nn.utils.skip_init(nn.Linear, info.pooled_dim, dim, bias=info.projection_bias)
        nn.init.orthogonal_(linear.weight, generator=rng)
        if info.projection_bias:
            nn.init.zeros_(linear.bias)
    else:
        linear = seeded_linear(info.pooled_dim, dim, rng=rng, bias=info.projection_bias)
    return FrozenProjection(linear, scale, trained_by_clients=PROJECTIONS[kind].trained_by_clients)


def make_head(
    dim: int, classes: int, *, rng: torch.Generator, hidden: tuple[int, ...] = (512,), dropout: float = 0.1
) -> nn.Sequential:
    """The personal classifier (f_m): a linear layer, ReLU and dropout for each hidden width, then logits."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [seeded_linear(dim, width, rng=rng), nn.ReLU(), SeededDropout(dropout)]
        dim = width
    return nn.Sequential(*layers, seeded_linear(dim, classes, rng=rng))


class PersonalEncoder(nn.Module):
    """From a sample to its personal feature, which is exactly its public feature before any training.

    Its state dict holds only what is trained: frozen weights are shared by all clients.
    """

    needs_inputs: bool = False  # whether it is computed from inputs and not from public features

    def forward(self, frozen_features: Float[Tensor, "b d"], inputs: Tensor | None = None) -> Float[Tensor, "b d"]:
        """The personal features of a batch, on the CPU, from its public features or its inputs."""
        raise NotImplementedError


class LastAdapterEncoder(PersonalEncoder):
    """One adapter on the public feature: the backbone is never run again."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter

    def forward(self, frozen_features: Float[Tensor, "b d"], inputs: Tensor | None = None) -> Float[Tensor, "b d"]:
        adapted: Tensor = self.adapter(frozen_features)
        return adapted


class TrainedProjectionEncoder(PersonalEncoder):
    """A trained projection and one adapter after it; its inputs are pooled features."""

    needs_inputs = True

    def __init__(self, adapter: Adapter, projection: FrozenProjection) -> None:
        super().__init__()
        self.projection = projection.trainable_copy()
        self.scale = projection.scale
        self.adapter = adapter

    def forward(self, frozen_features: Float[Tensor, "b d"], inputs: Tensor | None = None) -> Float[Tensor, "b d"]:
        adapted: Tensor = self.adapter(self.scale * self.projection(_require_inputs(inputs)))
        return adapted


class BlockAdapterEncoder(PersonalEncoder):
    """The frozen backbone with adapters after its blocks, and the projection, frozen or trained."""

    needs_inputs = True

    def __init__(self, frozen_encoder: FrozenEncoder, adapters: dict[int, Adapter]) -> None:
        super().__init__()
        self.frozen_encoder = frozen_encoder  # not a module, so it is not part of the state dict
        self.adapters = nn.ModuleDict({str(block): adapter for block, adapter in adapters.items()})
        self.adapters.to(frozen_encoder.backbone.device)
        projection = frozen_encoder.projection
        self.projection = projection.trainable_copy() if projection.trained_by_clients else None

    def forward(self, frozen_features: Float[Tensor, "b d"], inputs: Tensor | None = None) -> Float[Tensor, "b d"]:
        """The inputs through the backbone, on its device, then projected on the CPU."""
        frozen = self.frozen_encoder.projection
        adapters = {int(block): adapter for block, adapter in self.adapters.items()}
        pooled = self.frozen_encoder.backbone.features(_require_inputs(inputs), adapters).cpu()
        features: Tensor = frozen(pooled) if self.projection is None else frozen.scale * self.projection(pooled)
        return features


def _require_inputs(inputs: Tensor | None) -> Tensor:
    if inputs is None:
        raise InvalidInput(
            "this encoder needs the inputs of the samples, got their public features only; give Samples with inputs"
        )
    return inputs


# The blocks that adapters follow; None: one adapter after the projection instead.
PLACEMENTS: dict[str, Callable[[Backbone], range] | None] = {
    "last": None,
    "blocks": lambda backbone: range(backbone.info.first_adapter_block, len(backbone.network.adapter_sites)),
    "all-blocks": lambda backbone: range(len(backbone.network.adapter_sites)),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterConfig:
    """Where the adapters of a personal encoder are, and how wide."""

    adapters: str = "last"  # a name in `PLACEMENTS`
    width: int = 64  # of the bottleneck; 0 for the backbone's own
    dropout: float = 0.1  # the probability of dropout inside adapters

    def __post_init__(self) -> None:
        one_of(tuple(PLACEMENTS), adapters=self.adapters)
        at_least(0, width=self.width)
        at_least_0_below_1(dropout=self.dropout)


def make_encoder(
    config: AdapterConfig, dim: int, frozen_encoder: FrozenEncoder | None = None, *, rng: torch.Generator
) -> PersonalEncoder:
    """A new personal encoder, whose features are the public ones until it is trained.

    Without a `frozen_encoder`, samples have only public features.

    >>> encoder = make_encoder(AdapterConfig(width=4), 8, rng=torch.Generator().manual_seed(0)).eval()
    >>> torch.equal(encoder(torch.ones(2, 8)), torch.ones(2, 8))
    True
    """
    select_blocks = PLACEMENTS[config.adapters]
    width = config.width or (frozen_encoder.backbone.info.adapter_width if frozen_encoder else 64)
    if select_blocks is None:
        adapter = Adapter(dim, width, config.dropout, rng=rng)
        if frozen_encoder is not None and frozen_encoder.projection.trained_by_clients:
            return TrainedProjectionEncoder(adapter, frozen_encoder.projection)
        return LastAdapterEncoder(adapter)
    if frozen_encoder is None:
        raise InvalidInput("adapters after blocks need a backbone, got a benchmark without one; use adapters = 'last'")
    sites, adapters = frozen_encoder.backbone.network.adapter_sites, {}
    if not sites:
        raise InvalidInput(
            f"expected a list of equal blocks in {frozen_encoder.backbone.name} for model.adapters={config.adapters}, "
            "found none; set model.adapters=last"
        )
    max_dim = max(site.dim for site in sites)
    for block in select_blocks(frozen_encoder.backbone):
        site = sites[block]
        own_width = max(1, width * site.dim // max_dim)  # `width` is that of the widest block
        dropout = 0.0 if site.is_channel_map else config.dropout
        adapters[block] = Adapter(site.dim, own_width, dropout, rng=rng, is_channel_map=site.is_channel_map)
    return BlockAdapterEncoder(frozen_encoder, adapters)
