"""The terms of a guarantee, its level, and the receipt of a release."""

import logging
import re
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TypeVar

from vpdr.privacy.accountants import Event, check_events, has_not_private_event
from vpdr.validation import InvalidInput

Kind = TypeVar("Kind", bound=StrEnum)
logger = logging.getLogger("vpdr.privacy")  # prints hints on stderr unless the application configures logging


class Adjacency(StrEnum):
    """The neighbouring relation: which two datasets must be hard to tell apart."""

    REPLACE_SAME_LABEL = "replace-same-label"  # one sample by another of its class; class counts are public (the paper)
    REPLACE_ONE = "replace-one"  # one sample by any other, its label included; class counts are private
    ADD_REMOVE = "add-remove"  # one sample more or less; class counts and the size of the dataset are private


class EncoderKind(StrEnum):
    """How the encoder that made the features was trained."""

    PUBLIC = "public"  # fixed before any private sample was used
    BROADCAST = "transcript"  # a function of what has already been released, such as a server-trained adapter
    PERSONAL = "personal"  # trained on the client's private samples without privacy (the paper)
    DP_TRAINED = "accounted"  # trained on them with privacy, every step of it in the same ledger

    @classmethod
    def _missing_(cls, value: object) -> "EncoderKind | None":
        """Ledgers and policies keep the words of the first version; configs and users write these."""
        return {"broadcast": cls.BROADCAST, "dp_trained": cls.DP_TRAINED}.get(str(value))

    @property
    def is_trained_on_private_data(self) -> bool:
        return self in (EncoderKind.PERSONAL, EncoderKind.DP_TRAINED)

    @property
    def is_fixed(self) -> bool:
        """Whether a sample has the same features in every round."""
        return self is EncoderKind.PUBLIC


# the kinds that a configuration may declare; DP_TRAINED follows from the ledger alone
DECLARABLE_ENCODERS = ("public", "broadcast", "personal")


def declared_encoder(name: str) -> EncoderKind:
    """The kind of encoder that a user declares; InvalidInput where it is none that can be declared."""
    if name == EncoderKind.BROADCAST.value:
        logger.warning("encoder %s is now encoder broadcast; the old spelling is accepted for one more version", name)
    if name not in (*DECLARABLE_ENCODERS, EncoderKind.BROADCAST):
        raise InvalidInput(f"unknown encoder: {name!r}; choose one of {', '.join(DECLARABLE_ENCODERS)}")
    return EncoderKind(name)


class ChargePurpose(StrEnum):
    """What a charge is for."""

    RELEASE = "release"  # a release that leaves the client
    TRAINING = "training"  # training steps of the encoder from which features will be released


class CountVisibility(StrEnum):
    """Whether the number of samples per class is public."""

    PUBLIC = "public"
    PRIVATE = "private"


class NoiseOrigin(StrEnum):
    """Where the noise comes from."""

    SYSTEM = "system"  # the operating system: nobody can repeat it
    SEEDED = "seeded"  # a seed: a simulation, whose level is what secret noise would give


class SensitivityBasis(StrEnum):
    """Whether the sensitivity is a proved bound."""

    PROVED = "proved"
    AS_PUBLISHED = "as published"  # the paper states it; a counter-example is known


class Arithmetic(StrEnum):
    """The numbers in which private statistics are computed and noise is added to them."""

    INTEGER = "integer"  # whole multiples of a public step: no rounding, and noise that reaches every output
    FLOATING = "floating point"  # the proof takes them for real numbers; it may be false for every ε


class GuaranteeLevel(StrEnum):
    """The strength of a stated (ε, δ), weakest last."""

    PROVED = "proved"  # holds end to end for the stated adjacency
    # holds only if the personal encoder is taken as fixed (its training is not charged), or floats as real numbers
    CONDITIONAL = "conditional"
    AS_PUBLISHED = "as published"  # the paper's claim; its sensitivity is not a bound
    NONE = "not private"  # the data are released without protection


@dataclass(frozen=True, kw_only=True, slots=True)
class GuaranteeTerms:
    """The conditions under which an (ε, δ) holds.

    Strings are converted to enum members; unknown ones raise `InvalidInput`.
    """

    adjacency: Adjacency  # the neighbouring relation
    encoder: EncoderKind  # how the encoder was trained
    counts: CountVisibility  # whether class counts are public
    basis: SensitivityBasis  # whether the sensitivity is proved
    noise: NoiseOrigin = NoiseOrigin.SYSTEM
    arithmetic: Arithmetic = Arithmetic.FLOATING  # where nobody says that it is better

    def __post_init__(self) -> None:
        kinds = (Adjacency, EncoderKind, CountVisibility, SensitivityBasis, NoiseOrigin, Arithmetic)
        for field, kind in zip(fields(self), kinds, strict=True):
            object.__setattr__(self, field.name, parse_enum(kind, getattr(self, field.name)))


def parse_enum(kind: type[Kind], value: object) -> Kind:
    """The enum member of this value; a member is returned as it is."""
    try:
        return kind(str(value))
    except ValueError:
        name = re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()  # EncoderKind: encoder kind
        raise InvalidInput(f"{name} must be one of {', '.join(kind)}, got {value!r}") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """The privacy cost of one release, or of some training steps.

    Args:
        events: what the accountant adds up.
        terms: the conditions of the guarantee.
        purpose: a release, or training of the encoder.

    Raises:
        InvalidInput: an event of a type that no accountant knows.

    Guarantee: `level` is no stronger than the weakest of the events and terms.

    >>> from vpdr.privacy.accountants import GaussianEvent
    >>> terms = GuaranteeTerms(
    ...     adjacency="replace-one", encoder="public", counts="private", basis="proved", arithmetic="integer"
    ... )
    >>> str(Receipt(events=(GaussianEvent(4.0),), terms=terms).level)
    'proved'
    """

    events: tuple[Event, ...]
    terms: GuaranteeTerms
    purpose: ChargePurpose = ChargePurpose.RELEASE

    def __post_init__(self) -> None:
        check_events(self.events)

    @property
    def level(self) -> GuaranteeLevel:
        """The level of the weakest condition.

        A DP-trained encoder counts as proved, because `Ledger.charge` accepts such a release only where the
        training was charged before.
        """
        if has_not_private_event(self.events):
            return GuaranteeLevel.NONE
        if not self.events:
            return GuaranteeLevel.PROVED  # nothing was computed from the data
        if self.terms.basis is SensitivityBasis.AS_PUBLISHED:
            return GuaranteeLevel.AS_PUBLISHED
        is_personal, is_floating = (
            self.terms.encoder is EncoderKind.PERSONAL,
            self.terms.arithmetic is Arithmetic.FLOATING,
        )
        return GuaranteeLevel.CONDITIONAL if is_personal or is_floating else GuaranteeLevel.PROVED
