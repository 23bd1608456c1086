"""The ledger: it refuses in time, forgets nothing and trusts no damaged file."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from vpdr import Adjacency, Budget, BudgetExceeded, Ledger, LedgerFile
from vpdr.privacy import ACCOUNTANTS, GaussianEvent, NotPrivateEvent
from vpdr.privacy.accountants import PureEvent
from vpdr.privacy.guarantee import (
    Arithmetic,
    CountVisibility,
    EncoderKind,
    GuaranteeLevel,
    GuaranteeTerms,
    Receipt,
    SensitivityBasis,
)
from vpdr.validation import DamagedFile, InvalidInput

BUDGET, ROUNDS = Budget(1.0, 1e-5), 20
TERMS = GuaranteeTerms(
    adjacency=Adjacency.REPLACE_SAME_LABEL,
    encoder=EncoderKind.PUBLIC,
    counts=CountVisibility.PUBLIC,
    basis=SensitivityBasis.PROVED,
    arithmetic=Arithmetic.INTEGER,
)
MULTIPLIER = ACCOUNTANTS["exact"].noise_multiplier(BUDGET, ROUNDS)
RECEIPT = Receipt(events=(GaussianEvent(MULTIPLIER),), terms=TERMS)


def fresh(**settings: object) -> Ledger:
    return Ledger(client="amazon", **{"budget": BUDGET, **settings})


def test_a_refused_charge_changes_nothing() -> None:
    ledger = fresh()
    for t in range(ROUNDS):
        ledger.charge(RECEIPT, round=t + 1)
    before = ledger.entries
    with pytest.raises(BudgetExceeded, match="in round 21, the budget is 1; nothing was released"):
        ledger.charge(RECEIPT, round=21)
    assert ledger.entries == before
    assert ledger.epsilon_left >= 0
    assert ledger.releases_left() == 0


def test_history_grows_and_ends_at_the_total() -> None:
    ledger = fresh()
    for t in range(5):
        ledger.charge(RECEIPT, round=t + 1)
    spent = [so_far for _, so_far in ledger.history()]
    assert spent == sorted(spent)
    assert spent[-1] == ledger.epsilon_spent
    assert ledger.releases_left() == 15


def test_the_level_is_that_of_the_weakest_release() -> None:
    ledger = fresh()
    assert ledger.level is GuaranteeLevel.PROVED
    ledger.charge(RECEIPT, round=1)
    assert ledger.level is GuaranteeLevel.PROVED
    personal = GuaranteeTerms(
        adjacency=TERMS.adjacency,
        encoder=EncoderKind.PERSONAL,
        counts=CountVisibility.PUBLIC,
        basis=SensitivityBasis.PROVED,
    )
    ledger.charge(Receipt(events=RECEIPT.events, terms=personal), round=2)
    assert ledger.level is GuaranteeLevel.CONDITIONAL
    published = GuaranteeTerms(
        adjacency=TERMS.adjacency,
        encoder=EncoderKind.PUBLIC,
        counts=CountVisibility.PUBLIC,
        basis=SensitivityBasis.AS_PUBLISHED,
    )
    ledger.charge(Receipt(events=RECEIPT.events, terms=published), round=3)
    assert ledger.level is GuaranteeLevel.AS_PUBLISHED


def test_costs_under_another_adjacency_are_not_added() -> None:
    with pytest.raises(InvalidInput, match="do not add up"):
        fresh(adjacency=Adjacency.REPLACE_ONE).charge(RECEIPT, round=1)


def test_a_run_without_privacy_is_recorded() -> None:
    ledger = fresh(budget=None)
    ledger.charge(Receipt(events=(NotPrivateEvent(),), terms=TERMS), round=1)
    assert ledger.epsilon_spent == float("inf")
    assert ledger.level is GuaranteeLevel.NONE
    assert ledger.releases_left() is None


def test_a_saved_state_that_lacks_a_release_is_refused() -> None:
    ledger, other = fresh(), fresh()
    early = ledger.state_dict()
    for t in range(3):
        ledger.charge(Receipt(events=(PureEvent(0.001), GaussianEvent(MULTIPLIER)), terms=TERMS), round=t + 1)
    other.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    assert other == ledger
    with pytest.raises(InvalidInput, match="a ledger never forgets"):
        ledger.load_state_dict(early)
    with pytest.raises(InvalidInput, match="budgets cannot be exchanged"):
        fresh(budget=Budget(2.0, 1e-5)).load_state_dict(ledger.state_dict())


def test_restarting_does_not_give_the_budget_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    for t in range(ROUNDS):  # a new process for every round would do the same
        LedgerFile.open_or_create(path, fresh()).charge(RECEIPT, round=t + 1)
    again = LedgerFile.open_or_create(path, fresh())
    with pytest.raises(BudgetExceeded):
        again.charge(RECEIPT, round=1)
    assert len(again.read().entries) == ROUNDS


def test_opening_again_does_not_change_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    LedgerFile.create(path, fresh())
    with pytest.raises(InvalidInput, match="a budget is not changed by asking again"):
        LedgerFile.open_or_create(path, fresh(budget=Budget(8.0, 1e-5)))
    with pytest.raises(InvalidInput, match="already holds a ledger"):
        LedgerFile.create(path, fresh())


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    file = LedgerFile.create(path, fresh())
    file.charge(RECEIPT, round=1)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedFile, match="refused, not treated as empty"):
            file.read()
        with pytest.raises(DamagedFile):
            file.charge(RECEIPT, round=2)
        with pytest.raises(DamagedFile):
            LedgerFile.open_or_create(path, fresh())
        assert path.read_bytes() == whole[:length]


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["budget"].update(epsilon=8.0),
        lambda body: body["entries"].pop(),
        lambda body: body["entries"][0]["events"][0].update(multiplier=1e9),
        lambda body: body.update(version=3),
        lambda body: body.update(format="other"),
    ],
)
def test_an_edited_file_is_refused(tmp_path: Path, change) -> None:
    path = tmp_path / "ledger.json"
    LedgerFile.create(path, fresh()).charge(RECEIPT, round=1)
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))
    with pytest.raises(DamagedFile, match="refused"):
        LedgerFile(path).read()


def test_a_missing_file_is_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        LedgerFile(tmp_path / "gone.json").read()
    with pytest.raises(InvalidInput, match="cannot write"):
        LedgerFile.create(tmp_path / "missing" / "ledger.json", fresh())


def _spend(path: Path, times: int) -> None:
    for _ in range(times):
        try:
            LedgerFile(path).charge(RECEIPT, round=1)
        except BudgetExceeded:
            return


def test_two_processes_cannot_spend_the_same_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    LedgerFile.create(path, fresh())
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_spend, args=(path, 15)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(LedgerFile(path).read().entries) == ROUNDS


def _spend_until_killed(path: Path, pipe: int) -> None:
    for t in range(ROUNDS):
        LedgerFile(path).charge(RECEIPT, round=t + 1)
        os.write(pipe, b".")


def test_a_killed_process_has_charged_all_that_it_released(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    LedgerFile.create(path, fresh())
    reader, writer = os.pipe()
    worker = multiprocessing.get_context("fork").Process(target=_spend_until_killed, args=(path, writer))
    worker.start()
    released = len(os.read(reader, 3))
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    os.close(writer)
    while extra := os.read(reader, 64):
        released += len(extra)
    assert len(LedgerFile(path).read().entries) >= released > 0
    assert not list(tmp_path.glob("*.part")) or len(LedgerFile(path).read().entries) >= released
