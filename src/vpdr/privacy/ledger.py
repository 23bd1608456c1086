"""The ledger of one client: every charge is recorded, and the total may not exceed the budget.

`vpdr.privacy.ledger_file` keeps one on disk.
"""

import hashlib
import json
import math
import operator
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NoReturn, SupportsIndex

from vpdr.privacy import guarantee
from vpdr.privacy.accountants import Budget, Event, event_from_dict, event_to_dict, get_accountant
from vpdr.privacy.guarantee import Adjacency, ChargePurpose, EncoderKind, GuaranteeLevel, Receipt, parse_enum
from vpdr.validation import InvalidInput, VpdrError

_TERMS = tuple(term.name for term in fields(guarantee.GuaranteeTerms))
MAX_TEXT_LENGTH = 200  # of the name of a run or a mechanism, and of the reason of a change


class BudgetExceeded(VpdrError, RuntimeError):
    """A charge would exceed the budget. Raised before anything is released."""


_MADE_BY_LEDGER = object()  # only `Ledger.charge` passes it to `Charge`


class Charge:
    """The proof that a receipt is in a ledger; it opens one release with that receipt, once.

    Made by `charge` of a ledger only, and neither copied nor pickled: a copy would open a second release.

    Args:
        receipt: what was charged.
        round: the round of the charge.

    Guarantee: a charge is used at most once, and only for its own receipt.

    >>> from vpdr import Budget, Igpp, Ledger
    >>> mechanism, ledger = Igpp.calibrated(Budget(1.0, 1e-5), 1, clip_norm=1.0), Ledger(client="a", budget=None)
    >>> charge = ledger.charge(mechanism.receipt_for(), round=1)
    >>> charge.round, charge.is_used
    (1, False)
    """

    __slots__ = ("_lock", "_receipt", "_round")

    def __init__(self, receipt: Receipt, round: int, *, _made_by: object = None) -> None:
        if _made_by is not _MADE_BY_LEDGER:
            raise TypeError("a charge is made by charge of a ledger only")
        self._receipt, self._round = receipt, round
        self._lock = threading.Lock()  # taken by the use and never given back, so that two threads cannot both use it

    @property
    def receipt(self) -> Receipt:
        """What was charged."""
        return self._receipt

    @property
    def round(self) -> int:
        """The round of the charge."""
        return self._round

    @property
    def is_used(self) -> bool:
        """Whether it has opened a release."""
        return self._lock.locked()

    def use(self, receipt: Receipt) -> None:
        """Use the charge up for a release with this receipt.

        Args:
            receipt: that of the release.

        Raises:
            VpdrError: another receipt was charged, or the charge is used.
        """
        if receipt != self._receipt:
            raise VpdrError(f"the release costs {receipt.events}, but {self._receipt.events} was paid for")
        if not self._lock.acquire(blocking=False):
            raise VpdrError(f"the charge of round {self._round} has already opened a release; charge the ledger again")

    def __repr__(self) -> str:
        return f"Charge(round={self._round}, receipt={self._receipt}, is_used={self.is_used})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise VpdrError("a charge cannot be copied or pickled: it opens one release, once")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One charge: a release, or the training steps of one round.

    Time, run and mechanism are recorded in ledger files only. A ledger in memory has no clock, so that equal seeds
    give equal records.
    """

    round: int
    receipt: Receipt
    time: str = ""  # UTC, such as 2026-03-01T12:00:00Z
    run: str = ""  # what names the run, or the process, that charged
    mechanism: str = ""  # the class of the mechanism

    def __post_init__(self) -> None:
        object.__setattr__(self, "round", check_round(self.round))
        _check_stamp(self.time, self.run, self.mechanism)

    @property
    def is_release(self) -> bool:
        return self.receipt.purpose is ChargePurpose.RELEASE

    @property
    def content(self) -> tuple[int, Receipt]:
        """What was charged, without when and by whom."""
        return self.round, self.receipt


@dataclass(frozen=True, kw_only=True, slots=True)
class Amendment:
    """A change of a ledger's budget, client or file format, and its place among the charges."""

    position: int  # the number of charges before it
    what: str  # epsilon, client or format
    old: float | str
    new: float | str
    reason: str = ""
    time: str = ""
    run: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "position", check_round(self.position))
        types: dict[str, type | tuple[type, ...]] = {"epsilon": (float, int), "client": str, "format": int}
        for value in (self.old, self.new):
            if self.what not in types or not isinstance(value, types[self.what]) or isinstance(value, bool):
                raise InvalidInput(f"not a change of a ledger: {self.what!r} from {self.old!r} to {self.new!r}")
        _check_stamp(self.time, self.run, self.reason)


def check_round(round: object) -> int:
    """The round as an integer; InvalidInput unless it is a whole number of at least 0."""
    try:
        number = -1 if isinstance(round, bool) else operator.index(round)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidInput(f"round must be a whole number of at least 0, got {round!r}")
    return number


def _check_stamp(time: str, *texts: str) -> None:
    if not isinstance(time, str) or not re.fullmatch(r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time):
        raise InvalidInput(f"expected a time such as 2026-03-01T12:00:00Z, got {time!r}")
    for text in texts:
        if not isinstance(text, str) or len(text) > MAX_TEXT_LENGTH or not text.isprintable():
            raise InvalidInput(f"expected one line of at most {MAX_TEXT_LENGTH} characters, got {str(text)[:40]!r}")


def entry_to_dict(entry: LedgerEntry) -> dict[str, Any]:
    """The entry as plain data."""
    content = {
        "round": entry.round,
        "purpose": str(entry.receipt.purpose),
        "events": [event_to_dict(event) for event in entry.receipt.events],
        "terms": {name: str(getattr(entry.receipt.terms, name)) for name in _TERMS},
    }
    return content | _nonempty(time=entry.time, run=entry.run, mechanism=entry.mechanism)


def amendment_to_dict(amendment: Amendment) -> dict[str, Any]:
    """The amendment as plain data, without its position."""
    content = {name: getattr(amendment, name) for name in ("what", "old", "new")}
    return content | _nonempty(reason=amendment.reason, time=amendment.time, run=amendment.run)


def _nonempty(**texts: str) -> dict[str, str]:
    return {name: text for name, text in texts.items() if text}


def entry_from_dict(data: Mapping[str, Any]) -> LedgerEntry:
    """The inverse of `entry_to_dict`."""
    terms = guarantee.GuaranteeTerms(
        adjacency=Adjacency(data["terms"]["adjacency"]),
        encoder=EncoderKind(data["terms"]["encoder"]),
        counts=guarantee.CountVisibility(data["terms"]["counts"]),
        basis=guarantee.SensitivityBasis(data["terms"]["basis"]),
        noise=guarantee.NoiseOrigin(data["terms"]["noise"]),
        # ledgers of earlier versions do not say: their noise was in floating point
        arithmetic=guarantee.Arithmetic(data["terms"].get("arithmetic", guarantee.Arithmetic.FLOATING)),
    )
    if not isinstance(data["events"], list) or type(data["round"]) is not int:
        raise InvalidInput(f"expected a round and a list of events, got {data['round']!r} and {data['events']!r}")
    # ledgers of earlier versions hold releases only, without a purpose
    purpose = parse_enum(ChargePurpose, data.get("purpose", ChargePurpose.RELEASE))
    events = tuple(event_from_dict(event) for event in data["events"])
    stamp = {name: data.get(name, "") for name in ("time", "run", "mechanism")}
    return LedgerEntry(data["round"], Receipt(events=events, terms=terms, purpose=purpose), **stamp)


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What one client has released, and what its budget still allows.

    Args:
        client: the client's name.
        budget: what it may spend in all; None records charges without a limit, for runs without privacy.
        accountant: the name of the accountant, one of `ACCOUNTANTS`.
        adjacency: the neighbouring relation of all receipts.
        entries: the charges so far.
        amendments: changes of the budget and of the client's name.

    Guarantee: after any sequence of `charge` calls that returned, the accountant's ε of all recorded
    events at the budget's δ is at most the budget's ε. A refused charge changes nothing. After `amend` the new
    budget is the claim.

    >>> from vpdr.privacy import GaussianEvent, guarantee
    >>> terms = guarantee.GuaranteeTerms(
    ...     adjacency="replace-one", encoder="public", counts="private", basis="proved"
    ... )
    >>> ledger = Ledger(client="a", budget=Budget(1.0, 1e-5), adjacency="replace-one")
    >>> charge = ledger.charge(Receipt(events=(GaussianEvent(20.0),), terms=terms), round=1)
    >>> round(ledger.epsilon_spent, 3), ledger.releases_left()
    (0.16, 27)
    """

    client: str
    budget: Budget | None
    accountant: str = "exact"
    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL
    entries: tuple[LedgerEntry, ...] = ()
    amendments: tuple[Amendment, ...] = ()

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __post_init__(self) -> None:
        get_accountant(self.accountant)
        self.adjacency = parse_enum(Adjacency, self.adjacency)
        self.entries, self.amendments = tuple(self.entries), tuple(self.amendments)

    def charge(self, receipt: Receipt, *, round: int, mechanism: str = "") -> Charge:
        """Record a charge, or refuse it; nothing may be released before this returns.

        Args:
            receipt: the privacy cost.
            round: the round of the release or of the training, a whole number of at least 0.
            mechanism: the name that a ledger file records; a ledger in memory does not.

        Returns:
            The charge, which opens one release with this receipt.

        Raises:
            BudgetExceeded: the total would exceed the budget.
            InvalidInput: the adjacency differs, or the release relies on training that was not charged.
        """
        with self._lock:
            self.check_charge(receipt, round=round)
            entry = LedgerEntry(round, receipt)
            self.entries = (*self.entries, entry)
        return Charge(receipt, entry.round, _made_by=_MADE_BY_LEDGER)

    def check_charge(self, receipt: Receipt, *, round: int) -> None:
        """Raise what `charge` would raise, and record nothing.

        Args:
            receipt, round: as there.
        """
        check_round(round)
        if receipt.terms.adjacency is not self.adjacency:
            raise InvalidInput(
                f"the ledger of {self.client} counts under {self.adjacency}, the release is stated under "
                f"{receipt.terms.adjacency}: costs under different adjacencies do not add up"
            )
        is_release = receipt.purpose is ChargePurpose.RELEASE
        if is_release and receipt.terms.encoder is EncoderKind.DP_TRAINED and not self.training_steps:
            raise InvalidInput(
                f"{self.client}: no training of the encoder is in this ledger; charge it before the release"
            )
        self._check_budget(receipt, round)

    def _check_budget(self, receipt: Receipt, round: int) -> None:
        if self.budget is None:
            return
        total = self._epsilon((*self.events, *receipt.events))
        if total > self.budget.epsilon:
            raise BudgetExceeded(
                f"{self.client}: epsilon would reach {total:.6g} in round {round}, "
                f"the budget is {self.budget.epsilon:g}; nothing was released"
            )

    def amend(self, *, epsilon: float | None = None, client: str | None = None, reason: str = "") -> None:
        """Change the ε of the budget or the client's name, as an amendment that the history keeps.

        Args:
            epsilon: the new ε, at the same δ: higher, or lower down to what is spent.
            client: the new name.
            reason: why, in one line.

        Raises:
            InvalidInput: nothing would change, less than what is spent is asked for, or there is no budget.

        Guarantee: the new budget is the claim from now on. After it was raised, the old one is no longer claimed
        for what was released before either.
        """
        with self._lock:
            changed: list[Amendment] = []
            if epsilon is not None:
                if self.budget is None:
                    raise InvalidInput(f"the ledger of {self.client} has no budget that could be changed")
                budget = Budget(float(epsilon), self.budget.delta)
                if budget.epsilon < self.epsilon_spent:
                    raise InvalidInput(
                        f"{self.client} has spent epsilon {self.epsilon_spent:.6g}; its budget cannot be {epsilon:g}"
                    )
                changed.append(self._amendment("epsilon", self.budget.epsilon, budget.epsilon, reason))
            if client is not None:
                if not client:
                    raise InvalidInput("expected a name for the client, got an empty one")
                changed.append(self._amendment("client", self.client, client, reason))
            if not changed:
                raise InvalidInput("expected a new epsilon or a new client, got neither")
            if epsilon is not None:
                self.budget = budget
            self.client = client or self.client
            self.amendments = (*self.amendments, *changed)

    def _amendment(self, what: str, old: float | str, new: float | str, reason: str) -> Amendment:
        if old == new:
            raise InvalidInput(f"the {what} of the ledger of {self.client} is {old} already")
        return Amendment(position=len(self.entries), what=what, old=old, new=new, reason=reason)

    @property
    def header(self) -> dict[str, Any]:
        """What identifies a ledger; only `amend` changes it, and ledgers with other headers are other ledgers."""
        return {name: getattr(self, name) for name in ("client", "budget", "accountant", "adjacency")}

    @property
    def description(self) -> str:
        """All of the header but the client, in a few words."""
        budget = self.budget
        amount = "no budget" if budget is None else f"epsilon {budget.epsilon:g}, delta {budget.delta:g}"
        return f"{amount}, {self.accountant} accountant, {self.adjacency}"

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all charges, in order."""
        return tuple(event for entry in self.entries for event in entry.receipt.events)

    @property
    def releases(self) -> list[LedgerEntry]:
        """The charges that are releases."""
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

    @property
    def first_header(self) -> dict[str, Any]:
        """The header before all amendments, as plain data."""
        first = {change.what: change.old for change in reversed(self.amendments)}
        budget = None if self.budget is None else {**asdict(self.budget), **_select(first, "epsilon")}
        names = {"client": self.client, **_select(first, "client")}
        return {**names, "budget": budget, "accountant": self.accountant, "adjacency": str(self.adjacency)}

    def lines(self) -> list[dict[str, Any]]:
        """Charges and amendments in their order, as plain data."""
        lines: list[dict[str, Any]] = []
        changes = list(self.amendments)
        for count in range(len(self.entries) + 1):
            while changes and changes[0].position <= count:
                lines.append({"kind": "amendment", **amendment_to_dict(changes.pop(0))})
            lines += [{"kind": "charge", **entry_to_dict(entry)} for entry in self.entries[count : count + 1]]
        return lines

    @property
    def chain(self) -> tuple[str, ...]:
        """A digest of the first header, and of each line with all that comes before it.

        Two histories with the same digest anywhere are equal up to there.
        """
        return chain_digests(self.first_header, self.lines())

    @property
    def head(self) -> str:
        """The last digest of the chain: noted elsewhere, it shows later whether the history was turned back."""
        return self.chain[-1]

    def history(self) -> Iterator[tuple[LedgerEntry, float]]:
        """Each entry with the ε spent up to and including it."""
        events: tuple[Event, ...] = ()
        for entry in self.entries:
            events = (*events, *entry.receipt.events)
            yield entry, self._epsilon(events)

    def releases_left(self, limit: int = 10_000) -> int | None:
        """How many more releases like the last one fit into the budget.

        Args:
            limit: no more than about this many are tried.

        Returns:
            The number of releases; None without a budget, before the first release, and if that cost nothing.
        """
        if self.budget is None or not self.releases or not self.releases[-1].receipt.events:
            return None
        last, max_epsilon = self.releases[-1].receipt.events, self.budget.epsilon

        def fits(count: int) -> bool:
            return self._epsilon((*self.events, *last * count)) <= max_epsilon

        low, high = 0, 1
        while high <= limit and fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def state_dict(self) -> dict[str, Any]:
        """The ledger as plain data, for checkpoints and files."""
        state = {
            "client": self.client,
            "budget": self.budget and asdict(self.budget),
            "accountant": self.accountant,
            "adjacency": str(self.adjacency),
            "entries": [entry_to_dict(entry) for entry in self.entries],
        }
        changes = [{"position": change.position, **amendment_to_dict(change)} for change in self.amendments]
        return {**state, "amendments": changes} if changes else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; a state of another ledger, or one that lacks an entry, is refused."""
        saved = Ledger.from_state_dict(state)
        if saved.header != self.header:
            raise InvalidInput(
                f"the saved ledger belongs to client {saved.client} with {saved.description}, "
                f"this one to {self.client} with {self.description}: budgets cannot be exchanged"
            )
        if saved.entries[: len(self.entries)] != self.entries:
            raise InvalidInput(
                f"the saved ledger of {self.client} lacks releases that were already made "
                f"({len(saved.entries)} saved, {len(self.entries)} made): a ledger never forgets"
            )
        self.entries, self.amendments = saved.entries, saved.amendments

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Ledger":
        """The inverse of `state_dict`; anything else is refused."""
        try:
            return cls(
                client=str(state["client"]),
                budget=None if state["budget"] is None else Budget(**state["budget"]),
                accountant=state["accountant"],
                adjacency=Adjacency(state["adjacency"]),
                entries=tuple(entry_from_dict(entry) for entry in state["entries"]),
                amendments=tuple(Amendment(**change) for change in state.get("amendments", ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InvalidInput(f"not the contents of a ledger: {error}") from error

    def _epsilon(self, events: tuple[Event, ...]) -> float:
        if self.budget is None:
            return math.inf if events else 0.0  # there is no δ at which to state an ε
        return get_accountant(self.accountant).epsilon(events, self.budget.delta)


def _select(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: values[name]} if name in values else {}


def chain_digests(first_header: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The digests of `Ledger.chain`."""
    heads = [_digest("", first_header)]
    for line in lines:
        heads.append(_digest(heads[-1], line))
    return tuple(heads)


def _digest(previous: str, content: Mapping[str, Any]) -> str:
    """A digest against damage, not a signature: whoever can write the file can also compute it."""
    return hashlib.sha256((previous + json.dumps(content, sort_keys=True)).encode()).hexdigest()
