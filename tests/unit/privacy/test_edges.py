"""Regressions: ways around the guarantee that once existed."""

import json
import math
import os
import sys
import threading
from pathlib import Path

import mpmath
import pytest

from tests.unit.privacy.test_ledger import BUDGET, RECEIPT, TERMS, fresh
from vpdr import Adjacency, Budget, EncoderKind, Ledger, LedgerFile
from vpdr.errors import DamagedFile, InvalidInput
from vpdr.privacy import ACCOUNTANTS, BudgetExceeded, GaussianEvent, GuaranteeLevel, GuaranteeTerms, PureEvent, Receipt
from vpdr.privacy.accountants import RepeatedEvent, event_from_dict
from vpdr.privacy.guarantee import declared_encoder
from vpdr.privacy.ledger import open_file_ledger

EXACT, JOINT = ACCOUNTANTS["exact"], ACCOUNTANTS["joint"]


def test_a_text_in_place_of_a_member_means_the_member() -> None:
    terms = GuaranteeTerms(adjacency="replace-same-label", encoder="personal", counts="public", basis="proved")
    assert terms.encoder is EncoderKind.PERSONAL
    assert Receipt(events=(GaussianEvent(1.0),), terms=terms).level is GuaranteeLevel.CONDITIONAL
    with pytest.raises(InvalidInput, match="encoder kind must be one of public, transcript, personal"):
        GuaranteeTerms(adjacency="replace-one", encoder="frozen", counts="public", basis="proved")
    assert Ledger(client="a", budget=BUDGET, adjacency="replace-one").adjacency is Adjacency.REPLACE_ONE


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


def test_without_a_budget_nothing_is_called_free() -> None:
    ledger = fresh(budget=None)
    assert ledger.epsilon_spent == 0
    ledger.charge(RECEIPT, round=1)
    assert ledger.epsilon_spent == math.inf


def test_a_stored_ledger_pays_on_disk_and_outlives_a_checkpoint(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-12, 1e-30), (1e-9, 1e-100), (1e-6, 1e-12), (1e-3, 1e-30), (0.01, 1e-5)]
)
def test_tiny_budgets_are_kept_in_arbitrary_precision(epsilon, delta) -> None:
    multiplier = EXACT.noise_multiplier(Budget(epsilon, delta), 1)
    with mpmath.workdps(80):
        mu, eps = 1 / mpmath.mpf(multiplier), mpmath.mpf(epsilon)
        spent = mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)
        assert spent <= mpmath.mpf(delta)


def test_joint_is_least_also_when_the_selection_takes_nearly_all() -> None:
    pure_events = RepeatedEvent(PureEvent(0.9 / 20), 20)
    multiplier = JOINT.noise_multiplier(Budget(1.0, 1e-5), 20, pure_events)
    assert JOINT.epsilon((pure_events.event,) * 20 + (GaussianEvent(multiplier),) * 20, 1e-5) > 1 - 1e-6


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


@pytest.mark.parametrize(
    "call",
    [
        lambda: GaussianEvent(1e-160),
        lambda: GaussianEvent(1e170),
        lambda: PureEvent(1e300),
        lambda: EXACT.noise_multiplier(Budget(1.0, 1e-5), 10**400),
        lambda: EXACT.noise_multiplier(Budget(1.0, 1e-5), float("nan")),
        lambda: EXACT.noise_multiplier(Budget(1.0, 1e-5), 2.5),
        lambda: EXACT.epsilon((GaussianEvent(1e14),), 0.0),
        lambda: event_from_dict({"kind": "gaussian", "multiplier": True}),
        lambda: event_from_dict({"kind": "gaussian", "multiplier": 10**400}),
    ],
)
def test_impossible_numbers_are_refused_in_one_line(call) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_large_selections_do_not_overflow() -> None:
    assert JOINT.epsilon((PureEvent(900.0), GaussianEvent(5.0)), 1e-5) >= 900


@pytest.mark.parametrize("change", [{"events": ""}, {"events": {}}, {"round": float("inf")}, {"round": True}])
def test_forged_entries_are_refused(change) -> None:
    ledger = fresh()
    ledger.charge(RECEIPT, round=1)
    state = json.loads(json.dumps(ledger.state_dict()))
    state["entries"][0] |= change
    with pytest.raises(InvalidInput, match=r"not the contents of a ledger|expected a round"):
        fresh().load_state_dict(state)


def test_an_encoder_kind_is_read_in_both_spellings() -> None:
    """Ledgers and policies of the first version say `transcript` and `accounted`."""
    assert EncoderKind("broadcast") is EncoderKind("transcript") is declared_encoder("broadcast")
    assert EncoderKind("dp_trained") is EncoderKind("accounted")
    with pytest.raises(InvalidInput, match="choose one of public, broadcast, personal"):
        declared_encoder("dp_trained")
