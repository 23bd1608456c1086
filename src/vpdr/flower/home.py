"""The folder of a client's owner: policy, ledger, personal models, and a note of every refusal."""

import fcntl
import hashlib
import io
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from vpdr.errors import DamagedFile, InvalidInput
from vpdr.files import cannot_write, write_atomically
from vpdr.flower.policy import Policy, read_policy
from vpdr.flower.purse import Purse, purse_of
from vpdr.flower.refusals import Code, Refused
from vpdr.records.store import plain

RUNS_KEPT = 8  # a server that starts run after run must not fill the owner's disk
LONGEST_NOTE, LONGEST_LOG = 500, 10_000_000  # nor one that asks for the impossible again and again
_DIGEST = hashlib.sha256().digest_size


class Home:
    """One dataset's home: files of the owner, for the owner alone, written whole or not at all.

    Guarantee: the ledger is bound to one dataset and one budget; neither a restart, a second run, nor the
    loss of a run's state gives anything back. A ledger that is gone from a folder in use is noticed, and an
    older copy of it as long as a later run's state is there; the removal of all files is not.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path).resolve()

    def policy(self) -> Policy:
        """What the owner allows; without a policy that can be read nothing is allowed."""
        file = self.path / "policy.toml"
        try:
            policy = read_policy(file)
        except InvalidInput as error:
            raise Refused(Code.NO_POLICY, str(error)) from error
        if file.stat().st_mode & (stat.S_IWOTH | stat.S_IWGRP):
            raise Refused(Code.NO_POLICY, f"others than its owner can write {file}: chmod go-w it")
        return policy

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One answer at a time: a second process is sent away, not kept waiting."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise Refused(Code.BUSY, "another process answers for this client") from error
        finally:
            os.close(descriptor)

    def purse(self, policy: Policy) -> Purse:
        """The dataset's ledger; it is started once, before anything else is written here."""
        file, runs = self.path / "ledger.json", self.path / "runs"
        used = (self.path / "dataset.json").exists() or any(runs.glob("*.pt"))
        if used and not file.exists():
            raise Refused(Code.LEDGER, f"{file} was here and is gone: restore it, or retire these data")
        return purse_of(policy, file)

    def bind(self, fingerprint: bytes) -> None:
        """Tie the folder to a dataset at first use; with other data it is refused ever after."""
        file = self.path / "dataset.json"
        if not file.exists():
            key = secrets.token_bytes(32)
            told = {"key": key.hex(), "seal": _sealed(key, fingerprint)}
            write_atomically(file, json.dumps(told).encode() + b"\n", mode=0o600)
            return
        try:
            told = json.loads(file.read_bytes())
            same = secrets.compare_digest(_sealed(bytes.fromhex(told["key"]), fingerprint), told["seal"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFile(f"{file} cannot be read: {error}") from error
        if not same:
            raise Refused(
                Code.OTHER_DATA, f"{self.path} holds the budget of another dataset; use a new folder"
            )

    def load(self, run: str) -> dict[str, Any] | None:
        """The state of one run, or None before its first message."""
        file = self._state(run)
        if not file.exists():
            return None
        raw = file.read_bytes()
        if hashlib.sha256(raw[_DIGEST:]).digest() != raw[:_DIGEST]:
            raise DamagedFile(f"{file} is damaged; remove it to start this run's personal model anew")
        state: dict[str, Any] = torch.load(io.BytesIO(raw[_DIGEST:]), weights_only=True)
        return state

    def save(self, run: str, state: Mapping[str, Any]) -> None:
        """The state of one run; the oldest of many runs makes room."""
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        content = buffer.getvalue()
        self._state(run).parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(self._state(run), hashlib.sha256(content).digest() + content, mode=0o600)
        kept = sorted(self._state(run).parent.glob("*.pt"), key=lambda file: file.stat().st_mtime_ns)
        for old in kept[:-RUNS_KEPT]:
            old.unlink(missing_ok=True)

    def note(self, what: str) -> None:
        """Tell the owner, and nobody else, what went wrong."""
        text = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {' '.join(what.split())[:LONGEST_NOTE]}\n"
        self._append("refusals.log", text)

    def keep(self, measured: Mapping[str, Any]) -> None:
        """The client's own measurements, for the owner, whatever the server is told of them."""
        self._append("measured.jsonl", json.dumps(plain(measured)) + "\n")

    def _append(self, name: str, line: str) -> None:
        descriptor = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
            if file.tell() < LONGEST_LOG:
                file.write(line)

    def _state(self, run: str) -> Path:
        return self.path / "runs" / f"{run}.pt"


def _sealed(key: bytes, fingerprint: bytes) -> str:
    """Keyed, so that the file alone does not say which dataset it is."""
    return hashlib.blake2b(fingerprint, key=key, digest_size=32).hexdigest()
