"""The frozen projection that all clients share, and the personal encoder (h_m) and head (f_m) of a client."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vpdr.encoder.backbone import Backbone, BackboneInfo
from vpdr.encoder.networks import AdapterSite, BlockAdapters
from vpdr.errors import InvalidInput
from vpdr.validation import at_least, at_least_0_below_1, one_of, positive


class SeededDropout(nn.Module):
    """Dropout that draws from its own generator instead of the global one.

    The trainer sets `rng` for each round (see `seed_dropout`). A copy starts without a generator, so that two
    models never share one.

    Args:
        p: the probability of zeroing an entry, in [0, 1).

    Raises:
        InvalidInput: `p` is out of range; in `forward`, `rng` was not set.

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
        """What `print(model)` shows."""
        return f"p={self.p}"


def seed_dropout(module: nn.Module, rng: torch.Generator | None) -> None:
    """Let every `SeededDropout` inside `module` draw from one generator.

    Args:
        module: the module to search.
        rng: the generator; None to remove it.
    """
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

    Args:
        dim: the dimension of the features.
        width: the dimension of the bottleneck.
        dropout: the probability of dropout inside the bottleneck.
        rng: the generator for the initial weights.

    >>> adapter = Adapter(4, 2, 0.0, rng=torch.Generator().manual_seed(0))
    >>> torch.equal(adapter(torch.ones(3, 4)), torch.ones(3, 4))
    True
    """

    def __init__(self, dim: int, width: int, dropout: float, *, rng: torch.Generator) -> None:
        super().__init__()
        self.down = seeded_linear(dim, width, rng=rng, bias=False)
        self.dropout = SeededDropout(dropout)
        self.up = nn.utils.skip_init(nn.Linear, width, dim, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """The input plus the output of the bottleneck."""
        residual: Tensor = self.up(self.dropout(torch.relu(self.down(x))))
        return x + residual


class ChannelAdapter(nn.Module):
    """An adapter over the channels of a feature map: 1x1 convolutions, without dropout.

    Args:
        channels: the number of channels.
        width: the number of channels of the bottleneck.
        rng: the generator for the initial weights.
    """

    def __init__(self, channels: int, width: int, *, rng: torch.Generator) -> None:
        super().__init__()
        self.down = nn.utils.skip_init(nn.Conv2d, channels, width, 1, bias=False)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5), generator=rng)
        self.up = nn.utils.skip_init(nn.Conv2d, width, channels, 1, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The input plus the output of the bottleneck."""
        residual: Tensor = self.up(torch.relu(self.down(x)))
        return x + residual


class FrozenProjection(nn.Module):
    """The linear map from pooled features into the space of the prototypes.

    It is never trained and depends on no client's data, so its features are public and computed once.

    Guarantee:
        Prototypes of different clients are in one space only if all clients have the same projection.

    Args:
        linear: the linear layer; its gradients are switched off.
        scale: a factor after the linear layer.
        trained_by_clients: whether each personal encoder trains its own copy of this projection.
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
    """The backbone and the projection, shared by all clients; a deep copy is the same object.

    Args:
        backbone: the frozen pretrained network.
        projection: the frozen projection after it.
    """

    backbone: Backbone
    projection: FrozenProjection

    def __deepcopy__(self, memo: dict[int, Any]) -> "FrozenEncoder":
        return self


class ProjectionKind(NamedTuple):
    """How a projection is initialised, and whether clients train it."""

    make_linear: Callable[[int, int, bool, torch.Generator], nn.Linear]
    trained_by_clients: bool = False


def _random_linear(pooled_dim: int, dim: int, bias: bool, rng: torch.Generator) -> nn.Linear:
    return seeded_linear(pooled_dim, dim, rng=rng, bias=bias)


def _orthogonal_linear(pooled_dim: int, dim: int, bias: bool, rng: torch.Generator) -> nn.Linear:
    """Orthonormal rows (or columns, if the dimension grows) and a zero bias."""
    linear: nn.Linear = nn.utils.skip_init(nn.Linear, pooled_dim, dim, bias=bias)
    nn.init.orthogonal_(linear.weight, generator=rng)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


PROJECTIONS: dict[str, ProjectionKind] = {
    "random": ProjectionKind(_random_linear),
    "orthogonal": ProjectionKind(_orthogonal_linear),
    "train": ProjectionKind(_random_linear, trained_by_clients=True),
}


def make_projection(
    kind: str, pooled_dim: int, dim: int, *, rng: torch.Generator, scale: float = 1.0, bias: bool = True
) -> FrozenProjection:
    """A projection with random weights.

    Args:
        kind: a name in `PROJECTIONS`.
        pooled_dim: the dimension of the pooled features.
        dim: the dimension of the prototypes.
        rng: the generator for the weights, the same for all clients.
        scale: a factor after the linear layer.
        bias: whether the linear layer has a bias.

    Returns:
        The projection.

    Raises:
        InvalidInput: the kind is unknown, or a number is not positive.
    """
    one_of(tuple(PROJECTIONS), projection=kind)
    at_least(1, pooled_dim=pooled_dim, dim=dim)
    positive(projection_scale=scale)
    make_linear, trained_by_clients = PROJECTIONS[kind]
    linear = make_linear(pooled_dim, dim, bias, rng)
    return FrozenProjection(linear, scale, trained_by_clients=trained_by_clients)


def projection_for(
    info: BackboneInfo, kind: str, dim: int, *, rng: torch.Generator, scale: float = 1.0
) -> FrozenProjection:
    """The projection after a backbone; neither its weights nor samples are needed to draw it.

    For a ResNet it is a 1x1 convolution without bias and a frozen batch normalisation before the pooling;
    all three are linear, so a linear layer and a factor give the same features.

    Args:
        info: the description of the backbone.
        kind: a name in `PROJECTIONS`.
        dim: the dimension of the prototypes.
        rng: the generator for the weights, the same for all clients.
        scale: an additional factor.

    Returns:
        The projection.

    Raises:
        InvalidInput: the kind is unknown, or a number is not positive.
    """
    scale = scale * info.projection_gain
    return make_projection(kind, info.pooled_dim, dim, rng=rng, scale=scale, bias=info.projection_bias)


def projection_for_backbone(
    backbone: Backbone, kind: str, dim: int, *, rng: torch.Generator, scale: float = 1.0
) -> FrozenProjection:
    """`projection_for` with the description of a loaded backbone."""
    return projection_for(backbone.info, kind, dim, rng=rng, scale=scale)


def make_head(
    dim: int, classes: int, *, rng: torch.Generator, hidden: tuple[int, ...] = (512,), dropout: float = 0.1
) -> nn.Sequential:
    """The personal classifier (f_m): a linear layer, ReLU and dropout for each hidden width, then logits.

    Args:
        dim: the dimension of the features.
        classes: the number of classes.
        rng: the generator for the initial weights.
        hidden: the widths of the hidden layers.
        dropout: the probability of dropout after each hidden layer.

    Returns:
        The classifier.
    """
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
        """The personal features of a batch, on the CPU.

        Args:
            frozen_features: the public features of the samples.
            inputs: the inputs of the samples, for an encoder with `needs_inputs`.

        Returns:
            The personal features.

        Raises:
            InvalidInput: the encoder needs inputs and got none.
        """
        raise NotImplementedError


class LastAdapterEncoder(PersonalEncoder):
    """One adapter on the public feature: the backbone is never run again."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter

    def forward(self, frozen_features: Float[Tensor, "b d"], inputs: Tensor | None = None) -> Float[Tensor, "b d"]:
        """The public features, adapted."""
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
        """The pooled features, projected and adapted."""
        adapted: Tensor = self.adapter(self.scale * self.projection(_require_inputs(inputs)))
        return adapted


class BlockAdapterEncoder(PersonalEncoder):
    """The frozen backbone with adapters after its blocks, and the projection, frozen or trained."""

    needs_inputs = True

    def __init__(self, frozen_encoder: FrozenEncoder, adapters: dict[int, nn.Module]) -> None:
        super().__init__()
        self.frozen_encoder = frozen_encoder  # not a module, so it is not part of the state dict
        self.adapters = nn.ModuleDict({str(block): adapter for block, adapter in adapters.items()})
        self.adapters.to(frozen_encoder.backbone.device)
        projection = frozen_encoder.projection
        self.projection = projection.trainable_copy() if projection.trained_by_clients else None

    def forward(self, frozen_features: Float[Tensor, "b d"], inputs: Tensor | None = None) -> Float[Tensor, "b d"]:
        """The inputs through the backbone, on its device, then projected on the CPU."""
        frozen = self.frozen_encoder.projection
        pooled = self.frozen_encoder.backbone.features(_require_inputs(inputs), self.adapters_by_block).cpu()
        features: Tensor = frozen(pooled) if self.projection is None else frozen.scale * self.projection(pooled)
        return features

    @property
    def adapters_by_block(self) -> BlockAdapters:
        """The adapters by the index of the block that they follow."""
        return {int(block): cast("Callable[[Tensor], Tensor]", adapter) for block, adapter in self.adapters.items()}


def _require_inputs(inputs: Tensor | None) -> Tensor:
    if inputs is None:
        raise InvalidInput(
            "this encoder needs the inputs of the samples, got their public features only; give Samples with inputs"
        )
    return inputs


def _all_blocks(backbone: Backbone) -> range:
    return range(len(backbone.network.adapter_sites))


def _paper_blocks(backbone: Backbone) -> range:
    """The blocks that have an adapter in the paper."""
    return _all_blocks(backbone)[backbone.info.first_adapter_block :]


# The blocks that adapters follow; None: one adapter after the projection instead.
PLACEMENTS: dict[str, Callable[[Backbone], range] | None] = {
    "last": None,
    "blocks": _paper_blocks,
    "all-blocks": _all_blocks,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterConfig:
    """Where the adapters of a personal encoder are, and how wide.

    Args:
        adapters: a name in `PLACEMENTS`.
        width: the width of the bottleneck; 0 for the backbone's own.
        dropout: the probability of dropout inside adapters.

    Raises:
        InvalidInput: the placement is unknown, or a number is out of range.
    """

    adapters: str = "last"
    width: int = 64
    dropout: float = 0.1

    def __post_init__(self) -> None:
        one_of(tuple(PLACEMENTS), adapters=self.adapters)
        at_least(0, width=self.width)
        at_least_0_below_1(dropout=self.dropout)


def make_encoder(
    config: AdapterConfig, dim: int, frozen_encoder: FrozenEncoder | None = None, *, rng: torch.Generator
) -> PersonalEncoder:
    """A new personal encoder.

    Args:
        config: where its adapters are.
        dim: the dimension of the features.
        frozen_encoder: the backbone and projection; None if samples have only public features.
        rng: the generator for the initial weights.

    Returns:
        An encoder whose features are the public ones until it is trained.

    Raises:
        InvalidInput: adapters after blocks were requested without a backbone.

    >>> encoder = make_encoder(AdapterConfig(width=4), 8, rng=torch.Generator().manual_seed(0)).eval()
    >>> torch.equal(encoder(torch.ones(2, 8)), torch.ones(2, 8))
    True
    """
    select_blocks = PLACEMENTS[config.adapters]
    if select_blocks is None:
        return _make_last_adapter_encoder(config, dim, frozen_encoder, rng)
    if frozen_encoder is None:
        raise InvalidInput("adapters after blocks need a backbone, got a benchmark without one; use adapters = 'last'")
    backbone = frozen_encoder.backbone
    sites, width = backbone.network.adapter_sites, config.width or backbone.info.adapter_width
    max_dim = max(site.dim for site in sites)
    adapters = {
        block: _make_block_adapter(sites[block], width, max_dim, config.dropout, rng)
        for block in select_blocks(backbone)
    }
    return BlockAdapterEncoder(frozen_encoder, adapters)


def _make_last_adapter_encoder(
    config: AdapterConfig, dim: int, frozen_encoder: FrozenEncoder | None, rng: torch.Generator
) -> PersonalEncoder:
    width = config.width or (frozen_encoder.backbone.info.adapter_width if frozen_encoder else 64)
    adapter = Adapter(dim, width, config.dropout, rng=rng)
    if frozen_encoder is not None and frozen_encoder.projection.trained_by_clients:
        return TrainedProjectionEncoder(adapter, frozen_encoder.projection)
    return LastAdapterEncoder(adapter)


def _make_block_adapter(site: AdapterSite, width: int, max_dim: int, dropout: float, rng: torch.Generator) -> nn.Module:
    """Over feature maps, `width` is that of the widest block, and others are proportional."""
    if site.is_channel_map:
        return ChannelAdapter(site.dim, max(1, width * site.dim // max_dim), rng=rng)
    return Adapter(site.dim, width, dropout, rng=rng)
