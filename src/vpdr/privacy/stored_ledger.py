"""A ledger that lives in its file: what a client with real noise pays into."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.errors import InvalidInput
from vpdr.privacy.ledger import Ledger
from vpdr.privacy.ledger_file import LedgerFile
from vpdr.privacy.terms import Receipt


@dataclass(slots=True, kw_only=True)
class StoredLedger(Ledger):
    """A ledger whose every charge is on disk before it returns.

    Guarantee: as `LedgerFile`. A checkpoint that knows fewer releases than the file is fine, the file
    wins; one that knows more is refused.
    """

    path: Path

    def charge(self, receipt: Receipt, *, round: int) -> None:
        """Pay on disk first."""
        file = LedgerFile(self.path)
        file.charge(receipt, round=round)
        self.entries = file.read().entries

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check a checkpoint against the file; what was paid stays paid."""
        saved, paid = Ledger.from_state(state), LedgerFile(self.path).read()
        if saved.heading != self.heading or paid.entries[: len(saved.entries)] != saved.entries:
            raise InvalidInput(
                f"{self.path} does not hold the releases of the checkpoint: a ledger never forgets"
            )
        self.entries = paid.entries


def stored(ledger: Ledger, path: Path) -> StoredLedger:
    """The same ledger in its file, started or continued."""
    file = LedgerFile.open_or_create(path, ledger)
    return StoredLedger(**ledger.heading.fields(), entries=file.read().entries, path=file.path)
