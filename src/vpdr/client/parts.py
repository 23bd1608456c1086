"""What a client is made of."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vpdr.encoder import PersonalEncoder
from vpdr.errors import InvalidInput
from vpdr.mechanisms import Mechanism, NoiseSource
from vpdr.mechanisms.gradients import PrivateSteps
from vpdr.privacy import EncoderKind, Purpose
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

    def optimiser(self, *parts: nn.Module) -> torch.optim.AdamW:
        """A fresh one for all parameters of these parts."""
        learning = [parameter for part in parts for parameter in part.parameters()]
        return torch.optim.AdamW(learning, lr=self.lr, weight_decay=self.weight_decay, foreach=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """How a client releases: by which mechanism, from which path, how often, with noise from where.

    Guarantee: an encoder is called accounted if and only if its training is private.
    """

    mechanism: Mechanism
    summarise: Summariser
    encoder: EncoderKind
    releases: int
    clip_norm: float
    noise: Callable[[str, int, Purpose], NoiseSource]  # of a client, a round and what it is for
    training: PrivateSteps | None = None  # None: the encoder is trained without privacy

    def __post_init__(self) -> None:
        if (self.encoder is EncoderKind.ACCOUNTED) != (self.training is not None):
            raise InvalidInput(
                f"an accounted encoder is one that is trained with privacy, got encoder {self.encoder} and "
                f"training {self.training}; set train.privacy in the plan"
            )
        if self.training is not None and self.training.adjacency is not self.mechanism.adjacency:
            raise InvalidInput(
                f"training under {self.training.adjacency} and releases under {self.mechanism.adjacency} do "
                "not add up; use one adjacency"
            )
