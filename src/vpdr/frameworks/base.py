"""The interface of a ProtoPFL framework, with the defaults that most frameworks share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

from vpdr.privacy import EncoderKind
from vpdr.prototypes import Summariser
from vpdr.rng import Streams
from vpdr.types import Losses, Prototypes, Summary, TrainBatch

Broadcast = TypeVar("Broadcast")

# Server state between rounds: tensors, numbers and nested dicts of them. It is saved in checkpoints.
FrameworkState: TypeAlias = dict[str, Any]
# A differentiable map of frozen features to features of the same dimension, row by row.
FeatureMap: TypeAlias = Callable[[Float[Tensor, "n d"]], Float[Tensor, "n d"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerContext:
    """Public inputs of the server besides the uploads."""

    round: int  # from 1
    classes: int
    dim: int  # of the uploaded prototypes
    streams: Streams
    weights: Float[Tensor, "m c"]  # public; row i belongs to uploads[i], all ones is uniform


@dataclass(frozen=True, slots=True)
class PredictionInputs:
    """Inputs of a client's prediction. Private: they never leave the client."""

    features: Float[Tensor, "b d"]  # of the client's encoder, without soft clipping
    logits: Float[Tensor, "b c"]  # of the client's head on these features
    own_class_means: Summary  # of the client's training features, without noise


class Framework(ABC, Generic[Broadcast]):
    """A ProtoPFL framework: client summary (Eq. 2), server aggregation (Eq. 3) and client loss (L_BASE).

    A framework of your own is a frozen dataclass that derives from this class, or from `SinglePrototypeSet`,
    and is added with `FRAMEWORKS.register(name, cls)` or by an entry point of the group `vpdr.frameworks`. The
    fields of the dataclass are its settings `framework.<name>.<field>`. The defaults here are a personal
    encoder, a server without state, and prediction by the head.

    Guarantee: the server side receives released prototypes and public numbers only, so a broadcast is
    post-processing and costs no privacy.
    """

    has_uploads: ClassVar[bool] = True  # whether clients upload in every round
    # Whether the loss, given the broadcast, is a mean of functions of one sample each. DP-SGD relies on it.
    loss_is_per_sample: ClassVar[bool] = False

    __slots__ = ()

    @classmethod
    def from_config(cls, options: Mapping[str, Any]) -> "Framework[Broadcast]":
        """Make the framework from its settings in a config, by field name."""
        return cls(**options)

    @property
    @abstractmethod
    def summariser(self) -> Summariser:
        """How a client turns features into prototypes (Eq. 2)."""

    @property
    def encoder_kind(self) -> EncoderKind:
        """Which encoder's features are released."""
        return EncoderKind.PERSONAL

    def with_broadcast_features(self) -> "Framework[Broadcast] | None":
        """The same framework with releases from broadcast features; None if it broadcasts no feature map."""
        return None

    def feature_map(self, broadcast: Broadcast) -> FeatureMap | None:
        """The map from frozen features to those that are released; None if they are released as they are.

        Guarantee: a function of the broadcast alone, so it depends on data through earlier releases only.
        """
        return None

    def init_state(self, context: ServerContext) -> FrameworkState:
        """The server state before the first round."""
        return {}

    @abstractmethod
    def aggregate(
        self, uploads: Sequence[Prototypes], state: FrameworkState, context: ServerContext
    ) -> tuple[Broadcast, FrameworkState]:
        """The broadcast of a round and the new server state, from one set of released prototypes a client (Eq. 3).

        The given state is not changed. Uploads or weights that do not fit, or hold NaN or infinity, raise
        InvalidInput.
        """

    @abstractmethod
    def losses(self, batch: TrainBatch, broadcast: Broadcast) -> Losses:
        """The weighted terms of the client loss by name; their sum is L_BASE."""

    def predict(self, inputs: PredictionInputs, broadcast: Broadcast) -> Int[Tensor, " b"]:
        """The label that the personalised model predicts for each sample."""
        return inputs.logits.argmax(dim=1)

    def personal_logits(self, inputs: PredictionInputs) -> Float[Tensor, "b c"]:
        """Class logits from the client's own model alone."""
        return inputs.logits

    def global_prototypes(self, broadcast: Broadcast) -> Prototypes | None:
        """The global prototypes in a broadcast, or None if it holds none."""
        return None

    def broadcast_logits(
        self, frozen_features: Float[Tensor, "b d"], broadcast: Broadcast
    ) -> Float[Tensor, "b c"] | None:
        """Class logits from a model in the broadcast, or None if it holds none."""
        return None

    @abstractmethod
    def pack(self, broadcast: Broadcast) -> dict[str, Tensor]:
        """The broadcast as named arrays."""

    @abstractmethod
    def unpack(self, arrays: Mapping[str, Tensor]) -> Broadcast:
        """The inverse of `pack`, bit for bit; raises InvalidInput for what is no broadcast of this framework."""


class SinglePrototypeSet(Framework[Prototypes]):
    """Base class of frameworks whose broadcast is one set of prototypes."""

    __slots__ = ()

    def global_prototypes(self, broadcast: Prototypes) -> Prototypes | None:
        return broadcast

    def pack(self, broadcast: Prototypes) -> dict[str, Tensor]:
        return prototypes_to_arrays({"global": broadcast})

    def unpack(self, arrays: Mapping[str, Tensor]) -> Prototypes:
        return prototypes_from_arrays("global", arrays)


def prototypes_to_arrays(sets: Mapping[str, Prototypes]) -> dict[str, Tensor]:
    """The arrays of sets of prototypes, with names that start with the name of the set and a dot."""
    return {f"{prefix}.{name}": array for prefix, each in sets.items() for name, array in each.to_arrays().items()}


def prototypes_from_arrays(prefix: str, arrays: Mapping[str, Tensor]) -> Prototypes:
    """One set of `prototypes_to_arrays`; arrays with other prefixes are ignored."""
    start = f"{prefix}."
    return Prototypes.from_arrays({name.removeprefix(start): arrays[name] for name in arrays if name.startswith(start)})
