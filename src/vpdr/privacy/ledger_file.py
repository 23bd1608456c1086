"""A ledger on the client's own disk, which no restart, crash or second process can reset."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vpdr.errors import DamagedFile, InvalidInput
from vpdr.files import cannot_write, write_atomically
from vpdr.privacy.ledger import Ledger
from vpdr.privacy.terms import Receipt

FORMAT, VERSION = "vpdr-ledger", 1


class LedgerFile:
    """The disk holds the truth; each charge reads it, checks, and writes it back under a lock.

    Guarantee: a charge is on disk before `charge` returns, so a crash can lose an upload but never a
    cost. A damaged file is refused. What a file alone cannot notice: being deleted, or being replaced
    by an older copy of itself; keep it where only the client's owner can write.
    """

    def __init__(self, path: Path) -> None:
        # one file, one name: a link beside it would get a ledger and a lock of its own
        self.path = Path(path).resolve()

    @classmethod
    def create(cls, path: Path, ledger: Ledger) -> "LedgerFile":
        """Start a ledger; an existing one is never overwritten."""
        file = cls(path)
        with file._locked():
            if file.path.exists():
                raise InvalidInput(
                    f"{path} already holds a ledger; open it, or give the new one another name"
                )
            file._write(ledger)
        return file

    @classmethod
    def open_or_create(cls, path: Path, ledger: Ledger) -> "LedgerFile":
        """Continue a ledger that was started under the same heading, or start it."""
        file = cls(path)
        with file._locked():
            if not file.path.exists():
                file._write(ledger)
                return file
        found = file.read()
        if found.heading != ledger.heading:
            raise InvalidInput(
                f"{path} was started for {found.client} with {found.heading.terms}, now {ledger.client} with "
                f"{ledger.heading.terms} is asked for: a budget is not changed by asking again"
            )
        if found.entries[: len(ledger.entries)] != ledger.entries:
            raise InvalidInput(f"{path} lacks releases that were already made: a ledger never forgets")
        return file

    def read(self) -> Ledger:
        """The ledger as it stands on disk."""
        try:
            raw = self.path.read_bytes()
            names = self.path.stat().st_nlink
        except OSError as error:
            raise InvalidInput(f"cannot read {self.path}: {error.strerror}") from error
        if names > 1:
            raise DamagedFile(
                f"{self.path} has {names} names (hard links): a ledger must have one; remove the others"
            )
        return _decoded(raw, self.path)

    def charge(self, receipt: Receipt, *, round: int) -> None:
        """Record the release on disk, or refuse it; only after this returns may anything be handed over."""
        with self._locked():
            ledger = self.read()
            ledger.charge(receipt, round=round)
            self._write(ledger)

    def _write(self, ledger: Ledger) -> None:
        write_atomically(self.path, encoded(ledger), mode=0o600)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        beside = self.path.with_name(self.path.name + ".lock")
        try:
            descriptor = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def encoded(ledger: Ledger) -> bytes:
    """The ledger as the bytes of its file."""
    body = {"format": FORMAT, "version": VERSION, **ledger.state_dict()}
    return json.dumps({**body, "seal": _seal(body)}, indent=1).encode() + b"\n"


def _decoded(raw: bytes, path: Path) -> Ledger:
    refusal = "it is refused, not treated as empty; restore it from a copy or retire this client's data"
    try:
        body = json.loads(raw)
        seal = body.pop("seal")
        heading = body.pop("format"), body.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedFile(f"{path} is not a whole ledger file: {refusal}") from error
    if heading != (FORMAT, VERSION):
        raise DamagedFile(f"{path} has format {heading}, expected {(FORMAT, VERSION)}: {refusal}")
    if seal != _seal({"format": FORMAT, "version": VERSION, **body}):
        raise DamagedFile(f"{path} does not match its own checksum: {refusal}")
    try:
        return Ledger.from_state(body)
    except InvalidInput as error:
        raise DamagedFile(f"{path} cannot be read: {error}; {refusal}") from error


def _seal(body: dict[str, Any]) -> str:
    """A checksum against damage; it is no signature, whoever can write the file can also seal it."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
