"""`vpdr audit`, as a user types it."""

import json
from pathlib import Path

import pytest
import torch

from tests.engines.conftest import tiny
from vpdr.audits.requests import from_run
from vpdr.cli import main
from vpdr.engines.runner import run_plan
from vpdr.privacy import LedgerFile
from vpdr.privacy.ledger_file import encoded

FEW = ("--trials", "30", "--rounds", "1", "--seed", "3")
QUICK = ("--trials", "60", "--rounds", "2", "--seed", "3")


def answer(capsys, *arguments: str, code: int = 0) -> dict:
    assert main(["audit", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_sound_mechanism_passes(capsys) -> None:
    found = answer(capsys, "--mechanism", "igpp", "--epsilon", "1", *QUICK)
    assert found["refuted"] is False
    assert found["claimed"]["epsilon"] == pytest.approx(1, abs=1e-3)
    assert found["claimed"]["level"] == "proved"
    assert found["certified_epsilon"] < 1
    assert found["trials"] == 60
    assert found["judged"] == 42


def test_the_same_seed_gives_the_same_bound(capsys) -> None:
    first, second = (answer(capsys, "--epsilon", "8", *FEW) for _ in range(2))
    for found in (first, second):
        found.pop("seconds")
    assert first == second


def test_the_published_claim_on_kmeans_is_refuted_by_itself(capsys) -> None:
    assert main(["audit", "--mechanism", "igpp", "--summariser", "kmeans", *FEW]) == 1
    told = capsys.readouterr().out
    assert 'refuted: claimed "as published" epsilon 1' in told
    assert "whatever the distribution" in told
    assert "only if the trade-off is Gaussian" in told


def test_a_personal_encoder_is_replayed_and_refuted(capsys) -> None:
    learning = ("benchmark.samples=512", "model.dim=8", "train.epochs=1", "train.batch=64", "train.lr=0.02")
    settings = [part for each in learning for part in ("--set", each)]
    options = ("--encoder", "personal", "--rounds", "3", "--trials", "20", "--seed", "1")
    found = answer(capsys, *options, "--pair", "mislabelled", *settings, code=1)
    assert found["replayed_training"] is True
    assert found["claimed"]["level"] == "conditional"


HOSTILE = ("--adjacency", "replace-one", "--server", "hostile", "--trials", "20", "--seed", "1")


def test_rapp_passes_with_a_hostile_server(capsys) -> None:
    found = answer(capsys, "--mechanism", "rapp", *HOSTILE, "--pair", "relabelled")
    assert found["claimed"]["releases"] == 5
    assert found["server_heard"] is True
    assert found["refuted"] is False


def test_a_server_to_which_nobody_listens_is_said_to_be_one(capsys) -> None:
    options = (*HOSTILE, "--pair", "relabelled", "--rounds", "2")
    found = answer(capsys, *options)
    assert found["audited"]["summariser"] == "ClassSums"
    assert found["server_heard"] is False
    assert main(["audit", *options]) == 0
    assert "hostile server (no release depends on what it says)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("source", "refuted"), [("strict", False), ("paper", True)], ids=["strict", "kmeans clusters"]
)
def test_a_runs_folder(capsys, tmp_path: Path, source, refuted) -> None:
    rule = ("release.summariser=kmeans", "release.encoder=public") if refuted else ()
    plan = tiny("run.rounds=2", *rule, source=source)
    run_plan(plan, tmp_path / "run")
    found = answer(capsys, str(tmp_path / "run"), "--trials", "30", "--seed", "1", code=int(refuted))
    assert found["refuted"] is refuted
    assert found["claimed"]["releases"] == plan.releases
    assert found["audited"]["dim"] == 12
    assert from_run(tmp_path / "run", ["model.dim=20"]).subject.dim == 20


def test_a_run_that_a_replay_would_not_repeat_is_not_judged(capsys, tmp_path: Path) -> None:
    """A client of rapp that lost its memory began its stages again: other looks than a replay makes."""
    plan = tiny("run.rounds=5", source="strict")
    out = tmp_path / "run"
    run_plan(plan, out)
    assert from_run(out).claim is not None
    for path in (out / "ledgers").glob("*.json"):
        ledger = LedgerFile(path).read()
        ledger.entries = [*ledger.entries[:4], ledger.entries[0]]
        path.write_bytes(encoded(ledger))
    assert main(["audit", str(out), "--trials", "30"]) == 2
    told = capsys.readouterr().err
    assert "cannot be audited" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("selection", ["laplace", "once"])
def test_a_selection_is_replayed_as_it_was_paid(tmp_path: Path, selection) -> None:
    plan = tiny("mechanism.kind=vpp", f"mechanism.selection={selection}", "model.dim=80", "run.rounds=2")
    run_plan(plan, tmp_path / "run")
    assert from_run(tmp_path / "run").claim.releases == 2


MISTAKES = {
    "unknown mechanism": (["--mechanism", "igp"], "did you mean 'igpp'"),
    "unknown encoder": (["--encoder", "secret"], "unknown encoder"),
    "unknown server": (["--server", "kind"], "unknown server"),
    "unknown pair": (["--pair", "twins"], "antipodal, mislabelled, restless"),
    "means with private counts": (["--adjacency", "replace-one", "--summariser", "means"], "sums"),
    "too few trials": (["--trials", "3"], "at least 20"),
    "sure of everything": (["--confidence", "1"], "confidence"),
    "no such folder": (["nowhere"], "holds no run"),
    "folder and options": (["nowhere", "--epsilon", "2"], "already decides --epsilon"),
    "nothing is sent": (["--set", "framework.kind=local"], "sends nothing"),
    "a lie that nobody hears": (["--server", "hostile", "--rounds", "1"], "first heard after the first"),
    "negative seed": (["--seed", "-1"], "seed"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(capsys, case) -> None:
    arguments, words = MISTAKES[case]
    assert main(["audit", *arguments]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


def test_an_audit_works_on_the_plans_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads on small tensors are many times slower on a busy machine, and part of the result."""
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert main(["audit", "--mechanism", "igpp", "--rounds", "1", "--trials", "40", "--seed", "1"]) == 0
    assert asked[-1] == 1
