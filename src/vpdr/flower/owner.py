"""The files of a data owner: policy, ledger of the dataset, saved runs and logs."""

import fcntl
import hashlib
import io
import json
import math
import os
import secrets
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vpdr.errors import DamagedFile, InvalidInput
from vpdr.flower.policy import Policy, Refusal, RefusalCode, read_policy
from vpdr.io import json_safe, write_atomically, write_error
from vpdr.privacy import (
    Adjacency,
    Budget,
    BudgetExceeded,
    Event,
    GaussianEvent,
    GdpAccountant,
    Ledger,
    LedgerFile,
    Receipt,
    pure_epsilons,
)

REL_SLACK = 1e-12  # for the rounding of the sum of selections
MAX_SAVED_RUNS = 8  # older runs are deleted, so that a server cannot fill the disk
MAX_LINE_LENGTH, MAX_LOG_BYTES = 500, 10_000_000
_DIGEST_SIZE = hashlib.sha256().digest_size


class OwnerLedger(LedgerFile):
    """The ledger of the dataset, valid for servers that choose the noise of each run adaptively.

    Guarantee: where ε is split, all selections (pure events) stay within the part reserved for them and
    Gaussian noise within the rest. Then the total is (ε, δ)-DP even if later noise depends on earlier
    releases: a Gaussian privacy filter covers one part, and the pure part adds at most its own ε.
    """

    def __init__(self, path: Path, split_budget: Budget | None = None, selection_share: float = 0.0) -> None:
        super().__init__(path)
        self.split_budget, self.selection_share = split_budget, selection_share  # None: not split

    def charge(self, receipt: Receipt, *, round: int) -> None:
        """Record the release on disk, if both parts and their sum allow it.

        Raises:
            BudgetExceeded: nothing was recorded.
        """
        if self.split_budget is not None:
            self._check_split(self.split_budget, (*self.read().events, *receipt.events))
        super().charge(receipt, round=round)

    def _check_split(self, budget: Budget, events: tuple[Event, ...]) -> None:
        """Keep selections and Gaussian noise each within their part of ε."""
        reserved = self.selection_share * budget.epsilon * (1 + REL_SLACK)
        gaussian = tuple(event for event in events if isinstance(event, GaussianEvent))
        if math.fsum(pure_epsilons(events)) > reserved:
            raise BudgetExceeded(f"{self.path}: selections may spend at most epsilon {reserved:g}")
        if GdpAccountant().epsilon(gaussian, budget.delta) > budget.epsilon - reserved:
            raise BudgetExceeded(f"{self.path}: epsilon {reserved:g} of the budget is for selections only")


@dataclass(slots=True, kw_only=True)
class RunLedger(Ledger):
    """The ledger of one run; each release is also charged to the ledger of the dataset.

    Guarantee: nothing is released before it is in the owner's file, and the file's total never exceeds the
    policy's (ε, δ), for any number of runs and even if their saved state is lost.
    """

    owner_ledger: LedgerFile

    def charge(self, receipt: Receipt, *, round: int) -> None:
        """Check the budget of the run, charge the owner's ledger, then record the release."""
        self._check_budget(receipt, round)
        self.owner_ledger.charge(receipt, round=round)
        Ledger.charge(self, receipt, round=round)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a run; the owner's file must hold all of its releases."""
        Ledger.load_state_dict(self, state)
        if Counter(self.entries) - Counter(self.owner_ledger.read().entries):
            raise stale_ledger_refusal(self.owner_ledger)


def stale_ledger_refusal(owner_ledger: LedgerFile) -> Refusal:
    """The refusal for a ledger file that lacks recorded releases."""
    return Refusal(RefusalCode.LEDGER, f"{owner_ledger.path} lacks releases that were made: it is an older copy")


def open_owner_ledger(policy: Policy, path: Path) -> OwnerLedger:
    """Open or create the ledger of the dataset; a budget other than the first one is refused."""
    LedgerFile.open_or_create(
        path,
        Ledger(
            client=policy.name,
            budget=policy.limit,
            accountant=policy.budget.accountant,
            adjacency=Adjacency(policy.budget.adjacency),
        ),
    )
    return OwnerLedger(path, policy.limit if policy.budget.is_split else None, policy.budget.selection)


def run_ledger_for(owner_ledger: LedgerFile, ledger: Ledger) -> RunLedger:
    """The ledger of a run, also charged to the owner's."""
    return RunLedger(**ledger.header.asdict(), entries=list(ledger.entries), owner_ledger=owner_ledger)


class NodeStore:
    """The directory of one dataset: readable by its owner only, every file written atomically.

    Guarantee: the ledger is bound to one dataset and one budget; neither a restart, a second run, nor the
    loss of a run's state gives budget back. A ledger missing from a directory in use is detected, and an
    older copy of it while a later run's state exists; the removal of all files is not.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path).resolve()

    def policy(self) -> Policy:
        """Read the policy.

        Raises:
            Refusal: `no-policy`, if it cannot be read or others can write it.
        """
        file = self.path / "policy.toml"
        try:
            policy = read_policy(file)
        except InvalidInput as error:
            raise Refusal(RefusalCode.NO_POLICY, str(error)) from error
        if file.stat().st_mode & (stat.S_IWOTH | stat.S_IWGRP):
            raise Refusal(RefusalCode.NO_POLICY, f"others than its owner can write {file}; run chmod go-w on it")
        return policy

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory for one request; a second process is refused at once."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise write_error(self.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise Refusal(RefusalCode.BUSY, "another process is working for this client") from error
        finally:
            os.close(descriptor)

    def ledger(self, policy: Policy) -> OwnerLedger:
        """The ledger of the dataset; it is created once, before any other file here."""
        file, runs = self.path / "ledger.json", self.path / "runs"
        used = (self.path / "dataset.json").exists() or any(runs.glob("*.pt"))
        if used and not file.exists():
            raise Refusal(RefusalCode.LEDGER, f"{file} is missing; restore it, or stop using this dataset")
        return open_owner_ledger(policy, file)

    def bind_dataset(self, fingerprint: bytes) -> None:
        """Bind the directory to a dataset at first use; other data are refused afterwards."""
        file = self.path / "dataset.json"
        if not file.exists():
            key = secrets.token_bytes(32)
            binding = {"key": key.hex(), "seal": _keyed_hash(key, fingerprint)}
            write_atomically(file, json.dumps(binding).encode() + b"\n", mode=0o600)
            return
        try:
            binding = json.loads(file.read_bytes())
            digest = _keyed_hash(bytes.fromhex(binding["key"]), fingerprint)
            same = secrets.compare_digest(digest, binding["seal"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFile(f"{file} cannot be read: {error}") from error
        if not same:
            raise Refusal(RefusalCode.OTHER_DATA, f"{self.path} belongs to another dataset; use a new directory")

    def load(self, run: str) -> dict[str, Any] | None:
        """Load the state of one run; None before its first message."""
        file = self._state_file(run)
        if not file.exists():
            return None
        raw = file.read_bytes()
        if hashlib.sha256(raw[_DIGEST_SIZE:]).digest() != raw[:_DIGEST_SIZE]:
            raise DamagedFile(f"{file} is damaged; remove it to restart the personal model of this run")
        state: dict[str, Any] = torch.load(io.BytesIO(raw[_DIGEST_SIZE:]), weights_only=True)
        return state

    def save(self, run: str, state: Mapping[str, Any]) -> None:
        """Save the state of one run; only the latest `MAX_SAVED_RUNS` runs are kept."""
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        content = buffer.getvalue()
        file = self._state_file(run)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(file, hashlib.sha256(content).digest() + content, mode=0o600)
        states = sorted(file.parent.glob("*.pt"), key=lambda state: state.stat().st_mtime_ns)
        for old in states[:-MAX_SAVED_RUNS]:
            old.unlink(missing_ok=True)

    def log_error(self, message: str) -> None:
        """Append one line to the owner's log."""
        text = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {' '.join(message.split())[:MAX_LINE_LENGTH]}\n"
        self._append("refusals.log", text)

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Record all metrics for the owner, including those that are not sent."""
        self._append("measured.jsonl", json.dumps(json_safe(metrics)) + "\n")

    def _append(self, name: str, line: str) -> None:
        descriptor = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
            if file.tell() < MAX_LOG_BYTES:
                file.write(line)

    def _state_file(self, run: str) -> Path:
        return self.path / "runs" / f"{run}.pt"


def _keyed_hash(key: bytes, fingerprint: bytes) -> str:
    """A keyed digest, so that the file alone does not identify the dataset."""
    return hashlib.blake2b(fingerprint, key=key, digest_size=32).hexdigest()
