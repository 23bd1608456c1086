"""Steps that were paid for stay: no sample decides without noise which encoder makes the next release."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.dpsgd.private_cases import private
from tests.flower.conftest import RUN, one_home, opening, with_features
from vpdr.client import Client
from vpdr.client.private_training import PrivateTrainer
from vpdr.flower.errand import Answer
from vpdr.flower.home import Home
from vpdr.flower.node import answer
from vpdr.plan import Plan
from vpdr.privacy import LedgerFile, Level

ANCHORS = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}


def fails(*_: object) -> None:
    raise ZeroDivisionError


def wrong(*_: object) -> dict[str, float]:
    return {"base": float("nan")}


def learnt(home: Home, plan: Plan, hop: int = 2) -> Answer:
    return answer(home, opening(plan, hop=hop, learn=True, broadcast=ANCHORS))


def state(home: Home) -> dict[str, Any]:
    return home.load(RUN)["client"]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def log(home: Home) -> str:
    file = home.path / "refusals.log"
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("step", [fails, wrong], ids=["it stops", "its loss is no number"])
def test_a_head_that_fails_does_not_choose_the_encoder(tmp_path: Path, monkeypatch, step) -> None:
    plan = private("train.epochs=2")
    whole, broken = (one_home(tmp_path / name, plan) for name in ("whole", "broken"))
    for home in (whole, broken):
        answer(home, opening(plan))
    before = state(broken)
    healthy = [learnt(whole, plan, hop) for hop in (2, 3)]
    monkeypatch.setattr(Client, "_step", step)
    told = [learnt(broken, plan, hop) for hop in (2, 3)]
    assert "was not learnt from" in log(broken)
    assert not log(whole)
    for given, expected in zip(told, healthy, strict=True):
        assert given.upload is not None
        assert expected.upload is not None
        assert torch.equal(given.upload.vectors, expected.upload.vectors)
    assert same(state(broken)["encoder"], state(whole)["encoder"])
    assert same(state(broken)["trainer"]["head"], state(whole)["trainer"]["head"])
    assert state(broken)["trainer"]["steps"] == state(whole)["trainer"]["steps"] == 4
    assert same(state(broken)["head"], before["head"])
    assert not state(broken)["optimiser"]["state"]


def test_steps_before_a_failure_are_kept_as_they_were_paid(tmp_path: Path, monkeypatch) -> None:
    plan = private("train.epochs=3", "release.noise=system")
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    seen: list[dict[str, torch.Tensor]] = []
    whole = PrivateTrainer.summed

    def second(self, *given):
        seen.append({name: value.clone() for name, value in self.model.encoder.state_dict().items()})
        return fails() if len(seen) == 2 else whole(self, *given)

    monkeypatch.setattr(PrivateTrainer, "summed", second)
    assert learnt(home, plan).upload is not None
    assert "was not learnt from" in log(home)
    assert same(state(home)["encoder"], seen[1])
    assert not same(seen[0], seen[1])
    assert state(home)["trainer"]["steps"] == 1
    book = LedgerFile(home.path / "ledger.json").read()
    assert (book.steps, book.level) == (3, Level.PROVED)


def test_one_sample_that_overflows_does_not_choose_the_encoder(tmp_path: Path) -> None:
    plan = private("train.lr=100", "budget.adjacency=replace-one", "release.summariser=sums")
    home = with_features(tmp_path, plan)
    with np.load(tmp_path / "silo.npz") as found:
        parts = dict(found)
    parts["train_x"][0] = 1e14  # within what an owner's file may hold
    np.savez(tmp_path / "silo.npz", **parts)
    answer(home, opening(plan))
    before = state(home)
    given = learnt(home, plan)
    assert "the losses are not finite" in log(home)
    assert not same(state(home)["encoder"], before["encoder"])
    assert given.upload is not None
    assert bool(torch.isfinite(given.upload.vectors).all())


@pytest.mark.parametrize("rate", ["1e20", "1e38"])
def test_an_encoder_beyond_all_numbers_still_releases(tmp_path: Path, rate: str) -> None:
    plan = private(f"train.lr={rate}", "train.epochs=1")
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    for hop in (2, 3):
        given = learnt(home, plan, hop)
        assert given.upload is not None
        assert bool(torch.isfinite(given.upload.vectors).all())
    assert state(home)["trainer"]["steps"] == 2
    book = LedgerFile(home.path / "ledger.json").read()
    assert [str(each.receipt.purpose) for each in book.entries] == ["release", *["training", "release"] * 2]
