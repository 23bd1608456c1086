"""What every ProtoPFL framework is: how prototypes are made, merged and used."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from vpdr.privacy.terms import EncoderKind
from vpdr.prototypes import Summariser
from vpdr.rng import Streams
from vpdr.types import Losses, Prototypes, Step, Summary

Broadcast = TypeVar("Broadcast")

ServerMemory: TypeAlias = dict[str, Any]
"""Tensors, numbers and nested dicts of them: it is saved with every checkpoint."""

Path: TypeAlias = Callable[[Float[Tensor, "n d"]], Float[Tensor, "n d"]]
"""Public features to others of the same dimension, each row on its own; differentiable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Now:
    """What a server may know besides the uploads; all of it is public."""

    t: int
    classes: int
    dim: int
    streams: Streams
    weights: Float[Tensor, "m c"]  # row i belongs to uploads[i]; all ones: uniform


@dataclass(frozen=True, slots=True)
class View:
    """What a client knows when it predicts. Private: never leaves the client."""

    features: Float[Tensor, "b d"]  # raw, without soft clipping
    logits: Float[Tensor, "b c"]  # of its own head on these features
    own: Summary  # clean class means of its training features


@runtime_checkable
class Framework(Protocol[Broadcast]):
    """How clients summarise, what the server makes of it, and what a client then learns from it.

    Guarantee: the server side sees prototypes that were released and numbers that are public, nothing
    else, so a broadcast is post-processing and costs no privacy.
    """

    @property
    def summarise(self) -> Summariser:
        """Client side (Eq. 2)."""
        ...

    @property
    def encoder(self) -> EncoderKind:
        """Which path's features are released."""
        ...

    @property
    def uploads(self) -> bool:
        """Whether clients send anything at all."""
        ...

    @property
    def by_sample(self) -> bool:
        """Whether the loss, given the broadcast, is a mean of functions of one sample each."""
        ...

    def transcript(self) -> "Framework[Broadcast] | None":
        """The same framework with clients that release on the path it broadcasts; None if it has no path."""
        ...

    def path(self, broadcast: Broadcast) -> Path | None:
        """The path on which a client that heard this releases, or None where it is the public one.

        Guarantee: a function of the broadcast alone, so nothing but earlier releases has shaped it.
        """
        ...

    def start(self, now: Now) -> ServerMemory:
        """What the server remembers before the first round."""
        ...

    def generate(
        self, uploads: Sequence[Prototypes], memory: ServerMemory, now: Now
    ) -> tuple[Broadcast, ServerMemory]:
        """Server side (Eq. 3): the broadcast and a new memory; the given one stays as it is."""
        ...

    def losses(self, step: Step, broadcast: Broadcast) -> Losses:
        """Client side: the weighted terms of L_BASE by name; their sum is L_BASE."""
        ...

    def predict(self, view: View, broadcast: Broadcast) -> Int[Tensor, " b"]:
        """The label that a personalised model gives to each sample."""
        ...

    def evidence(self, view: View) -> Float[Tensor, "b c"]:
        """Scores of each class by what the client has learnt itself: logits of a softmax."""
        ...

    def anchors(self, broadcast: Broadcast) -> Prototypes | None:
        """The global prototypes in a broadcast, or None where there are none."""
        ...

    def opinion(self, public: Float[Tensor, "b d"], broadcast: Broadcast) -> Float[Tensor, "b c"] | None:
        """Scores of public features by a model in a broadcast, or None where there is none."""
        ...

    def pack(self, broadcast: Broadcast) -> dict[str, Tensor]:
        """The broadcast as named arrays, for any wire."""
        ...

    def unpack(self, arrays: Mapping[str, Tensor]) -> Broadcast:
        """What `pack` was given, bit for bit."""
        ...


class Ordinary:
    """What most frameworks share: personal features, a server without memory, the head predicts."""

    __slots__ = ()

    @property
    def encoder(self) -> EncoderKind:
        """Features of the client's own, privately trained encoder."""
        return EncoderKind.PERSONAL

    @property
    def uploads(self) -> bool:
        """Every round starts with what the clients send."""
        return True

    @property
    def by_sample(self) -> bool:
        """No, unless a framework says so itself: private training believes it."""
        return False

    def transcript(self) -> Framework[Any] | None:
        """There is no path in what is broadcast."""
        return None

    def path(self, broadcast: Any) -> Path | None:
        """Releases do not depend on what was heard."""
        return None

    def start(self, now: Now) -> ServerMemory:
        """Nothing to remember."""
        return {}

    def predict(self, view: View, broadcast: Any) -> Int[Tensor, " b"]:
        """The client's own head decides."""
        return view.logits.argmax(dim=1)

    def evidence(self, view: View) -> Float[Tensor, "b c"]:
        """What the client's own head says."""
        return view.logits

    def opinion(self, public: Float[Tensor, "b d"], broadcast: Any) -> Float[Tensor, "b c"] | None:
        """There is no model in what is broadcast."""
        return None
