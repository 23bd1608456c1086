"""Ledgers on disk, which no restart, crash or second process can reset."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.errors import DamagedFile, InvalidInput
from vpdr.io import write_atomically, write_error
from vpdr.privacy.ledger import Ledger, Receipt

LEDGER_FORMAT, LEDGER_VERSION = "vpdr-ledger", 1


class LedgerFile:
    """A ledger in a file: each charge reads the file, checks, and writes it back under a lock.

    Args:
        path: the file.

    Guarantee: a charge is on disk before `charge` returns, so a crash can lose an upload but never a
    charge. A damaged file is refused. A file cannot detect that it was deleted, or replaced by an older copy
    of itself; keep it where only the client's owner can write.

    >>> import tempfile
    >>> from vpdr.privacy import Budget
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
        """Open a ledger that was started with the same header, or write a new one.

        Raises:
            InvalidInput: the file has another header, or lacks entries of `ledger`.
        """
        file = cls(path)
        with file._lock_file():
            if not file.path.exists():
                file._write(ledger)
                return file
        stored = file.read()
        if stored.header != ledger.header:
            raise InvalidInput(
                f"{path} was started for {stored.client} with {stored.header.description}, now "
                f"{ledger.client} with {ledger.header.description} is asked for: "
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
        try:
            raw = self.path.read_bytes()
            links = self.path.stat().st_nlink
        except OSError as error:
            raise InvalidInput(f"cannot read {self.path}: {error.strerror}") from error
        if links > 1:
            raise DamagedFile(f"{self.path} has {links} names (hard links): a ledger must have one; remove the others")
        return _decode_ledger(raw, self.path)

    def charge(self, receipt: Receipt, *, round: int) -> None:
        """Record a charge on disk, or refuse it as `Ledger.charge` does; nothing may be released before."""
        with self._lock_file():
            ledger = self.read()
            ledger.charge(receipt, round=round)
            self._write(ledger)

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

    def charge(self, receipt: Receipt, *, round: int) -> None:
        """Charge the file, then read the entries back."""
        file = LedgerFile(self.path)
        file.charge(receipt, round=round)
        self.entries = file.read().entries

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check a checkpoint against the file; the entries of the file stay."""
        saved, stored = Ledger.from_state_dict(state), LedgerFile(self.path).read()
        if saved.header != self.header or stored.entries[: len(saved.entries)] != saved.entries:
            raise InvalidInput(f"{self.path} does not hold the releases of the checkpoint: a ledger never forgets")
        self.entries = stored.entries


def open_file_ledger(ledger: Ledger, path: Path) -> FileBackedLedger:
    """The same ledger in a file, new or continued."""
    file = LedgerFile.open_or_create(path, ledger)
    return FileBackedLedger(**ledger.header.asdict(), entries=file.read().entries, path=file.path)


def encode_ledger(ledger: Ledger) -> bytes:
    """The ledger as the bytes of its file."""
    body = {"format": LEDGER_FORMAT, "version": LEDGER_VERSION, **ledger.state_dict()}
    return json.dumps({**body, "seal": _checksum(body)}, indent=1).encode() + b"\n"


def _decode_ledger(raw: bytes, path: Path) -> Ledger:
    refusal = "it is refused, not treated as empty; restore it from a copy or retire this client's data"
    try:
        body = json.loads(raw)
        seal = body.pop("seal")
        version = body.pop("format"), body.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedFile(f"{path} is not a whole ledger file: {refusal}") from error
    if version != (LEDGER_FORMAT, LEDGER_VERSION):
        raise DamagedFile(f"{path} has format {version}, expected {(LEDGER_FORMAT, LEDGER_VERSION)}: {refusal}")
    if seal != _checksum({"format": LEDGER_FORMAT, "version": LEDGER_VERSION, **body}):
        raise DamagedFile(f"{path} does not match its own checksum: {refusal}")
    try:
        return Ledger.from_state_dict(body)
    except InvalidInput as error:
        raise DamagedFile(f"{path} cannot be read: {error}; {refusal}") from error


def _checksum(body: dict[str, Any]) -> str:
    """A checksum against damage, not a signature: whoever can write the file can also compute it."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
