"""The ledger of one client, in memory or on disk: every charge is recorded, and the total may not exceed the budget."""

import fcntl
import hashlib
import json
import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex

from vpdr.io import write_atomically, write_error
from vpdr.privacy import guarantee
from vpdr.privacy.accountants import Budget, Event, event_from_dict, event_to_dict, get_accountant
from vpdr.privacy.guarantee import Adjacency, ChargePurpose, EncoderKind, GuaranteeLevel, Receipt, parse_enum
from vpdr.validation import DamagedFile, InvalidInput, VpdrError


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
    """One charge: a release, or the training steps of one round."""

    round: int
    receipt: Receipt

    @property
    def is_release(self) -> bool:
        return self.receipt.purpose is ChargePurpose.RELEASE


def entry_to_dict(entry: LedgerEntry) -> dict[str, Any]:
    """The entry as plain data."""
    return {
        "round": int(entry.round),
        "purpose": str(entry.receipt.purpose),
        "events": [event_to_dict(event) for event in entry.receipt.events],
        "terms": {name: str(term) for name, term in asdict(entry.receipt.terms).items()},
    }


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
    entries: list[LedgerEntry] = field(default_factory=list)

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __post_init__(self) -> None:
        get_accountant(self.accountant)
        self.adjacency = parse_enum(Adjacency, self.adjacency)

    def charge(self, receipt: Receipt, *, round: int) -> Charge:
        """Record a charge, or refuse it; nothing may be released before this returns.

        Args:
            receipt: the privacy cost.
            round: the round of the release or of the training.

        Returns:
            The charge, which opens one release with this receipt.

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
            relies_on_training = (
                receipt.purpose is ChargePurpose.RELEASE and receipt.terms.encoder is EncoderKind.DP_TRAINED
            )
            if relies_on_training and not self.training_steps:
                raise InvalidInput(
                    f"{self.client}: no training of the encoder is in this ledger; charge it before the release"
                )
            self._check_budget(receipt, round)
            self.entries.append(LedgerEntry(round, receipt))
        return Charge(receipt, round, _made_by=_MADE_BY_LEDGER)

    def _check_budget(self, receipt: Receipt, round: int) -> None:
        if self.budget is None:
            return
        total = self._epsilon((*self.events, *receipt.events))
        if total > self.budget.epsilon:
            raise BudgetExceeded(
                f"{self.client}: epsilon would reach {total:.6g} in round {round}, "
                f"the budget is {self.budget.epsilon:g}; nothing was released"
            )

    @property
    def header(self) -> dict[str, Any]:
        """What identifies a ledger; it never changes, and ledgers with other headers are other ledgers."""
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
        return {
            "client": self.client,
            "budget": self.budget and asdict(self.budget),
            "accountant": self.accountant,
            "adjacency": str(self.adjacency),
            "entries": [entry_to_dict(entry) for entry in self.entries],
        }

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

    def _epsilon(self, events: tuple[Event, ...]) -> float:
        if self.budget is None:
            return math.inf if events else 0.0  # there is no δ at which to state an ε
        return get_accountant(self.accountant).epsilon(events, self.budget.delta)


LEDGER_FORMAT, LEDGER_VERSION = "vpdr-ledger", 1


class LedgerFile:
    """A ledger in a file: each charge reads the file, checks, and writes it back under a lock.

    Args:
        path: the file.

    Guarantee: a charge is on disk before `charge` returns, so a crash can lose an upload but never a
    charge. A damaged file is refused. A file cannot detect that it was deleted, or replaced by an older copy
    of itself; keep it where only the client's owner can write.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = LedgerFile.create(Path(directory) / "a.json", Ledger(client="a", budget=Budget(1.0, 1e-5)))
    ...     file.read().epsilon_spent
    0.0
    """

    def __init__(self, path: Path) -> None:
        # a symbolic link must not get a lock of its own
        self.path = Path(path).resolve()

    @classmethod
    def create(cls, path: Path, ledger: Ledger) -> "LedgerFile":
        """Write a new ledger; an existing file is refused, never overwritten."""
        file = cls(path)
        with file._lock_file():
            if file.path.exists():
                raise InvalidInput(f"{path} already holds a ledger; open it, or give the new one another name")
            file._write(ledger)
        return file

    @classmethod
    def open_or_create(cls, path: Path, ledger: Ledger) -> "LedgerFile":
        """Open a ledger, or write a new one where there is none.

        Args:
            path: the file.
            ledger: what is written; a ledger that exists must have its client, budget, accountant and
                adjacency, and all of its entries.

        Returns:
            The file.

        Raises:
            InvalidInput: the file cannot be read, or is that of another ledger.
            DamagedFile: its content cannot be trusted.
        """
        file = cls(path)
        with file._lock_file():
            if not file.path.exists():
                file._write(ledger)
                return file
        stored = file.read()
        if stored.header != ledger.header:
            raise InvalidInput(
                f"{path} was started for {stored.client} with {stored.description}, now "
                f"{ledger.client} with {ledger.description} is asked for: "
                "a budget is not changed by asking again"
            )
        if stored.entries[: len(ledger.entries)] != ledger.entries:
            raise InvalidInput(f"{path} lacks releases that were already made: a ledger never forgets")
        return file

    def read(self) -> Ledger:
        """The ledger on disk.

        Raises:
            InvalidInput: the file cannot be read.
            DamagedFile: its content cannot be trusted.
        """
        refusal = "it is refused, not treated as empty; restore it from a copy or retire this client's data"
        try:
            raw = self.path.read_bytes()
            links = self.path.stat().st_nlink
        except OSError as error:
            raise InvalidInput(f"cannot read {self.path}: {error.strerror}") from error
        if links > 1:
            raise DamagedFile(f"{self.path} has {links} names (hard links): a ledger must have one; remove the others")
        try:
            body = json.loads(raw)
            checksum = body.pop("seal")
            version = body.pop("format"), body.pop("version")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise DamagedFile(f"{self.path} is not a whole ledger file: {refusal}") from error
        if version != (LEDGER_FORMAT, LEDGER_VERSION):
            raise DamagedFile(
                f"{self.path} has format {version}, expected {(LEDGER_FORMAT, LEDGER_VERSION)}: {refusal}"
            )
        if checksum != _checksum({"format": LEDGER_FORMAT, "version": LEDGER_VERSION, **body}):
            raise DamagedFile(f"{self.path} does not match its own checksum: {refusal}")
        try:
            return Ledger.from_state_dict(body)
        except InvalidInput as error:
            raise DamagedFile(f"{self.path} cannot be read: {error}; {refusal}") from error

    def charge(self, receipt: Receipt, *, round: int) -> Charge:
        """As `Ledger.charge`, on disk.

        Args:
            receipt, round: as there.

        Returns:
            The charge, once it is on disk.

        Raises:
            BudgetExceeded, InvalidInput: as there, and InvalidInput if the file cannot be read.
            DamagedFile: the content of the file cannot be trusted.
        """
        with self._lock_file():
            ledger = self.read()
            charge = ledger.charge(receipt, round=round)
            self._write(ledger)
        return charge

    def _write(self, ledger: Ledger) -> None:
        write_atomically(self.path, encode_ledger(ledger), mode=0o600)

    @contextmanager
    def _lock_file(self) -> Iterator[None]:
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise write_error(self.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


@dataclass(slots=True, kw_only=True)
class FileBackedLedger(Ledger):
    """A ledger that writes every charge to its file: for clients with noise from the operating system.

    Guarantee: as `LedgerFile`. A checkpoint with fewer entries than the file is accepted, and the file wins;
    one with more is refused.
    """

    path: Path

    def charge(self, receipt: Receipt, *, round: int) -> Charge:
        """Charge the file, then read the entries back."""
        file = LedgerFile(self.path)
        charge = file.charge(receipt, round=round)
        self.entries = file.read().entries
        return charge

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check a checkpoint against the file; the entries of the file stay."""
        saved, stored = Ledger.from_state_dict(state), LedgerFile(self.path).read()
        if saved.header != self.header or stored.entries[: len(saved.entries)] != saved.entries:
            raise InvalidInput(f"{self.path} does not hold the releases of the checkpoint: a ledger never forgets")
        self.entries = stored.entries


def open_file_ledger(ledger: Ledger, path: Path) -> FileBackedLedger:
    """The same ledger in a file, new or continued."""
    file = LedgerFile.open_or_create(path, ledger)
    return FileBackedLedger(**ledger.header, entries=file.read().entries, path=file.path)


def encode_ledger(ledger: Ledger) -> bytes:
    """The ledger as the bytes of its file."""
    body = {"format": LEDGER_FORMAT, "version": LEDGER_VERSION, **ledger.state_dict()}
    return json.dumps({**body, "seal": _checksum(body)}, indent=1).encode() + b"\n"


def _checksum(body: dict[str, Any]) -> str:
    """A checksum against damage, not a signature: whoever can write the file can also compute it."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
