"""Run directories that version 0.1 wrote, before settings and files were renamed, still load and go on."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import vpdr
from tests.integration.test_unchanged_records import STORED, machine, without_clocks
from vpdr.cli import main
from vpdr.config import load_experiment
from vpdr.io import json_bytes

OLD = Path(__file__).with_name("version_0_1")


def command(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["vpdr", *arguments])
    try:
        return main() or 0
    except SystemExit as stopped:
        return stopped.code or 0


def assert_near(first: Any, second: Any) -> None:
    """Equal but for the last digits of numbers: releases of version 0.1 were not rounded to a grid."""
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        first, second = list(first.values()), [second[key] for key in first]
    if isinstance(first, list):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_near(one, other)
    elif isinstance(first, float):
        assert first == pytest.approx(second, rel=1e-4, nan_ok=True)
    else:
        assert first == second


def test_a_stopped_run_goes_on_to_the_same_record(tmp_path) -> None:
    shutil.copytree(OLD / "stopped", tmp_path / "run")
    config = load_experiment(str(tmp_path / "run" / "plan.toml")).method_configs[0].config
    record = vpdr.run(config, tmp_path / "run", resume=True)
    finished = json.loads((OLD / "finished" / "record.json").read_text())
    assert record.identity == finished["identity"]
    content = json.loads(json_bytes(record))
    assert content["privacy"].pop("dataset") == "the training rows after the split"  # version 0.1 did not state it
    floating = [words for words in content["privacy"]["not_covered"] if "floating point" in words]
    assert len(floating) == 1  # in the rounds before the run was stopped
    content["privacy"]["not_covered"].remove(floating[0])
    assert content["privacy"] == finished["privacy"]
    arithmetic = [
        entry["terms"].pop("arithmetic") for ledger in content["ledgers"].values() for entry in ledger["entries"]
    ]
    assert set(arithmetic) == {"floating point", "integer"}
    assert content["ledgers"] == finished["ledgers"]
    if machine() == json.loads(STORED.read_text())["machine"]:  # elsewhere sums are rounded otherwise
        assert_near(without_clocks(content["rounds"]), without_clocks(finished["rounds"]))


@pytest.mark.slow  # the audit replays training in both worlds
def test_a_finished_run_is_read_attacked_and_audited(tmp_path) -> None:
    shutil.copytree(OLD / "finished", tmp_path / "run")
    assert list(vpdr.attack(tmp_path / "run").attacks) == ["mia"]
    result = vpdr.audit(tmp_path / "run", vpdr.AuditConfig(trials=60))
    assert result.claim.releases == 3


def test_a_ledger_is_shown(monkeypatch, capsys) -> None:
    ledger = next((OLD / "finished" / "ledgers").glob("*.json"))
    assert command(monkeypatch, "ledger", str(ledger), "--json") == 0
    assert json.loads(capsys.readouterr().out)["client"] == ledger.stem
