"""The terms of a guarantee, the receipt of a release, and the ledger that it is charged to."""

import math
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from vpdr.errors import InvalidInput, VpdrError
from vpdr.privacy.accountants import (
    Accountant,
    Budget,
    Event,
    NotPrivateEvent,
    event_from_dict,
    event_to_dict,
    get_accountant,
)

Kind = TypeVar("Kind", bound=StrEnum)


class Adjacency(StrEnum):
    """The neighbouring relation: which two datasets must be hard to tell apart."""

    REPLACE_SAME_LABEL = "replace-same-label"
    """One sample is replaced by another of the same class; class counts are public (the paper)."""
    REPLACE_ONE = "replace-one"
    """One sample is replaced by any other, its label included; class counts are private."""
    ADD_REMOVE = "add-remove"
    """One sample is added or removed; class counts and the size of the dataset are private."""


class EncoderKind(StrEnum):
    """How the encoder that made the features was trained."""

    PUBLIC = "public"
    """Fixed before any private sample was used."""
    BROADCAST = "transcript"
    """A function of what has already been released, such as a server-trained adapter."""
    PERSONAL = "personal"
    """Trained on the client's private samples without privacy (the paper)."""
    DP_TRAINED = "accounted"
    """Trained on the client's private samples with privacy, every step of it in the same ledger."""

    @classmethod
    def _missing_(cls, value: object) -> "EncoderKind | None":
        """Ledgers and policies keep the words of the first version; configs and users write these."""
        return {"broadcast": cls.BROADCAST, "dp_trained": cls.DP_TRAINED}.get(str(value))

    @property
    def is_trained_on_private_data(self) -> bool:
        """Whether it was trained on the client's own samples."""
        return self in (EncoderKind.PERSONAL, EncoderKind.DP_TRAINED)

    @property
    def is_fixed(self) -> bool:
        """Whether a sample has the same features in every round."""
        return self is EncoderKind.PUBLIC


DECLARABLE_ENCODERS = ("public", "broadcast", "personal")
"""The kinds that a configuration may declare; DP_TRAINED follows from the ledger alone."""


def declared_encoder(name: str) -> EncoderKind:
    """The kind of encoder that a user declares.

    Raises:
        InvalidInput: the name of no kind, or of one that cannot be declared.
    """
    if name not in (*DECLARABLE_ENCODERS, EncoderKind.BROADCAST):
        raise InvalidInput(f"unknown encoder: {name!r}; choose one of {', '.join(DECLARABLE_ENCODERS)}")
    return EncoderKind(name)


class ChargePurpose(StrEnum):
    """What a charge is for."""

    RELEASE = "release"
    """A release that leaves the client."""
    TRAINING = "training"
    """Training steps of the encoder from which features will be released."""


class CountVisibility(StrEnum):
    """Whether the number of samples per class is public."""

    PUBLIC = "public"
    PRIVATE = "private"


class NoiseOrigin(StrEnum):
    """Where the noise comes from."""

    SYSTEM = "system"
    """The operating system: nobody can repeat it."""
    SEEDED = "seeded"
    """A seed: a simulation, whose level is what secret noise would give."""


class SensitivityBasis(StrEnum):
    """Whether the sensitivity is a proved bound."""

    PROVED = "proved"
    AS_PUBLISHED = "as published"
    """The paper states it; a counter-example is known."""


class GuaranteeLevel(StrEnum):
    """The strength of a stated (ε, δ), weakest last."""

    PROVED = "proved"
    """Holds end to end for the stated adjacency."""
    CONDITIONAL = "conditional"
    """Holds only if the personal encoder is taken as fixed: its training is not accounted for."""
    AS_PUBLISHED = "as published"
    """The paper's claim; its sensitivity is not a bound."""
    NONE = "not private"
    """The data are released without protection."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GuaranteeTerms:
    """The conditions under which an (ε, δ) holds.

    Args:
        adjacency: the neighbouring relation.
        encoder: how the encoder was trained.
        counts: whether class counts are public.
        basis: whether the sensitivity is proved.
        noise: where the noise comes from.

    Strings are converted to enum members; unknown ones raise `InvalidInput`.
    """

    adjacency: Adjacency
    encoder: EncoderKind
    counts: CountVisibility
    basis: SensitivityBasis
    noise: NoiseOrigin = NoiseOrigin.SYSTEM

    def __post_init__(self) -> None:
        for name, kind in _TERM_TYPES.items():
            object.__setattr__(self, name, parse_enum(kind, getattr(self, name)))


_TERM_TYPES: dict[str, type[StrEnum]] = {
    "adjacency": Adjacency,
    "encoder": EncoderKind,
    "counts": CountVisibility,
    "basis": SensitivityBasis,
    "noise": NoiseOrigin,
}


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

    >>> from vpdr.privacy.accountants import GaussianEvent
    >>> terms = GuaranteeTerms(
    ...     adjacency="replace-one", encoder="public", counts="private", basis="proved", noise="system"
    ... )
    >>> str(Receipt(events=(GaussianEvent(4.0),), terms=terms).level)
    'proved'
    """

    events: tuple[Event, ...]
    terms: GuaranteeTerms
    purpose: ChargePurpose = ChargePurpose.RELEASE

    @property
    def relies_on_training(self) -> bool:
        """Whether the guarantee holds only if the training of the encoder was charged before."""
        return self.purpose is ChargePurpose.RELEASE and self.terms.encoder is EncoderKind.DP_TRAINED

    @property
    def level(self) -> GuaranteeLevel:
        """The level of the weakest condition.

        A DP-trained encoder counts as proved, because `Ledger.charge` accepts such a release only where the
        training was charged before.
        """
        if any(isinstance(event, NotPrivateEvent) for event in self.events):
            return GuaranteeLevel.NONE
        if not self.events:
            return GuaranteeLevel.PROVED  # nothing was computed from the data
        if self.terms.basis is SensitivityBasis.AS_PUBLISHED:
            return GuaranteeLevel.AS_PUBLISHED
        return GuaranteeLevel.CONDITIONAL if self.terms.encoder is EncoderKind.PERSONAL else GuaranteeLevel.PROVED


# The ledger of one client: every charge is recorded, and the total may not exceed the budget.


class BudgetExceeded(VpdrError, RuntimeError):
    """A charge would exceed the budget. Raised before anything is released."""


class LedgerHeader(NamedTuple):
    """What identifies a ledger; it never changes, and ledgers with other headers are other ledgers."""

    client: str
    budget: Budget | None
    accountant: str
    adjacency: Adjacency

    @property
    def description(self) -> str:
        """All but the client, in a few words."""
        budget = self.budget
        amount = "no budget" if budget is None else f"epsilon {budget.epsilon:g}, delta {budget.delta:g}"
        return f"{amount}, {self.accountant} accountant, {self.adjacency}"

    def asdict(self) -> dict[str, Any]:
        """The fields by name, to construct another kind of ledger."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One charge: a release, or the training steps of one round."""

    round: int
    receipt: Receipt

    @property
    def is_release(self) -> bool:
        """Whether the charge is for a release."""
        return self.receipt.purpose is ChargePurpose.RELEASE


def entry_to_dict(entry: LedgerEntry) -> dict[str, Any]:
    """The entry as plain data."""
    names = ("adjacency", "encoder", "counts", "basis", "noise")
    return {
        "round": int(entry.round),
        "purpose": str(entry.receipt.purpose),
        "events": [event_to_dict(event) for event in entry.receipt.events],
        "terms": {name: str(getattr(entry.receipt.terms, name)) for name in names},
    }


def entry_from_dict(data: Mapping[str, Any]) -> LedgerEntry:
    """The inverse of `entry_to_dict`."""
    terms = GuaranteeTerms(
        adjacency=Adjacency(data["terms"]["adjacency"]),
        encoder=EncoderKind(data["terms"]["encoder"]),
        counts=CountVisibility(data["terms"]["counts"]),
        basis=SensitivityBasis(data["terms"]["basis"]),
        noise=NoiseOrigin(data["terms"]["noise"]),
    )
    if not isinstance(data["events"], list) or type(data["round"]) is not int:
        raise InvalidInput(f"expected a round and a list of events, got {data['round']!r} and {data['events']!r}")
    # ledgers of earlier versions hold releases only, without a purpose
    purpose = parse_enum(ChargePurpose, data.get("purpose", ChargePurpose.RELEASE))
    events = tuple(event_from_dict(event) for event in data["events"])
    return LedgerEntry(data["round"], Receipt(events=events, terms=terms, purpose=purpose))


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What one client has released, and what its budget still allows.

    Args:
        client: the client's name.
        budget: what it may spend in all; None records charges without a limit, for runs without privacy.
        accountant: the name of the accountant, one of `ACCOUNTANTS`.
        adjacency: the neighbouring relation of all receipts.
        entries: the charges so far.

    Guarantee: after any sequence of `charge` calls that returned, the accountant's ε of all recorded
    events at the budget's δ is at most the budget's ε. A refused charge changes nothing.

    >>> from vpdr.privacy import GaussianEvent
    >>> terms = GuaranteeTerms(
    ...     adjacency="replace-one", encoder="public", counts="private", basis="proved"
    ... )
    >>> ledger = Ledger(client="a", budget=Budget(1.0, 1e-5), adjacency="replace-one")
    >>> ledger.charge(Receipt(events=(GaussianEvent(20.0),), terms=terms), round=1)
    >>> round(ledger.epsilon_spent, 3), ledger.releases_left()
    (0.16, 27)
    """

    client: str
    budget: Budget | None
    accountant: str = "exact"
    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL
    entries: list[LedgerEntry] = field(default_factory=list)

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __post_init__(self) -> None:
        get_accountant(self.accountant)
        self.adjacency = parse_enum(Adjacency, self.adjacency)

    def charge(self, receipt: Receipt, *, round: int) -> None:
        """Record a charge, or refuse it; nothing may be released before this returns.

        Args:
            receipt: the privacy cost.
            round: the round of the release or of the training.

        Raises:
            BudgetExceeded: the total would exceed the budget.
            InvalidInput: the adjacency differs, or the release relies on training that was not charged.
        """
        if receipt.terms.adjacency is not self.adjacency:
            raise InvalidInput(
                f"the ledger of {self.client} counts under {self.adjacency}, the release is stated under "
                f"{receipt.terms.adjacency}: costs under different adjacencies do not add up"
            )
        with self._lock:
            self._check_training_charged(receipt)
            self._check_budget(receipt, round)
            self.entries.append(LedgerEntry(round, receipt))

    def _check_training_charged(self, receipt: Receipt) -> None:
        if receipt.relies_on_training and not self.training_steps:
            raise InvalidInput(
                f"{self.client}: no training of the encoder is in this ledger; charge it before the release"
            )

    def _check_budget(self, receipt: Receipt, round: int) -> None:
        if self.budget is None:
            return
        total = self._accountant.epsilon((*self.events, *receipt.events), self.budget.delta)
        if total > self.budget.epsilon:
            raise BudgetExceeded(
                f"{self.client}: epsilon would reach {total:.6g} in round {round}, "
                f"the budget is {self.budget.epsilon:g}; nothing was released"
            )

    @property
    def header(self) -> LedgerHeader:
        """What identifies this ledger."""
        return LedgerHeader(self.client, self.budget, self.accountant, self.adjacency)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all entries, in order."""
        return tuple(event for entry in self.entries for event in entry.receipt.events)

    @property
    def releases(self) -> list[LedgerEntry]:
        """The entries for releases."""
        return [entry for entry in self.entries if entry.is_release]

    @property
    def training_steps(self) -> int:
        """The number of training steps that were charged."""
        return sum(len(entry.receipt.events) for entry in self.entries if not entry.is_release)

    @property
    def epsilon_spent(self) -> float:
        """The ε spent so far, at the budget's δ."""
        return self._epsilon(self.events)

    @property
    def epsilon_left(self) -> float:
        """The ε that is left of the budget; infinite without a budget."""
        return math.inf if self.budget is None else self.budget.epsilon - self.epsilon_spent

    @property
    def level(self) -> GuaranteeLevel:
        """The weakest guarantee of any recorded release."""
        order = list(GuaranteeLevel)
        return max((entry.receipt.level for entry in self.entries), key=order.index, default=GuaranteeLevel.PROVED)

    def history(self) -> Iterator[tuple[LedgerEntry, float]]:
        """Each entry with the ε spent up to and including it."""
        events: tuple[Event, ...] = ()
        for entry in self.entries:
            events = (*events, *entry.receipt.events)
            yield entry, self._epsilon(events)

    def releases_left(self, limit: int = 10_000) -> int | None:
        """How many more releases like the last one fit into the budget; None where there is no limit."""
        if self.budget is None or not self.releases or not self.releases[-1].receipt.events:
            return None
        last, delta = self.releases[-1].receipt.events, self.budget.delta
        max_epsilon = self.budget.epsilon

        def fits(count: int) -> bool:
            return self._accountant.epsilon((*self.events, *last * count), delta) <= max_epsilon

        low, high = 0, 1
        while high <= limit and fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def state_dict(self) -> dict[str, Any]:
        """The ledger as plain data."""
        budget = self.budget and {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        return {
            "client": self.client,
            "budget": budget,
            "accountant": self.accountant,
            "adjacency": str(self.adjacency),
            "entries": [entry_to_dict(entry) for entry in self.entries],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; a state of another ledger, or one that lacks an entry, is refused."""
        saved = Ledger.from_state_dict(state)
        if saved.header != self.header:
            raise InvalidInput(
                f"the saved ledger belongs to client {saved.client} with {saved.header.description}, "
                f"this one to {self.client} with {self.header.description}: budgets cannot be exchanged"
            )
        if saved.entries[: len(self.entries)] != self.entries:
            raise InvalidInput(
                f"the saved ledger of {self.client} lacks releases that were already made "
                f"({len(saved.entries)} saved, {len(self.entries)} made): a ledger never forgets"
            )
        self.entries = saved.entries

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Ledger":
        """The inverse of `state_dict`; anything else is refused."""
        try:
            return cls(
                client=str(state["client"]),
                budget=None if state["budget"] is None else Budget(**state["budget"]),
                accountant=state["accountant"],
                adjacency=Adjacency(state["adjacency"]),
                entries=[entry_from_dict(entry) for entry in state["entries"]],
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InvalidInput(f"not the contents of a ledger: {error}") from error

    @property
    def _accountant(self) -> Accountant:
        return get_accountant(self.accountant)

    def _epsilon(self, events: tuple[Event, ...]) -> float:
        if self.budget is None:
            return math.inf if events else 0.0  # there is no δ at which to state an ε
        return self._accountant.epsilon(events, self.budget.delta)
