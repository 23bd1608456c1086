"""What a client is made of."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from vpdr.encoder import PersonalEncoder
from vpdr.mechanisms import Mechanism, NoiseSource
from vpdr.privacy import EncoderKind
from vpdr.prototypes import Summariser
from vpdr.types import Inputs


@dataclass(frozen=True, slots=True)
class Samples:
    """Labelled samples on the frozen path: what the backbone and the projection make of them."""

    public: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    inputs: Inputs | None = None  # only for encoders that train inside the backbone

    def take(self, rows: Int[Tensor, " m"]) -> "Samples":
        """These samples only, in this order."""
        inputs = None if self.inputs is None else self.inputs.take(rows)
        return Samples(self.public[rows], self.labels[rows], inputs)


@dataclass(frozen=True, slots=True)
class Shard:
    """All data of one client. Private."""

    train: Samples
    test: Samples
    validation: Samples | None = None  # held out of training, to choose settings by


@dataclass(frozen=True, slots=True)
class Model:
    """The trainable parts: the encoder, with all that is frozen shared, and the head."""

    encoder: PersonalEncoder  # h_m
    head: nn.Module  # f_m


@dataclass(frozen=True, kw_only=True, slots=True)
class Habits:
    """How a client fine-tunes."""

    classes: int
    epochs: int
    batch: int
    lr: float
    weight_decay: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """How a client releases: by which mechanism, from which path, how often, with noise from where."""

    mechanism: Mechanism
    summarise: Summariser
    encoder: EncoderKind
    releases: int
    clip_norm: float
    noise: Callable[[str, int], NoiseSource]  # of a client and a round
