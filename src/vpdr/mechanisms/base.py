"""What every mechanism is, and what it may depend on besides the client's own features."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from torch import Tensor

from vpdr.mechanisms.noise import NoiseSource, SystemNoise
from vpdr.privacy.terms import Adjacency, EncoderKind, Receipt, member
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Memory, Prototypes, Release

Array: TypeAlias = Tensor | np.ndarray


@dataclass(frozen=True, kw_only=True)
class Occasion:
    """One release: whose it is, how prototypes are made, and all that the mechanism may look at.

    The defaults are for use on plain arrays: class means, noise from the operating system, and the weaker
    reading of an encoder about which nothing is known.
    """

    client: str = "client"
    round: int = 1
    classes: int | None = None  # the public number of classes; labels beyond it are refused
    summarise: Summariser = field(default_factory=ClassMeans)
    encoder: EncoderKind = EncoderKind.PERSONAL
    noise: NoiseSource = field(default_factory=SystemNoise)
    heard: Prototypes | None = None  # the last broadcast: public
    memory: Memory = field(default_factory=dict)  # what this client's last release asked to keep

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoder", member(EncoderKind, self.encoder))


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a plan must know of a kind of mechanism before there is one."""

    private: bool = True  # whether its releases cost a finite budget
    selects: bool = False  # whether it pays for a choice of coordinates beside its noise
    staged: bool = False  # whether it adds up released sums over rows that never change, and keeps only these


@runtime_checkable
class Mechanism(Protocol):
    """Turns private features into something that may be sent, and says what that costs.

    Guarantee: everything in `Release.prototypes` depends on the features only through the events of
    `Release.receipt`, under the receipt's terms; the receipt itself depends on no feature and no label.
    `Release.memory` may be private and stays on the client.
    """

    facts: ClassVar[Facts]

    @property
    def adjacency(self) -> Adjacency:
        """Under which relation the receipts are stated."""
        ...

    def planned(self, occasion: Occasion = Occasion()) -> Receipt:
        """The receipt of `release` on this occasion, from what is public and how many releases are behind.

        Whoever is watched while it releases charges this first: then even a failure is paid for.
        """
        ...

    def release(self, vectors: Array, labels: Array, occasion: Occasion = Occasion()) -> Release:
        """One release from features [n d] and labels [n]; torch or numpy."""
        ...

    def bounds(self, adjacency: Adjacency, summarise: Summariser) -> Mapping[str, str]:
        """In words, the sensitivity of each quantity that is computed from the data, or that it has none."""
        ...
