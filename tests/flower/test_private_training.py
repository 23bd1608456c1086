"""Private training over Flower: the same numbers as in the loop, and each step paid to the owner's ledger."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.dpsgd.private_cases import private
from tests.flower.conftest import changed, one_home, opening, paid, without_exchange
from vpdr.client.private_training import PrivateTrainer
from vpdr.engines.runner import run_plan
from vpdr.flower.home import Home
from vpdr.flower.node import answer
from vpdr.flower.simulation import simulate_in_process
from vpdr.privacy import LedgerFile, Level

PROVED = ("budget.adjacency=replace-one", "release.summariser=sums", "budget.require=proved")
CASES = {
    "igpp": (),
    "vpp": ("mechanism.kind=vpp",),
    "rdp": ("budget.accountant=rdp",),
    "proved": PROVED,
    "few releases": ("release.count=2", "run.rounds=4"),
    "several epochs": ("train.epochs=3", "run.rounds=2"),
    "some are away": ("participation.fraction=0.7", "participation.dropout=0.2", "run.rounds=4"),
    "fedtgp": ("framework.kind=fedtgp", "run.rounds=2"),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_numbers_are_those_of_vpdr_run(tmp_path: Path, case: str) -> None:
    plan = private(*CASES[case])
    expected = run_plan(plan, tmp_path / "run").record
    record = simulate_in_process(plan, tmp_path / "flower")
    assert without_exchange(record) == without_exchange(expected)
    assert record["exchange"]["missing"] == record["exchange"]["dropped"] == 0
    for ledger in (tmp_path / "run" / "ledgers").glob("*.json"):
        assert (tmp_path / "flower" / "ledgers" / ledger.name).read_bytes() == ledger.read_bytes()
    for home in (tmp_path / "flower" / "nodes").glob("*/policy.toml"):
        assert not (home.parent / "refusals.log").exists()


def test_each_training_is_in_the_owners_ledger(tmp_path: Path) -> None:
    plan = private("release.noise=system")
    home = one_home(tmp_path, plan)
    broadcast = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    answer(home, opening(plan))
    answer(home, opening(plan, hop=2, learn=True, broadcast=broadcast))
    book = LedgerFile(home.path / "ledger.json").read()
    assert [entry.receipt.purpose for entry in book.entries] == ["release", "training", "release"]
    assert book.level is Level.PROVED
    again = answer(Home(home.path), opening(plan, hop=2, learn=True, broadcast=broadcast))
    assert again.upload is not None
    assert paid(home) == 3


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, what the encoder learns from breaks on some sample."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    return lambda: monkeypatch.setattr(PrivateTrainer, "summed", fail)


@pytest.mark.parametrize("settings", [(), PROVED], ids=["replace-same-label", "proved"])
def test_a_training_that_fails_is_not_told_by_the_reply(tmp_path: Path, broken, settings) -> None:
    plan = private("release.noise=system", *settings)
    broadcast = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    facts = []
    for case in ("whole", "broken"):
        home = one_home(tmp_path / case, plan)
        changed(home.path, ('metrics = "everything"', 'metrics = "nothing"'))
        answer(home, opening(plan))
        if case == "broken":
            broken()
        given = answer(home, opening(plan, hop=2, learn=True, known=1, broadcast=broadcast))
        assert given.upload is not None
        facts.append(given.facts)
    assert "was not learnt from" in (home.path / "refusals.log").read_text()
    assert facts[0] == facts[1]
    assert [entry["purpose"] for entry in facts[1]["entries"]] == ["training", "release"]


def test_steps_that_were_lost_are_not_paid_from_the_share_of_releases(tmp_path: Path, monkeypatch) -> None:
    failures = iter([True])
    whole = PrivateTrainer.summed

    def once(self, *given):
        if next(failures, False):
            raise ZeroDivisionError
        return whole(self, *given)

    monkeypatch.setattr(PrivateTrainer, "summed", once)
    record = simulate_in_process(private("run.rounds=4"), tmp_path)
    for name, ledger in record["ledgers"].items():
        assert [entry["purpose"] for entry in ledger["entries"]] == ["release", "training"] * 4, name
    assert record["privacy"]["level"] == "proved"
