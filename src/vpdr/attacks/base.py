"""What every attack is given: its config, its context, and the input space of a reconstruction.

A space maps its inputs differentiably to public features: images for vision, embeddings for everything else.
`adversary_feature_map` adds the encoder of a client, or the broadcast feature map.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import nn

from vpdr import federation, records, rng
from vpdr.client import Client
from vpdr.encoder.backbone import Backbone
from vpdr.encoder.networks import EfficientNetLite
from vpdr.encoder.personal import BlockAdapterEncoder, FrozenEncoder, FrozenProjection, PersonalEncoder
from vpdr.types import Float, ProgressCallback, Tensor, no_progress
from vpdr.validation import InvalidInput, at_least, one_of

InputFeatureMap = Callable[[Tensor], Tensor]  # inputs to features, differentiable
CheckpointState = Mapping[str, Any]  # tensors and plain data

_MAX_PIXEL = 255.0  # backbones take images from 0 to 255
_BLOCK_LAYERS = {"expand_conv": "bn0", "depthwise_conv": "bn1", "project_conv": "bn2"}


class ImageSpace:
    """Images with values in [0, 1], as `(tanh w + 1)/2` of unconstrained variables w."""

    contains_images = True

    def __init__(self, backbone: Backbone, projection: FrozenProjection) -> None:
        self.shape: tuple[int, ...] = (3, backbone.pixels, backbone.pixels)
        self.backbone, self.projection = backbone, projection

    def decode(self, variables: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 h w"]:
        return (variables.tanh() + 1) / 2

    def public_features(self, inputs: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d"]:
        """The backbone with its own normalisation, then the frozen projection."""
        features: Tensor = self.projection(self.backbone.features(_MAX_PIXEL * inputs))
        return features

    def personal_features(self, inputs: Float[Tensor, "b 3 h w"], encoder: PersonalEncoder) -> Float[Tensor, "b d"]:
        """Features with adapters after the projection, or inside the backbone."""
        pooled = self.backbone.features(_MAX_PIXEL * inputs)
        encoder_inputs = _MAX_PIXEL * inputs if isinstance(encoder, BlockAdapterEncoder) else pooled
        features: Tensor = encoder(self.projection(pooled), encoder_inputs)
        return features

    def total_variation(self, inputs: Float[Tensor, "b 3 h w"]) -> Float[Tensor, " b"]:
        """Mean absolute difference of vertical neighbours, plus that of horizontal neighbours."""
        vertical = (inputs[:, :, 1:] - inputs[:, :, :-1]).abs().mean(dim=(1, 2, 3))
        horizontal = (inputs[..., 1:] - inputs[..., :-1]).abs().mean(dim=(1, 2, 3))
        return vertical + horizontal

    def to(self, device: str) -> "ImageSpace":
        network = copy.deepcopy(self.backbone.network).to(device)
        return ImageSpace(replace(self.backbone, network=network), copy.deepcopy(self.projection).to(device))


class EmbeddingSpace:
    """The public features themselves, for text and for data that are features already."""

    contains_images = False

    def __init__(self, dim: int) -> None:
        self.shape: tuple[int, ...] = (dim,)

    def decode(self, variables: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        return variables

    def public_features(self, inputs: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        return inputs

    def personal_features(self, inputs: Float[Tensor, "b d"], encoder: PersonalEncoder) -> Float[Tensor, "b d"]:
        """Features of an adapter after the projection; adapters inside a backbone are not supported."""
        if encoder.needs_inputs:
            raise InvalidInput(
                "a reconstruction of texts searches public features, but this encoder trains before them; "
                "use model.adapters=last with a frozen projection, or the adversary's encoder initial"
            )
        features: Tensor = encoder(inputs)
        return features

    def total_variation(self, inputs: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """Zero: there is no prior on embeddings."""
        return torch.zeros(len(inputs), device=inputs.device)

    def to(self, device: str) -> "EmbeddingSpace":
        return self


InputSpace: TypeAlias = ImageSpace | EmbeddingSpace


def attack_input_space(frozen_encoder: FrozenEncoder | None, dim: int) -> InputSpace:
    """Images where the client's samples are images; otherwise the public features of `dim` dimensions."""
    if frozen_encoder is None or not frozen_encoder.backbone.pixels:
        return EmbeddingSpace(dim)
    return ImageSpace(fold_batch_norms(frozen_encoder.backbone), frozen_encoder.projection)


def adversary_feature_map(client: Client, space: InputSpace, adversary_encoder: str, device: str) -> InputFeatureMap:
    """From inputs to the features that the adversary compares: the client's released ones, or public ones.

    A broadcast feature map is known to everybody. The client's encoder is copied, so that no gradient of the
    attack reaches the client.
    """
    if not client.release_config.encoder_kind.is_trained_on_private_data:
        broadcast_map = client.feature_map
        if broadcast_map is None:
            return space.public_features
        return lambda inputs: broadcast_map(space.public_features(inputs))
    if adversary_encoder == "initial":
        return space.public_features
    encoder = copy.deepcopy(client.model.encoder).eval().requires_grad_(False)
    if not isinstance(encoder, BlockAdapterEncoder):  # it stays on the device of the backbone that it shares
        encoder = encoder.to(device)
    return lambda inputs: space.personal_features(inputs, encoder).to(device)


@torch.no_grad()
def fold_batch_norms(backbone: Backbone) -> Backbone:
    """A copy of an EfficientNet-Lite with batch normalisation folded into the convolutions.

    The features are the same for a third less work. Other networks are returned unchanged.
    """
    if not isinstance(backbone.network, EfficientNetLite):
        return backbone
    network = copy.deepcopy(backbone.network)
    layers: list[tuple[nn.Module, str, str]] = [(network, "conv_stem", "bn0"), (network, "conv_head", "bn1")]
    for block in network.blocks:
        children = dict(block.named_children())
        layers += [(block, *pair) for pair in _BLOCK_LAYERS.items() if pair[0] in children]
    for parent, convolution, normalisation in layers:
        filters, norm = parent.get_submodule(convolution), parent.get_submodule(normalisation)
        if not isinstance(filters, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d):
            raise InvalidInput(f"expected a convolution and its batch normalisation, got {filters} and {norm}")
        if norm.running_var is None or norm.running_mean is None:
            raise InvalidInput("expected batch statistics to fold, got none; load the network's weights first")
        factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        filters.weight.mul_(factor[:, None, None, None])
        filters.bias = nn.Parameter(norm.bias - norm.running_mean * factor, requires_grad=False)
        setattr(parent, normalisation, nn.Identity())
    for weight in network.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    return replace(backbone, network=network.requires_grad_(False))


ADVERSARY_ENCODERS = ("client", "initial")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackConfig:
    """Which attacks to run, in which rounds, and how strong the adversary is.

    Args:
        kinds: names in `ATTACKS`.
        rounds: attacked rounds, counted from 1; every round if empty.
        adversary_encoder: the encoder that the adversary has. `client` is the client's own encoder in that
            round (the paper's assumption, stronger than any real server). `initial` is the public one: the
            frozen encoder. If releases use a broadcast feature map, both are that map.
        likelihood_ratio: membership by likelihood ratios as well, which doubles the cost.
        steps: maximal number of steps of a reconstruction.
        device: torch device of the reconstructions.
        workers: parallel reconstructions on the CPU; 0 means one per core.

    Raises:
        InvalidInput: a value is out of range.

    >>> AttackConfig(kinds=("mia",), rounds=(1, 5)).includes_round(2)
    False
    """

    kinds: tuple[str, ...]
    rounds: tuple[int, ...] = ()
    adversary_encoder: str = "client"
    likelihood_ratio: bool = False
    steps: int = 10_000
    device: str = "cpu"
    workers: int = 0

    def __post_init__(self) -> None:
        one_of(ADVERSARY_ENCODERS, adversary_encoder=self.adversary_encoder)
        at_least(1, steps=self.steps)
        if any(round < 1 for round in self.rounds):
            raise InvalidInput(f"attack rounds count from 1, got {min(self.rounds)}; use for example 1,5,20")

    def includes_round(self, round: int) -> bool:
        """Whether a round, counted from 1, is attacked."""
        return not self.rounds or round in self.rounds

    @classmethod
    def from_data(cls, data: CheckpointState) -> "AttackConfig":
        """The inverse of `to_data`; device and workers have their default."""
        return cls(
            kinds=tuple(data["kinds"]),
            rounds=tuple(data["rounds"]),
            adversary_encoder=data["phi"],
            likelihood_ratio=data["stronger"],
            steps=data["steps"],
        )

    def to_data(self) -> dict[str, object]:
        """As plain data, without device and workers, which do not change the results."""
        return {
            "kinds": list(self.kinds),
            "rounds": list(self.rounds),
            "phi": self.adversary_encoder,
            "stronger": self.likelihood_ratio,
            "steps": self.steps,
        }


def ignore_message(message: str) -> None:
    """The default `on_message`; a named function, because callbacks are sent to other processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackCallbacks:
    """Where attacks report: a line of text for the user now and then, and the progress of long computations."""

    on_message: Callable[[str], None] = ignore_message
    progress: ProgressCallback = no_progress


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackContext:
    """What an attack may use."""

    config: AttackConfig
    streams: rng.Streams  # of the attacks; the run itself uses others
    total_rounds: int
    input_space_for: Callable[[str], InputSpace]  # of a client, created on demand
    callbacks: AttackCallbacks = field(default_factory=AttackCallbacks)
    reconstruction_store: records.ReconstructionStore | None = None


@runtime_checkable
class Attack(Protocol):
    """An adversary that observes the uploads of a run.

    A plug-in is a callable in `ATTACKS` that creates an attack from an `AttackContext`.

    Guarantee: it changes neither a client nor a random draw of the run.
    """

    def observe(self, round_uploads: federation.RoundUploads) -> None:
        """Attack the uploads of one round."""

    def state_dict(self) -> CheckpointState:
        """The state for a checkpoint, as tensors and plain data."""

    def load_state_dict(self, state: CheckpointState) -> None:
        """Continue from a checkpoint."""

    def result(self) -> records.AttackResult:
        """The results for the record."""
