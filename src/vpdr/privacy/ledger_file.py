"""A ledger in a file: a history that is only continued, and refused where it was edited or turned back."""

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from vpdr.io import exclusive_lock, remove_unfinished, write_atomically, write_error
from vpdr.privacy.guarantee import Receipt
from vpdr.privacy.ledger import Amendment, Charge, Ledger, chain_digests, entry_from_dict
from vpdr.validation import DamagedFile, InvalidInput

LEDGER_FORMAT, LEDGER_VERSION = "vpdr-ledger", 2
_FIRST_VERSION = 1  # a list of entries with a checksum; it is read, and the next charge writes the present one
_REFUSAL = "it is refused, not treated as empty; restore it from a copy or retire this client's data"
_HEADER = ("client", "budget", "accountant", "adjacency")
Result = TypeVar("Result")


class LedgerFile:
    """A ledger in a file: each charge reads the file, checks it, and writes it back under locks.

    Args:
        path: the file.
        run: what the entries of this object name as the run that charged; empty: a random name for each object.

    Guarantee: a charge is on disk before `charge` returns, so a crash can lose an upload but never a
    charge. Entries form a chain of digests, so an edit, or a cut anywhere but at the end, is detected on reading.
    This object refuses a file that is not a continuation of all that it has seen before, such as an older copy or
    another ledger. A file alone cannot show that it was deleted, or replaced by an older copy of itself: note its
    `head` elsewhere, and keep it where only the client's owner can write.

    >>> import tempfile
    >>> from vpdr.privacy import Budget
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = LedgerFile.create(Path(directory) / "a.json", Ledger(client="a", budget=Budget(1.0, 1e-5)))
    ...     file.amend(epsilon=2.0, reason="second study")
    ...     file.read().epsilon_left
    2.0
    """

    def __init__(self, path: Path, *, run: str = "") -> None:
        # a symbolic link must not get a lock of its own
        self.path, self.run = Path(path).resolve(), run or secrets.token_hex(4)
        self._seen: tuple[str, ...] = ()  # the longest chain that this object has read or written

    @classmethod
    def create(cls, path: Path, ledger: Ledger, *, run: str = "") -> "LedgerFile":
        """Write a new ledger; an existing file is refused, never overwritten."""
        file = cls(path, run=run)
        with file._lock():
            if file.path.exists():
                raise InvalidInput(f"{path} already holds a ledger; open it, or give the new one another name")
            file._write(ledger)
        return file

    @classmethod
    def open_or_create(cls, path: Path, ledger: Ledger, *, run: str = "") -> "LedgerFile":
        """Open a ledger, or write a new one where there is none.

        Args:
            path: the file.
            ledger: what is written; a ledger that exists must have its client, budget, accountant and
                adjacency, and all of its entries.
            run: as for the class.

        Returns:
            The file.

        Raises:
            InvalidInput: the file cannot be read, or is that of another ledger.
            DamagedFile: its content cannot be trusted.
        """
        file = cls(path, run=run)
        with file._lock():
            if not file.path.exists():
                file._write(ledger)
                return file
        stored = file.read()
        if stored.header != ledger.header:
            raise InvalidInput(
                f"{path} was started for {stored.client} with {stored.description}, now "
                f"{ledger.client} with {ledger.description} is asked for: "
                "a budget is not changed by asking again; use vpdr ledger amend"
            )
        known = [entry.content for entry in ledger.entries]
        if [entry.content for entry in stored.entries[: len(known)]] != known:
            raise InvalidInput(f"{path} lacks releases that were already made: a ledger never forgets")
        return file

    def read(self) -> Ledger:
        """The ledger on disk.

        Raises:
            InvalidInput: the file cannot be read.
            DamagedFile: its content cannot be trusted, or does not continue what this object has seen.
        """
        return self._read()[0]

    def charge(self, receipt: Receipt, *, round: int, mechanism: str = "") -> Charge:
        """As `Ledger.charge`, on disk.

        Args:
            receipt, round, mechanism: as there.

        Returns:
            The charge, once it is on disk.

        Raises:
            BudgetExceeded, InvalidInput: as there, and InvalidInput if the file cannot be read.
            DamagedFile: as for `read`.
        """
        return self._continue(lambda ledger: ledger.charge(receipt, round=round), mechanism)

    def amend(self, *, epsilon: float | None = None, client: str | None = None, reason: str = "") -> None:
        """As `Ledger.amend`, on disk.

        Args:
            epsilon, client, reason: as there.

        Raises:
            InvalidInput: as there, or the file cannot be read.
            DamagedFile: as for `read`.
        """
        self._continue(lambda ledger: ledger.amend(epsilon=epsilon, client=client, reason=reason))

    def _continue(self, change: Callable[[Ledger], Result], mechanism: str = "") -> Result:
        """Change the ledger on disk; what is new gets the time and the run."""
        with self._lock():
            ledger, version = self._read()
            entries, amendments = ledger.entries, ledger.amendments
            if version != LEDGER_VERSION:
                note = Amendment(position=len(entries), what="format", old=version, new=LEDGER_VERSION)
                ledger.amendments = (*amendments, note)
            result = change(ledger)
            time, new = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), slice(len(entries), None)
            charged = [replace(each, time=time, run=self.run, mechanism=mechanism) for each in ledger.entries[new]]
            changed = [replace(each, time=time, run=self.run) for each in ledger.amendments[len(amendments) :]]
            ledger.entries, ledger.amendments = (*entries, *charged), (*amendments, *changed)
            self._write(ledger)
        return result

    def _read(self) -> tuple[Ledger, int]:
        """The ledger on disk, and the version of its format."""
        seen = self._seen  # before the file is read, since another thread may charge in between
        try:
            raw = self.path.read_bytes()
            links = self.path.stat().st_nlink
        except OSError as error:
            raise InvalidInput(f"cannot read {self.path}: {error.strerror}") from error
        if links > 1:
            raise DamagedFile(f"{self.path} has {links} names (hard links): a ledger must have one; remove the others")
        ledger, version = self._decode(raw)
        chain = ledger.chain
        if seen[:1] and seen[0] != chain[0]:
            raise DamagedFile(
                f"{self.path} is another ledger now, that of {ledger.client} with {ledger.description}; "
                "put the file back that this process has opened"
            )
        if chain[: len(seen)] != seen:
            raise DamagedFile(
                f"{self.path} lacks entries that this process has seen: it is an older copy; put the newest file back"
            )
        if len(chain) > len(self._seen):
            self._seen = chain
        return ledger, version

    def _decode(self, raw: bytes) -> tuple[Ledger, int]:
        try:
            body = json.loads(raw)
            version = body["version"]
            if (body["format"], version) not in ((LEDGER_FORMAT, _FIRST_VERSION), (LEDGER_FORMAT, LEDGER_VERSION)):
                raise DamagedFile(
                    f"{self.path} has format {(body['format'], version)}, "
                    f"expected {(LEDGER_FORMAT, LEDGER_VERSION)}: {_REFUSAL}"
                )
            if version == _FIRST_VERSION:
                checksum = body.pop("seal")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise DamagedFile(f"{self.path} is not a whole ledger file: {_REFUSAL}") from error
        try:
            if version == _FIRST_VERSION:
                # as that version computed it
                is_whole = checksum == hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
                ledger = Ledger.from_state_dict(body)
            else:
                ledger = _ledger_from_body(body)
                is_whole = _body_of(ledger) == body  # every digest of the chain among the rest
        except InvalidInput as error:
            raise DamagedFile(f"{self.path} cannot be read: {error}; {_REFUSAL}") from error
        if not is_whole:
            raise DamagedFile(f"{self.path} does not match its own checksum: {_REFUSAL}")
        return ledger, version

    def _write(self, ledger: Ledger) -> None:
        remove_unfinished(self.path)  # by a process that was killed: nobody else writes under the lock
        write_atomically(self.path, encode_ledger(ledger), mode=0o600)
        self._seen = ledger.chain

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold a lock file, and the ledger's own file where there is one.

        Either can be removed or replaced; a charge replaces the second. Two processes could be inside together only
        if both were exchanged in the same moment.
        """
        with ExitStack() as locks:
            try:
                locks.enter_context(exclusive_lock(self.path.with_name(self.path.name + ".lock")))
                if self.path.exists():
                    locks.enter_context(exclusive_lock(self.path, create=False))
            except OSError as error:
                raise write_error(self.path, error) from error
            yield


@dataclass(slots=True, kw_only=True)
class FileBackedLedger(Ledger):
    """A ledger that writes every charge to its file: for clients with noise from the operating system.

    Guarantee: as `LedgerFile`. A checkpoint with fewer entries than the file is accepted, and the file wins;
    one with more is refused.
    """

    file: LedgerFile

    def charge(self, receipt: Receipt, *, round: int, mechanism: str = "") -> Charge:
        """Charge the file, then read it back."""
        charge = self.file.charge(receipt, round=round, mechanism=mechanism)
        self._mirror(self.file.read())
        return charge

    def amend(self, *, epsilon: float | None = None, client: str | None = None, reason: str = "") -> None:
        """Change the file, then read it back."""
        self.file.amend(epsilon=epsilon, client=client, reason=reason)
        self._mirror(self.file.read())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check a checkpoint against the file; what is in the file stays."""
        saved, stored = Ledger.from_state_dict(state), self.file.read()
        if saved.head not in stored.chain:
            raise InvalidInput(f"{self.file.path} does not hold the releases of the checkpoint: a ledger never forgets")
        self._mirror(stored)

    def _mirror(self, stored: Ledger) -> None:
        self.client, self.budget = stored.client, stored.budget
        self.entries, self.amendments = stored.entries, stored.amendments


def open_file_ledger(ledger: Ledger, path: Path, *, run: str = "") -> FileBackedLedger:
    """The same ledger in a file, new or continued."""
    file = LedgerFile.open_or_create(path, ledger, run=run)
    stored = file.read()
    return FileBackedLedger(**stored.header, entries=stored.entries, amendments=stored.amendments, file=file)


def encode_ledger(ledger: Ledger) -> bytes:
    """The ledger as the bytes of its file."""
    return json.dumps(_body_of(ledger), indent=1).encode() + b"\n"


def _body_of(ledger: Ledger) -> dict[str, Any]:
    """The content of the file of a ledger."""
    header, lines = ledger.first_header, ledger.lines()
    heads = chain_digests(header, lines)
    entries = [{**line, "hash": head} for line, head in zip(lines, heads[1:], strict=True)]
    return {"format": LEDGER_FORMAT, "version": LEDGER_VERSION, **header, "entries": entries, "head": heads[-1]}


def _ledger_from_body(body: Mapping[str, Any]) -> Ledger:
    """The ledger of a file of the present version; its digests are checked by the caller."""
    try:
        header = {name: body[name] for name in _HEADER}
        current = {"client": header["client"], "epsilon": header["budget"] and header["budget"]["epsilon"]}
        entries, amendments = [], []
        for line in body["entries"]:
            if line["kind"] == "charge":
                entries.append(entry_from_dict(line))
                continue
            content = {name: value for name, value in line.items() if name not in ("kind", "hash")}
            change = Amendment(position=len(entries), **content)
            if change.what in current and current[change.what] != change.old:
                raise InvalidInput(f"the {change.what} was {current[change.what]}, not {change.old}")
            current[change.what] = change.new
            amendments.append(change)
        if header["budget"] is not None:
            header["budget"] = {**header["budget"], "epsilon": current["epsilon"]}
        ledger = Ledger.from_state_dict({**header, "client": current["client"], "entries": []})
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidInput(f"not the contents of a ledger: {error}") from error
    ledger.entries, ledger.amendments = tuple(entries), tuple(amendments)
    return ledger
