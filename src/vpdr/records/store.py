"""The folder of one run: plan, checkpoint, record, table of rounds and ledgers."""

import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from vpdr.data import Manifest
from vpdr.data.manifest_file import write_manifest
from vpdr.errors import DamagedFile, InvalidInput
from vpdr.files import cannot_write, write_atomically
from vpdr.plan.plan import Plan
from vpdr.privacy import Ledger
from vpdr.privacy.ledger_file import encoded
from vpdr.privacy.stored_ledger import StoredLedger
from vpdr.records.toml_text import toml_text

_DIGEST = hashlib.sha256().digest_size


class RunFolder:
    """Where one run keeps what it needs and what it found; every file is written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.record = self.path / "record.json"
        self.checkpoint = self.path / "checkpoint.pt"
        self.ledgers = self.path / "ledgers"
        self.failure = self.path / "failure.txt"  # why it ended early, until it succeeds

    def look(self, plan: Plan, *, resume: bool) -> dict[str, Any] | None:
        """The checkpoint to go on from, if there is one; a folder that holds a run is not entered anew."""
        if not resume and (self.record.exists() or self.checkpoint.exists()):
            raise InvalidInput(
                f"{self.path} already holds a run; add --resume to go on, or choose another --out"
            )
        return self.load_checkpoint(plan) if resume else None

    def prepare(self, plan: Plan, manifest: Manifest | None = None) -> None:
        """Make the folder, and write down what will run in it, on which rows."""
        try:
            self.ledgers.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        write_atomically(self.path / "plan.toml", toml_text(plan.to_data()).encode())
        if manifest is not None:
            write_manifest(self.path / "split.json", manifest)

    def save_checkpoint(self, plan: Plan, state: Mapping[str, Any], ledgers: Sequence[Ledger]) -> None:
        """All that is needed to go on, and the ledgers beside it for people to read."""
        buffer = io.BytesIO()
        torch.save({"identity": plan.identity, **state}, buffer)
        content = buffer.getvalue()
        self.save_ledgers(ledgers)
        write_atomically(self.checkpoint, hashlib.sha256(content).digest() + content, mode=0o600)

    def load_checkpoint(self, plan: Plan) -> dict[str, Any] | None:
        """The saved state of this very plan, or None where there is none."""
        if not self.checkpoint.exists():
            return None
        raw = self.checkpoint.read_bytes()
        digest, content = raw[:_DIGEST], raw[_DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            raise DamagedFile(f"{self.checkpoint} is damaged; remove the folder and run again")
        state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
        if state["identity"] != plan.identity:
            raise InvalidInput(
                f"{self.checkpoint} belongs to another plan ({state['identity']}, not {plan.identity}); "
                "resume with the settings in plan.toml beside it, or choose another --out"
            )
        return state

    def finished(self, plan: Plan) -> dict[str, Any]:
        """The record of this very plan, which has come to its end."""
        record = read_record(self.record)
        if record.get("identity") != plan.identity:
            raise InvalidInput(
                f"{self.record} belongs to another plan ({record.get('identity')}, not {plan.identity}); "
                "choose another --out"
            )
        return record

    def save_ledgers(self, ledgers: Sequence[Ledger]) -> None:
        """One file a client, for `vpdr ledger`; a ledger that lives in its file is there already."""
        for ledger in ledgers:
            if not isinstance(ledger, StoredLedger):
                write_atomically(self.ledgers / f"{ledger.client}.json", encoded(ledger), mode=0o600)

    def save_record(self, record: Mapping[str, Any]) -> None:
        """The record and the table of its rounds; the checkpoint is then no longer needed to read results."""
        write_atomically(self.path / "rounds.csv", rounds_table(record).encode())
        write_atomically(self.record, json_bytes(record), mode=mode_of(record))


def mode_of(*records: Mapping[str, Any]) -> int:
    """Who may read what is written of these runs: what attacks found about samples is the owner's alone."""
    return 0o600 if any(record.get("attacks") for record in records) else 0o666


def read_record(path: Path) -> dict[str, Any]:
    """A record from its file."""
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DamagedFile(f"{path} is not whole; remove it and run again") from error
    return record


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """JSON that every parser reads: what is not a number is null."""
    return json.dumps(plain(content), indent=1, allow_nan=False).encode() + b"\n"


def plain(value: Any) -> Any:
    """What JSON can say; a number that it does not have is null."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rounds_table(record: Mapping[str, Any]) -> str:
    """One line for each round and client, one column for each metric."""
    rows = []
    for each in record["rounds"]:
        for client, content in each["clients"].items():
            flat = dict(_flat(content))
            rows.append({"round": each["round"], "client": client, **flat})
    return rows_as_csv(rows)


def rows_as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with a column for every name that one of them has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in content.items():
        name = f"{prefix}{key}"
        found += _flat(value, f"{name}.") if isinstance(value, Mapping) else [(name, value)]
    return found
