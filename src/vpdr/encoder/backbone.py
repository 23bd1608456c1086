"""A frozen pretrained network with all that is needed to feed it."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.encoder.batches import Told, in_batches, pace_on
from vpdr.encoder.network import Adapters, Network
from vpdr.encoder.pictures import Eye, Lens
from vpdr.errors import InvalidInput
from vpdr.types import Inputs


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """What is known of a backbone before its weights are read."""

    modality: str  # image or text
    pooled: int  # the length of its pooled feature
    width: int  # of its adapters, as the paper has it; of the widest one where channels differ
    first_adapted: int = 0  # the first block after which the paper has an adapter
    projects_with_bias: bool = True
    gain: float = 1.0  # of the frozen normalisation that follows the projection


@dataclass(frozen=True, kw_only=True, eq=False)
class Backbone:
    """Weights that all clients share: a copy of a client copies no backbone, and no state holds one.

    `digest` names the weights, so that features of other weights are never mistaken for these; `origin` says
    where they came from, for the record.
    """

    name: str
    traits: Traits
    network: Network
    eye: Eye
    digest: str
    origin: str

    def __deepcopy__(self, memo: dict[int, Any]) -> "Backbone":
        return self

    @property
    def modality(self) -> str:
        """What it reads: `image` or `text`."""
        return self.traits.modality

    @property
    def pooled_dim(self) -> int:
        """The length of its pooled feature."""
        return self.network.pooled_dim

    @property
    def pixels(self) -> int:
        """The side of the pictures that the network sees; 0 for texts."""
        return self.eye.pixels if isinstance(self.eye, Lens) else 0

    @property
    def sight(self) -> str:
        """All besides the weights that its features depend on."""
        return f"{self.eye if isinstance(self.eye, Lens) else self.modality} on {self.device.type}"

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.network.parameters()).device

    def at(self, pixels: int) -> "Backbone":
        """The same weights behind another picture size."""
        if not isinstance(self.eye, Lens):
            raise InvalidInput(f"expected an image backbone to set pixels, got {self.name}; leave pixels out")
        return self if pixels == self.pixels else replace(self, eye=replace(self.eye, pixels=pixels))

    def inputs(self, raw: object) -> Inputs:
        """Pictures or texts as a source of batches; another modality is refused."""
        return self.eye.inputs(raw)

    def features(self, batch: Tensor, adapters: Adapters | None = None) -> Float[Tensor, "b p"]:
        """The pooled features of one raw batch (pictures from 0 to 255, or tokens), with gradients."""
        x = self.eye.prepare(batch.to(self.device))
        return self.network.features(x, {} if adapters is None else adapters)

    def pooled(
        self,
        raw: object,
        *,
        rows: Int[Tensor, " m"] | None = None,
        batch: int = 0,
        progress: Told | None = None,
    ) -> Float[Tensor, "m p"]:
        """The frozen features of these samples (None: of all), adapters bypassed; they depend on no batch."""
        inputs = self.inputs(raw)
        chosen = inputs if rows is None else inputs.take(rows)
        out = torch.empty(len(chosen), self.pooled_dim)

        def compute(part: Int[Tensor, " b"]) -> Float[Tensor, "b p"]:
            # Inference mode belongs to a thread, so it is entered in the one that computes.
            with torch.inference_mode():
                return self.features(chosen.batch(part)).cpu()

        pace = pace_on(self.device.type, batch)
        in_batches(compute, self.eye.order(chosen), out, pace=pace, progress=progress)
        return out
