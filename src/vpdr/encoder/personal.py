"""The encoder that one client trains (h_m): where its adapters stand, and what it must be fed."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vpdr.checks import at_least, fraction, one_of
from vpdr.encoder.adapters import Adapter, ChannelAdapter
from vpdr.encoder.backbone import Backbone
from vpdr.encoder.model import FrozenPath, Trunk
from vpdr.encoder.network import Adapters, Site
from vpdr.errors import InvalidInput


class PersonalEncoder(nn.Module):
    """From a sample to its personal feature; before any training that is exactly its public one.

    Only what is trained belongs to its state: frozen weights are shared by all clients.
    """

    wants_inputs: bool = False  # whether it must see the raw sample and not only its public feature

    def forward(self, public: Float[Tensor, "b d"], inputs: Tensor | None = None) -> Float[Tensor, "b d"]:
        """The personal features of a batch, on the processor."""
        raise NotImplementedError


class LastEncoder(PersonalEncoder):
    """One adapter on the public feature: the backbone is never run again."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter

    def forward(self, public: Float[Tensor, "b d"], inputs: Tensor | None = None) -> Float[Tensor, "b d"]:
        """The public feature with what the adapter adds."""
        adapted: Tensor = self.adapter(public)
        return adapted


class ProjectingEncoder(PersonalEncoder):
    """A trained projection and one adapter after it; its inputs are pooled features."""

    wants_inputs = True

    def __init__(self, adapter: Adapter, path: FrozenPath) -> None:
        super().__init__()
        self.projection = _own(path)
        self.scale = path.scale
        self.adapter = adapter

    def forward(self, public: Float[Tensor, "b d"], inputs: Tensor | None = None) -> Float[Tensor, "b d"]:
        """The projection as this client has trained it, then the adapter."""
        adapted: Tensor = self.adapter(self.scale * self.projection(_given(inputs)))
        return adapted


class BlockEncoder(PersonalEncoder):
    """The frozen backbone with an adapter after its blocks, and the projection, frozen or trained."""

    wants_inputs = True

    def __init__(self, trunk: Trunk, adapters: dict[int, nn.Module]) -> None:
        super().__init__()
        self.trunk = trunk  # no module, so that nothing of it becomes part of this one's state
        self.adapters = nn.ModuleDict({str(place): made for place, made in adapters.items()})
        self.adapters.to(trunk.backbone.device)
        self.projection = _own(trunk.path) if trunk.path.trained else None

    def forward(self, public: Float[Tensor, "b d"], inputs: Tensor | None = None) -> Float[Tensor, "b d"]:
        """Through the backbone wherever it is; what comes back is on the processor."""
        path = self.trunk.path
        pooled = self.trunk.backbone.features(_given(inputs), self.placed).cpu()
        features: Tensor = path(pooled) if self.projection is None else path.scale * self.projection(pooled)
        return features

    @property
    def placed(self) -> Adapters:
        """The adapters by the block that they follow."""
        return {int(place): cast("Callable[[Tensor], Tensor]", made) for place, made in self.adapters.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Where adapters stand and how wide they are; width 0 is the backbone's own."""

    adapters: str = "last"
    width: int = 64
    dropout: float = 0.1

    def __post_init__(self) -> None:
        one_of(tuple(PLACEMENTS), adapters=self.adapters)
        at_least(0, width=self.width)
        fraction(dropout=self.dropout)


def make_encoder(
    shape: Shape, dim: int, trunk: Trunk | None = None, *, rng: torch.Generator
) -> PersonalEncoder:
    """A fresh personal encoder; without a trunk the public features are all there is."""
    places = PLACEMENTS[shape.adapters]
    if places is None:
        return _last(shape, dim, trunk, rng)
    if trunk is None:
        raise InvalidInput(
            "adapters after blocks need a backbone, got a benchmark without one; use adapters = 'last'"
        )
    return _with_blocks(shape, trunk, places(trunk.backbone), rng)


def _own(path: FrozenPath) -> nn.Linear:
    """A projection to train, which starts where the frozen one is."""
    return copy.deepcopy(path.projection).requires_grad_(True)


def _last(shape: Shape, dim: int, trunk: Trunk | None, rng: torch.Generator) -> PersonalEncoder:
    width = shape.width or (trunk.backbone.traits.width if trunk else 64)
    adapter = Adapter(dim, width, shape.dropout, rng=rng)
    if trunk is not None and trunk.path.trained:
        return ProjectingEncoder(adapter, trunk.path)
    return LastEncoder(adapter)


def _with_blocks(shape: Shape, trunk: Trunk, places: range, rng: torch.Generator) -> PersonalEncoder:
    sites = trunk.backbone.network.sites
    widest, width = max(site.dim for site in sites), shape.width or trunk.backbone.traits.width
    made = {place: _adapter(sites[place], width, widest, shape.dropout, rng) for place in places}
    return BlockEncoder(trunk, made)


def _adapter(site: Site, width: int, widest: int, dropout: float, rng: torch.Generator) -> nn.Module:
    """Over channels the width follows their number: 64 at the widest, 512, is an eighth everywhere."""
    if site.channels:
        return ChannelAdapter(site.dim, max(1, width * site.dim // widest), rng=rng)
    return Adapter(site.dim, width, dropout, rng=rng)


def _given(inputs: Tensor | None) -> Tensor:
    if inputs is None:
        raise InvalidInput(
            "this encoder runs on the samples themselves, got their public features only; "
            "give Samples with inputs"
        )
    return inputs


def _all_blocks(backbone: Backbone) -> range:
    return range(len(backbone.network.sites))


def _own_blocks(backbone: Backbone) -> range:
    """As the paper has it for this backbone."""
    return _all_blocks(backbone)[backbone.traits.first_adapted :]


# After which blocks adapters stand; None: one after the projection, and nothing inside.
PLACEMENTS: dict[str, Callable[[Backbone], range] | None] = {
    "last": None,
    "blocks": _own_blocks,
    "all-blocks": _all_blocks,
}
