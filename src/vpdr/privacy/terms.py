"""What a guarantee is about: who counts as a neighbour, which encoder was used, and on whose word."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from vpdr.errors import InvalidInput
from vpdr.privacy.events import Event, NotPrivate

Kind = TypeVar("Kind", bound=StrEnum)


class Adjacency(StrEnum):
    """Which two datasets must be hard to tell apart."""

    REPLACE_SAME_LABEL = "replace-same-label"
    """One sample is exchanged for another of the same class; class counts are public (the paper)."""
    REPLACE_ONE = "replace-one"
    """One sample is exchanged for any other, its label included; class counts are private."""
    ADD_REMOVE = "add-remove"
    """One sample more or less; class counts and the dataset's size are private."""


class EncoderKind(StrEnum):
    """What produced the features that are released."""

    PUBLIC = "public"
    """Fixed before any private sample was seen."""
    TRANSCRIPT = "transcript"
    """A function of what has already been released, such as a server-trained adapter."""
    PERSONAL = "personal"
    """Trained on the client's private samples without privacy (the paper)."""
    ACCOUNTED = "accounted"
    """Trained on the client's private samples with privacy, every step of it in the same ledger."""

    @property
    def trained(self) -> bool:
        """Whether the client's own samples have moved it."""
        return self in (EncoderKind.PERSONAL, EncoderKind.ACCOUNTED)

    @property
    def fixed(self) -> bool:
        """Whether a sample has the same features in every round."""
        return self is EncoderKind.PUBLIC


DECLARED = (EncoderKind.PUBLIC, EncoderKind.TRANSCRIPT, EncoderKind.PERSONAL)
"""What somebody can say of an encoder; that its training was accounted for, only a ledger can."""


class Purpose(StrEnum):
    """What a client paid for."""

    RELEASE = "release"
    """Something that leaves the client."""
    TRAINING = "training"
    """Steps of an encoder from which something will be released."""


class Counts(StrEnum):
    """Whether the number of samples per class may be known."""

    PUBLIC = "public"
    PRIVATE = "private"


class Noise(StrEnum):
    """Who could repeat the noise."""

    SYSTEM = "system"
    """Nobody: it came from the operating system."""
    SEEDED = "seeded"
    """Whoever knows the seed: a simulation, in which the level says what secret noise would be worth."""


class Basis(StrEnum):
    """On whose word the sensitivity is a bound."""

    PROVED = "proved"
    AS_PUBLISHED = "as published"
    """The paper states it; a counter-example is known."""


class Level(StrEnum):
    """How much a stated (ε, δ) is worth, weakest last."""

    PROVED = "proved"
    """Holds end to end for the stated adjacency."""
    CONDITIONAL = "conditional"
    """Holds only if the personal encoder is taken as fixed: its training is not accounted for."""
    AS_PUBLISHED = "as published"
    """The paper's claim; the sensitivity behind it is not a bound."""
    NONE = "not private"
    """The data went out as they were."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """The conditions under which an (ε, δ) is meant."""

    adjacency: Adjacency
    encoder: EncoderKind
    counts: Counts
    basis: Basis
    noise: Noise = Noise.SYSTEM

    def __post_init__(self) -> None:
        # a plain text in place of a member would pass for none of them
        for name, kind in _KINDS.items():
            object.__setattr__(self, name, member(kind, getattr(self, name)))


_KINDS: dict[str, type[StrEnum]] = {
    "adjacency": Adjacency,
    "encoder": EncoderKind,
    "counts": Counts,
    "basis": Basis,
    "noise": Noise,
}


def member(kind: type[Kind], value: object) -> Kind:
    """The member that a text names, or the member itself."""
    try:
        return kind(str(value))
    except ValueError:
        names = ", ".join(kind)
        raise InvalidInput(f"{kind.__name__.lower()} must be one of {names}, got {value!r}") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """What one release cost, or some steps of training, and under which terms."""

    events: tuple[Event, ...]
    terms: Terms
    purpose: Purpose = Purpose.RELEASE

    @property
    def relies_on_training(self) -> bool:
        """Whether it says no more than the training that was paid for before."""
        return self.purpose is Purpose.RELEASE and self.terms.encoder is EncoderKind.ACCOUNTED

    @property
    def level(self) -> Level:
        """The weakest link decides.

        An accounted encoder is proved because `Ledger.charge` takes such a release only where the training
        was charged before.
        """
        if any(isinstance(event, NotPrivate) for event in self.events):
            return Level.NONE
        if not self.events:
            return Level.PROVED  # nothing was computed from the data, so nothing can be learnt
        if self.terms.basis is Basis.AS_PUBLISHED:
            return Level.AS_PUBLISHED
        return Level.CONDITIONAL if self.terms.encoder is EncoderKind.PERSONAL else Level.PROVED
