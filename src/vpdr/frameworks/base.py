"""The interface of a ProtoPFL framework, and two base classes that most frameworks share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from vpdr.privacy import EncoderKind
from vpdr.prototypes import Summariser
from vpdr.rng import Streams
from vpdr.types import Losses, Prototypes, Summary, TrainBatch

Broadcast = TypeVar("Broadcast")
AnyFramework = TypeVar("AnyFramework", bound="FrameworkBase")

FrameworkState: TypeAlias = dict[str, Any]
"""Server state between rounds: tensors, numbers and nested dicts of them. It is saved in checkpoints."""

FeatureMap: TypeAlias = Callable[[Float[Tensor, "n d"]], Float[Tensor, "n d"]]
"""A differentiable map of frozen features to features of the same dimension, row by row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerContext:
    """Public inputs of the server besides the uploads.

    Args:
        round: the current round, from 1.
        classes: number of classes.
        dim: dimension of the uploaded prototypes.
        streams: random streams of the run.
        weights: public weight of each client and class; row i belongs to uploads[i], all ones is uniform.
    """

    round: int
    classes: int
    dim: int
    streams: Streams
    weights: Float[Tensor, "m c"]


@dataclass(frozen=True, slots=True)
class PredictionInputs:
    """Inputs of a client's prediction. Private: they never leave the client.

    Args:
        features: features of the client's encoder, without soft clipping.
        logits: output of the client's head on these features.
        own_class_means: class means of the client's training features, without noise.
    """

    features: Float[Tensor, "b d"]
    logits: Float[Tensor, "b c"]
    own_class_means: Summary


@runtime_checkable
class Framework(Protocol[Broadcast]):
    """A ProtoPFL framework: client summary (Eq. 2), server aggregation (Eq. 3) and client loss (L_BASE).

    A framework of your own is a frozen dataclass that derives from `FrameworkBase` and is added with
    `FRAMEWORKS.register(name, cls)` or by an entry point of the group `vpdr.frameworks`. The fields of the
    dataclass are its settings `framework.<name>.<field>`.

    Guarantee: the server side receives released prototypes and public numbers only, so a broadcast is
    post-processing and costs no privacy.
    """

    @classmethod
    def from_config(cls, options: Mapping[str, Any]) -> "Framework[Broadcast]":
        """Make the framework from its settings in a config.

        Args:
            options: settings by field name.

        Raises:
            InvalidInput: a value is out of range.
        """
        ...

    @property
    def summariser(self) -> Summariser:
        """How a client turns features into prototypes (Eq. 2)."""
        ...

    @property
    def encoder_kind(self) -> EncoderKind:
        """Which encoder's features are released."""
        ...

    @property
    def has_uploads(self) -> bool:
        """Whether clients upload anything."""
        ...

    @property
    def loss_is_per_sample(self) -> bool:
        """Whether the loss, given the broadcast, is a mean of functions of one sample each (for DP-SGD)."""
        ...

    def with_broadcast_features(self) -> "Framework[Broadcast] | None":
        """The same framework with releases from broadcast features; None if it broadcasts no feature map."""
        ...

    def feature_map(self, broadcast: Broadcast) -> FeatureMap | None:
        """The map from frozen features to those that a client releases after this broadcast.

        Returns:
            The map, or None if the frozen features are released as they are.

        Guarantee: a function of the broadcast alone, so it depends on data through earlier releases only.
        """
        ...

    def init_state(self, context: ServerContext) -> FrameworkState:
        """The server state before the first round."""
        ...

    def aggregate(
        self, uploads: Sequence[Prototypes], state: FrameworkState, context: ServerContext
    ) -> tuple[Broadcast, FrameworkState]:
        """Aggregate the uploads of a round on the server (Eq. 3).

        Args:
            uploads: the released prototypes, one set for each client.
            state: the server state after the last round; it is not changed.
            context: public inputs of the round.

        Returns:
            The broadcast and the new server state.

        Raises:
            InvalidInput: an upload or the weights do not fit, or hold NaN or infinity.
        """
        ...

    def losses(self, batch: TrainBatch, broadcast: Broadcast) -> Losses:
        """The weighted terms of the client loss by name; their sum is L_BASE."""
        ...

    def predict(self, inputs: PredictionInputs, broadcast: Broadcast) -> Int[Tensor, " b"]:
        """The label that the personalised model predicts for each sample."""
        ...

    def personal_logits(self, inputs: PredictionInputs) -> Float[Tensor, "b c"]:
        """Class logits from the client's own model alone."""
        ...

    def global_prototypes(self, broadcast: Broadcast) -> Prototypes | None:
        """The global prototypes in a broadcast, or None if it holds none."""
        ...

    def broadcast_logits(
        self, frozen_features: Float[Tensor, "b d"], broadcast: Broadcast
    ) -> Float[Tensor, "b c"] | None:
        """Class logits from a model in the broadcast, or None if it holds none."""
        ...

    def pack(self, broadcast: Broadcast) -> dict[str, Tensor]:
        """The broadcast as named arrays."""
        ...

    def unpack(self, arrays: Mapping[str, Tensor]) -> Broadcast:
        """The inverse of `pack`, bit for bit.

        Raises:
            InvalidInput: the arrays are no broadcast of this framework.
        """
        ...


class FrameworkBase:
    """Defaults that most frameworks share: personal encoder, server without state, prediction by the head."""

    has_uploads: ClassVar[bool] = True  # clients upload in every round
    loss_is_per_sample: ClassVar[bool] = False  # false unless the framework declares it: DP-SGD relies on it

    __slots__ = ()

    @classmethod
    def from_config(cls: type[AnyFramework], options: Mapping[str, Any]) -> AnyFramework:
        """Make the framework from its settings, by field name."""
        return cls(**options)

    @property
    def encoder_kind(self) -> EncoderKind:
        """Features of the client's own encoder."""
        return EncoderKind.PERSONAL

    def with_broadcast_features(self) -> Framework[Any] | None:
        """No feature map is broadcast."""
        return None

    def feature_map(self, broadcast: Any) -> FeatureMap | None:
        """No feature map is broadcast."""
        return None

    def init_state(self, context: ServerContext) -> FrameworkState:
        """No server state."""
        return {}

    def predict(self, inputs: PredictionInputs, broadcast: Any) -> Int[Tensor, " b"]:
        """The class with the largest logit of the client's head."""
        return inputs.logits.argmax(dim=1)

    def personal_logits(self, inputs: PredictionInputs) -> Float[Tensor, "b c"]:
        """The logits of the client's head."""
        return inputs.logits

    def broadcast_logits(self, frozen_features: Float[Tensor, "b d"], broadcast: Any) -> Float[Tensor, "b c"] | None:
        """No model is broadcast."""
        return None


class SinglePrototypeSet(FrameworkBase):
    """Base class of frameworks whose broadcast is one set of prototypes."""

    __slots__ = ()

    def global_prototypes(self, broadcast: Prototypes) -> Prototypes | None:
        """The broadcast itself."""
        return broadcast

    def pack(self, broadcast: Prototypes) -> dict[str, Tensor]:
        """The global prototypes as named arrays."""
        return prototypes_to_arrays("global", broadcast)

    def unpack(self, arrays: Mapping[str, Tensor]) -> Prototypes:
        """The global prototypes from named arrays."""
        return prototypes_from_arrays("global", arrays)


def prototypes_to_arrays(prefix: str, prototypes: Prototypes) -> dict[str, Tensor]:
    """The arrays of a set of prototypes, with names that start with the prefix and a dot."""
    return {f"{prefix}.{name}": array for name, array in prototypes.to_arrays().items()}


def prototypes_from_arrays(prefix: str, arrays: Mapping[str, Tensor]) -> Prototypes:
    """The inverse of `prototypes_to_arrays`; arrays with other prefixes are ignored."""
    start = f"{prefix}."
    return Prototypes.from_arrays(
        {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
    )
