"""What was paid stays paid: no new run, deleted file or crash gives budget back."""

from pathlib import Path

import pytest
import torch

from tests.flower.conftest import changed, one_home, opening, paid, tiny
from tests.flower.owner_cases import POLICY, refused
from vpdr.errors import InvalidInput
from vpdr.flower.home import Home
from vpdr.flower.node import answer
from vpdr.flower.policy import read_policy
from vpdr.flower.refusals import Code
from vpdr.privacy import (
    Adjacency,
    Basis,
    Budget,
    BudgetExceeded,
    Counts,
    EncoderKind,
    Gaussian,
    Pure,
    Receipt,
    Terms,
)
from vpdr.privacy.accountants import Exact


def test_a_second_run_cannot_spend_the_budget_again(tmp_path: Path) -> None:
    plan = tiny("run.rounds=1")
    home = one_home(tmp_path, plan)
    assert answer(home, opening(plan)).upload is not None
    again = answer(home, opening(plan, run="f" * 16))
    assert again.upload is None
    assert again.facts["why"] == "budget"
    assert paid(home) == 1


def test_deleted_run_state_gives_nothing_back(tmp_path: Path) -> None:
    plan = tiny("run.rounds=1")
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    for state in (home.path / "runs").iterdir():
        state.unlink()
    assert answer(Home(home.path), opening(plan)).facts["why"] == "budget"
    assert paid(home) == 1


def test_another_budget_needs_another_folder(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    changed(home.path, ("epsilon = 1.0", "epsilon = 5.0"))
    with pytest.raises(InvalidInput, match="a budget is not changed by asking again"):
        answer(home, opening(plan, hop=2))


def test_one_part_of_epsilon_is_not_spent_on_the_other(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace("delta = 1e-5", "delta = 1e-5\nselection = 0.25"))
    purse = Home(tmp_path).purse(read_policy(tmp_path / "policy.toml"))
    terms = Terms(
        adjacency=Adjacency.REPLACE_SAME_LABEL,
        encoder=EncoderKind.PUBLIC,
        counts=Counts.PUBLIC,
        basis=Basis.PROVED,
    )
    purse.charge(Receipt(events=(Pure(0.2),), terms=terms), round=1)
    fits, too_much = (Exact().multiplier(Budget(epsilon, 1e-5), 1) for epsilon in (0.749, 0.751))
    for event in (Pure(0.051), Gaussian(too_much)):
        with pytest.raises(BudgetExceeded):
            purse.charge(Receipt(events=(event,), terms=terms), round=2)
    purse.charge(Receipt(events=(Gaussian(fits), Pure(0.05)), terms=terms), round=2)
    assert purse.read().spent <= 1.0


def test_a_ledger_that_is_gone_is_noticed(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    (home.path / "ledger.json").unlink()
    assert refused(home, opening(plan, hop=2)) is Code.LEDGER
    (home.path / "dataset.json").unlink()
    assert refused(home, opening(plan, run="f" * 16)) is Code.LEDGER
    assert not (home.path / "ledger.json").exists()


def test_an_older_copy_of_a_ledger_is_noticed(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    copy = (home.path / "ledger.json").read_bytes()
    answer(home, opening(plan, hop=2))
    (home.path / "ledger.json").write_bytes(copy)
    assert refused(home, opening(plan, hop=3)) is Code.LEDGER
    assert paid(home) == 1


def test_a_crash_between_paying_and_saving_loses_an_upload_not_a_cost(tmp_path: Path, monkeypatch) -> None:
    plan = tiny("run.rounds=2", "release.noise=system")
    home = one_home(tmp_path, plan)

    def crash(*_: object) -> None:
        raise OSError("power cut")

    with monkeypatch.context() as broken:
        broken.setattr(Home, "save", crash)
        with pytest.raises(OSError, match="power cut"):
            answer(home, opening(plan))
    assert paid(home) == 1
    first = answer(home, opening(plan)).upload
    assert paid(home) == 2
    anchors = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    second = answer(home, opening(plan, hop=2, learn=True, broadcast=anchors)).upload
    assert torch.equal(first.vectors, second.vectors)  # the budget is spent: what is public is sent again
    assert paid(home) == 2
