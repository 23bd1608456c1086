"""Regressions: ways around the guarantee that once existed."""

import json
import math
import os
import sys
import threading
from pathlib import Path

import pytest

from tests.unit.privacy.test_ledger import BUDGET, RECEIPT, TERMS, fresh
from vpdr import Budget, Ledger, LedgerFile
from vpdr.privacy import ACCOUNTANTS, BudgetExceeded, GaussianEvent, Receipt
from vpdr.privacy.accountants import PureEvent, RepeatedEvent
from vpdr.privacy.ledger_file import open_file_ledger
from vpdr.validation import DamagedFile, InvalidInput

EXACT, JOINT = ACCOUNTANTS["exact"], ACCOUNTANTS["joint"]


def test_threads_cannot_spend_the_same_budget() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            ledger = fresh()
            half = Receipt(events=(GaussianEvent(EXACT.noise_multiplier(BUDGET, 2)),), terms=TERMS)

            def spend(ledger: Ledger = ledger, half: Receipt = half) -> None:
                try:
                    ledger.charge(half, round=1)
                except BudgetExceeded:
                    return

            threads = [threading.Thread(target=spend) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(ledger.entries) == 2
    finally:
        sys.setswitchinterval(before)


def test_a_link_is_the_same_ledger(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    LedgerFile.create(real, fresh())
    link.symlink_to(real)
    LedgerFile(link).charge(RECEIPT, round=1)
    LedgerFile(real).charge(RECEIPT, round=2)
    assert link.is_symlink()
    assert len(LedgerFile(link).read().entries) == len(LedgerFile(real).read().entries) == 2
    os.link(real, tmp_path / "hard.json")
    with pytest.raises(DamagedFile, match="has 2 names"):
        LedgerFile(real).charge(RECEIPT, round=3)


def test_opening_never_drops_a_release(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    LedgerFile.create(path, fresh())
    known = fresh()
    known.charge(RECEIPT, round=1)
    with pytest.raises(InvalidInput, match="a ledger never forgets"):
        LedgerFile.open_or_create(path, known)
    with pytest.raises(InvalidInput, match="not changed by asking again"):
        LedgerFile.open_or_create(path, fresh(budget=Budget(1.0000004, 1e-5)))


def test_without_a_budget_a_release_has_infinite_epsilon() -> None:
    ledger = fresh(budget=None)
    assert ledger.epsilon_spent == 0
    ledger.charge(RECEIPT, round=1)
    assert ledger.epsilon_spent == math.inf


def test_a_file_backed_ledger_charges_on_disk_and_outlives_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    ledger = open_file_ledger(fresh(), path)
    early = ledger.state_dict()
    for t in (1, 2):
        ledger.charge(RECEIPT, round=t)
        assert LedgerFile(path).read().entries == ledger.entries
    again = open_file_ledger(fresh(), path)
    again.load_state_dict(early)  # a checkpoint from before: what was paid stays paid
    assert len(again.entries) == 2
    ahead = fresh()
    for t in (1, 2, 3):
        ahead.charge(RECEIPT, round=t)
    with pytest.raises(InvalidInput, match="a ledger never forgets"):
        again.load_state_dict(ahead.state_dict())


@pytest.mark.parametrize("share", [0.94, 0.999, 1 - 1e-6])
@pytest.mark.parametrize("rounds", [3, 7, 19, 20])
def test_the_last_planned_release_is_never_refused(share, rounds) -> None:
    budget = Budget(1.0, 1e-5)
    each = PureEvent(share / rounds)
    multiplier = EXACT.noise_multiplier(budget, rounds, RepeatedEvent(each, rounds))
    ledger = fresh()
    for t in range(rounds):
        ledger.charge(Receipt(events=(each, GaussianEvent(multiplier)), terms=TERMS), round=t + 1)
    assert ledger.epsilon_spent <= 1


@pytest.mark.parametrize("change", [{"events": ""}, {"events": {}}, {"round": float("inf")}, {"round": True}])
def test_forged_entries_are_refused(change) -> None:
    ledger = fresh()
    ledger.charge(RECEIPT, round=1)
    state = json.loads(json.dumps(ledger.state_dict()))
    state["entries"][0] |= change
    with pytest.raises(InvalidInput, match=r"not the contents of a ledger|expected a round"):
        fresh().load_state_dict(state)
