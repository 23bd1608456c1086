"""`vpdr audit` on the command line."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.unit.audits.audit_cases import TRAINING
from tests.unit.federation.conftest import tiny
from vpdr.audits.auditor import request_from_run
from vpdr.cli import main
from vpdr.federation import run_federation
from vpdr.privacy import LedgerFile
from vpdr.privacy.ledger_file import encode_ledger

FEW = ("--trials", "30", "--rounds", "1", "--seed", "3")
QUICK = ("--trials", "60", "--rounds", "2", "--seed", "3")
HOSTILE = ("--adjacency", "replace-one", "--server", "hostile", "--trials", "20", "--seed", "1")


def audit_as_json(capsys, *arguments: str, code: int = 0) -> dict:
    assert main(["audit", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def strict_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the preset `strict`, with two releases."""
    run_dir = tmp_path_factory.mktemp("runs") / "strict"
    run_federation(tiny("run.rounds=2", source="strict"), run_dir)
    return run_dir


def test_a_sound_mechanism_passes(capsys) -> None:
    result = audit_as_json(capsys, "--mechanism", "igpp", "--epsilon", "1", *QUICK)
    assert result["refuted"] is False
    assert result["claimed"]["epsilon"] == pytest.approx(1, abs=1e-3)
    assert result["claimed"]["level"] == "proved"
    assert result["certified_epsilon"] < 1
    assert result["trials"] == 60
    assert result["judged"] == 42


def test_the_same_seed_gives_the_same_bound(capsys) -> None:
    first, second = (audit_as_json(capsys, "--epsilon", "8", *FEW) for _ in range(2))
    for result in (first, second):
        result.pop("seconds")
    assert first == second


def test_the_published_claim_on_kmeans_is_refuted(capsys) -> None:
    assert main(["audit", "--mechanism", "igpp", "--summariser", "kmeans", *FEW]) == 1
    output = capsys.readouterr().out
    assert 'refuted: claimed "as published" epsilon 1' in output
    assert "whatever the distribution" in output
    assert "only if the trade-off is Gaussian" in output


def test_a_personal_encoder_is_replayed_and_refuted(capsys) -> None:
    settings = [part for setting in TRAINING for part in ("--set", setting)]
    options = ("--encoder", "personal", "--rounds", "3", "--trials", "20", "--seed", "1")
    result = audit_as_json(capsys, *options, "--pair", "mislabelled", *settings, code=1)
    assert result["replayed_training"] is True
    assert result["claimed"]["level"] == "conditional"


def test_the_encoder_has_the_word_that_is_set(capsys) -> None:
    """Ledgers and JSON keep `transcript`."""
    few = ("--rounds", "2", "--trials", "20", "--seed", "1", "--pair", "antipodal")
    settings = [part for setting in (*TRAINING, "framework.kind=mpft") for part in ("--set", setting)]
    assert main(["audit", "--encoder", "broadcast", *few, *settings]) == 0
    assert "broadcast encoder, replace-same-label" in " ".join(capsys.readouterr().out.split())


def test_rapp_passes_with_a_hostile_server(capsys) -> None:
    result = audit_as_json(capsys, "--mechanism", "rapp", *HOSTILE, "--pair", "relabelled")
    assert result["claimed"]["releases"] == 5
    assert result["server_heard"] is True
    assert result["refuted"] is False


def test_a_server_without_influence_is_reported(capsys) -> None:
    options = (*HOSTILE, "--pair", "relabelled", "--rounds", "2")
    result = audit_as_json(capsys, *options)
    assert result["audited"]["summariser"] == "ClassSums"
    assert result["server_heard"] is False
    assert main(["audit", *options]) == 0
    assert "hostile server (no release depends on what it says)" in " ".join(capsys.readouterr().out.split())


def test_a_run_of_strict_passes(capsys, strict_run: Path) -> None:
    result = audit_as_json(capsys, str(strict_run), "--trials", "30", "--seed", "1")
    assert result["refuted"] is False
    assert result["claimed"]["releases"] == 2
    assert result["audited"]["dim"] == 12
    assert request_from_run(strict_run, ["model.dim=20"]).target.dim == 20


def test_a_run_with_kmeans_clusters_is_refuted(capsys, tmp_path: Path) -> None:
    config = tiny("run.rounds=2", "release.summariser=kmeans", "release.encoder=public")
    run_federation(config, tmp_path / "run")
    result = audit_as_json(capsys, str(tmp_path / "run"), "--trials", "30", "--seed", "1", code=1)
    assert result["refuted"] is True
    assert result["claimed"]["releases"] == config.releases
    assert result["audited"]["dim"] == 12
    assert request_from_run(tmp_path / "run", ["model.dim=20"]).target.dim == 20


def test_a_run_that_a_replay_would_not_repeat_is_not_audited(capsys, tmp_path: Path, strict_run: Path) -> None:
    """A client of rapp that lost its state began its stages again: a replay is charged differently."""
    assert request_from_run(strict_run).claim is not None
    run_dir = shutil.copytree(strict_run, tmp_path / "run")
    for path in (run_dir / "ledgers").glob("*.json"):
        ledger = LedgerFile(path).read()
        ledger.entries = (ledger.entries[0], ledger.entries[0])
        path.write_bytes(encode_ledger(ledger))
    assert main(["audit", str(run_dir), "--trials", "30"]) == 2
    error = capsys.readouterr().err
    assert "cannot be audited" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("selection", ["laplace", "once"])
def test_a_selection_is_replayed_as_it_was_charged(tmp_path: Path, selection) -> None:
    config = tiny("mechanism.kind=vpp", f"mechanism.selection={selection}", "model.dim=80", "run.rounds=2")
    run_federation(config, tmp_path / "run")
    assert request_from_run(tmp_path / "run").claim.releases == 2


MISTAKES = {
    "unknown mechanism": (["--mechanism", "igp"], "did you mean 'igpp'"),
    "unknown encoder": (["--encoder", "secret"], "unknown encoder"),
    "unknown server": (["--server", "kind"], "unknown server"),
    "unknown pair": (["--pair", "twins"], "antipodal, mislabelled, restless"),
    "means with private counts": (["--adjacency", "replace-one", "--summariser", "means"], "sums"),
    "too few trials": (["--trials", "3"], "at least 20"),
    "full confidence": (["--confidence", "1"], "confidence"),
    "no such directory": (["nowhere"], "holds no run"),
    "directory and options": (["nowhere", "--epsilon", "2"], "already decides --epsilon"),
    "no uploads": (["--set", "framework.kind=local"], "sends nothing"),
    "hostile server without influence": (
        ["--server", "hostile", "--rounds", "1"],
        "no effect before the second release",
    ),
    "negative seed": (["--seed", "-1"], "seed"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(capsys, case) -> None:
    arguments, message = MISTAKES[case]
    assert main(["audit", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_audit_uses_the_configured_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of threads changes the result, and two on small tensors are slow on a busy machine."""
    numbers: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    assert main(["audit", "--mechanism", "igpp", "--rounds", "1", "--trials", "40", "--seed", "1"]) == 0
    assert numbers[-1] == 1
