"""Runs with DP-SGD: refused where unsound, reproducible, and shown by the command line."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.unit.federation.conftest import TINY, timeless, tiny
from tests.unit.federation.test_run_repeatability import StopAfter
from tests.unit.mechanisms.dpsgd_cases import PRIVATE, private
from vpdr.cli import main
from vpdr.federation import RunOptions, build, run_federation
from vpdr.frameworks import FRAMEWORKS
from vpdr.validation import InvalidInput

REFUSALS = [
    ("release.encoder=public", "nothing is released"),
    ("framework.kind=local", "nothing is released"),
    ("mechanism.kind=none", "not private"),
    ("mechanism.kind=vpp mechanism.selection=oracle", "not private"),
    ("mechanism.kind=rapp release.summariser=sums", "an encoder that stays as it is"),
    ("mechanism.accumulate=true", "an encoder that stays as it is"),
    ("regulariser.kind=dcr", "teacher is trained without privacy"),
    ("train.private_share=1", "private_share"),
    ("train.private_share=0", "private_share"),
    ("train.gradient_clip=0", "gradient_clip"),
    ("train.privacy=dp", "privacy must be one of none, dpsgd"),
    ("benchmark.kind=quickstart model.adapters=blocks", "model.adapters=last"),
    ("benchmark.kind=quickstart model.projection=train", "frozen projection"),
    ("benchmark.kind=quickstart model.family=Lite3", "frozen projection"),
]


@pytest.mark.parametrize(("settings", "words"), REFUSALS)
def test_unsound_settings_are_refused(settings, words) -> None:
    with pytest.raises(InvalidInput, match=words) as refusal:
        private(*settings.split())
    assert "\n" not in str(refusal.value)


def test_a_framework_must_declare_a_loss_per_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FRAMEWORKS["fedproto"], "loss_is_per_sample", property(lambda self: False))
    with pytest.raises(InvalidInput, match="a loss of one sample each"):
        private()


def test_without_opacus_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"vpdr\[dpsgd\]"):
        build(private())


def test_proved_can_be_required() -> None:
    settings = ("release.encoder=personal", "budget.require=proved")
    with pytest.raises(InvalidInput, match="conditional"):
        tiny(*settings)
    assert tiny(*settings, "train.privacy=dpsgd").train.is_private


@pytest.mark.parametrize("done", [1, 2])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, done) -> None:
    config = private("run.rounds=4")
    whole = run_federation(config, tmp_path / "whole").record
    assert run_federation(config, tmp_path / "parts", options=RunOptions(stop=StopAfter(done))).record is None
    assert timeless(run_federation(config, tmp_path / "parts", resume=True).record) == timeless(whole)


def test_the_command_line_reports_the_level_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [
        *(*TINY, *PRIVATE),
        "mechanism.kind=igpp",
        "budget.adjacency=replace-one",
        "release.summariser=sums",
        "budget.require=proved",
        "release.noise=system",
    ]
    out = tmp_path / "run"
    assert (
        main(["run", "paper", "--out", str(out), *[part for settings in overrides for part in ("--set", settings)]])
        == 0
    )
    output = " ".join(capsys.readouterr().out.split())
    assert "personal encoder (its private training is part of the epsilon), private counts" in output
    assert "exact accountant: proved" in output
    assert "average" in output
    record = json.loads((out / "record.json").read_text())
    assert record["privacy"]["level"] == record["privacy"]["expected_level"] == "proved"
    assert record["privacy"]["encoder"] == "accounted"
    assert "Steps of private training" in (out / "report.html").read_text()
    assert main(["ledger", str(out / "ledgers" / "client-000.json")]) == 0
    assert "training: Gaussian" in capsys.readouterr().out


def test_a_run_with_secret_training_noise_cannot_be_attacked_afterwards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_federation(private("release.noise=system"), tmp_path)
    assert main(["attack", str(tmp_path), "--attack", "mia"]) != 0
    assert "attack such a plan while it runs" in " ".join(capsys.readouterr().err.split())
