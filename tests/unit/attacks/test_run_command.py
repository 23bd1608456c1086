"""`vpdr attack` and `vpdr run --attack` on the command line."""

import json
import os
from pathlib import Path

import pytest

from tests.unit.federation.conftest import TINY
from vpdr.cli import main

SETTINGS = [part for setting in TINY for part in ("--set", setting)]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(["run", "paper", "--out", str(out), "--quiet", *SETTINGS]) == 0
    return out


def test_a_run_reports_its_attacks(capsys, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["--attack", "fsh,mia", "--attack-rounds", "1,3", "--attack-steps", "8", "--attack-stronger"]
    assert main(["run", "paper", "--out", str(out), *options, *SETTINGS]) == 0
    output = capsys.readouterr().out
    assert "fsh: 12 targets a round, at most 8 steps, 2 rounds" in output
    assert "mia, phi = client, 2 rounds" in output
    assert "ROC-AUC, accumulated" in output
    assert "meaningless" in output
    assert (out / "attacks" / "roc.svg").exists()
    page = (out / "report.html").read_text()
    assert 'id="attacks"' in page
    assert "ROC of the membership attackers" in page


def test_attack_afterwards(capsys, run_dir: Path) -> None:
    assert main(["attack", str(run_dir), "--attack", "mia,fsh", "--rounds", "2", "--steps", "6"]) == 0
    output = capsys.readouterr().out
    assert "Top-1 hit" in output
    content = json.loads((run_dir / "attacks.json").read_text())
    assert content["schema"] == "vpdr-attacks"
    assert set(content["attacks"]) == {"mia", "fsh"}
    assert "attacks" not in json.loads((run_dir / "record.json").read_text())
    assert "Reconstruction" in (run_dir / "report.html").read_text()


@pytest.mark.parametrize("when", ["during", "after"])
def test_results_of_attacks_are_readable_by_the_owner_only(tmp_path: Path, when) -> None:
    out, before = tmp_path / "run", os.umask(0o022)
    during = ["--attack", "fsh,mia", "--attack-rounds", "3", "--attack-steps", "4"]
    try:
        options = during if when == "during" else []
        assert main(["run", "paper", "--out", str(out), "--quiet", *options, *SETTINGS]) == 0
        if when == "after":
            later = ["--attack", "mia,fsh", "--rounds", "3", "--steps", "4", "--quiet"]
            assert main(["attack", str(out), *later]) == 0
    finally:
        os.umask(before)
    private = ["report.html", "attacks/roc.svg", "record.json" if when == "during" else "attacks.json"]
    assert {(out / name).stat().st_mode & 0o777 for name in private} == {0o600}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (out / "attacks").iterdir())
    assert (out / "plan.toml").stat().st_mode & 0o777 == 0o644


def test_attack_as_json(capsys, run_dir: Path) -> None:
    assert main(["attack", str(run_dir), "--phi", "initial", "--no-stronger", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["attacks"]["mia"]["phi"] == "initial"
    assert content["attacks"]["mia"]["stronger"] == {}


def test_a_comparison_carries_its_attacks(capsys, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    arguments = ["run", "paper", "--methods", "none,igpp", "--jobs", "1", "--attack", "mia", "--no-uploads"]
    assert main([*arguments, "--out", str(out), "--json", *SETTINGS]) == 0
    summary = json.loads(capsys.readouterr().out)
    for method in summary["settings"][""]["methods"].values():
        assert 0 <= method["metrics"]["mia.auc"]["mean"] <= 1
    assert not list(out.rglob("round-*.npz"))
    for name in ("report.html", "summary.json"):
        assert (out / name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attack", "nowhere"], "holds no finished run"),
        (["run", "paper", "--attack", "mai"], "attacks must be among mia, fsh"),
        (["run", "paper", "--attack", "mia", "--attack-phi", "x"], "phi must be one of"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, message) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
