"""Plans with private training: refused where unsound, repeatable, and told by the command line."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.dpsgd.private_cases import PRIVATE, private
from tests.engines.conftest import TINY, timeless, tiny
from tests.engines.test_repeatability import StopAfter
from vpdr.cli import main
from vpdr.engines.build import build
from vpdr.engines.runner import Company, run_plan
from vpdr.errors import InvalidInput
from vpdr.frameworks import FRAMEWORKS

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
]


@pytest.mark.parametrize(("settings", "words"), REFUSALS)
def test_what_cannot_be_sound_is_refused(settings, words) -> None:
    with pytest.raises(InvalidInput, match=words) as refusal:
        private(*settings.split())
    assert "\n" not in str(refusal.value)


def test_a_framework_must_say_that_its_loss_is_one_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FRAMEWORKS["fedproto"], "by_sample", property(lambda self: False))
    with pytest.raises(InvalidInput, match="a loss of one sample each"):
        private()


def test_without_opacus_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"vpdr\[dpsgd\]"):
        build(private())


def test_proved_can_be_required() -> None:
    wish = ("release.encoder=personal", "budget.require=proved")
    with pytest.raises(InvalidInput, match="conditional"):
        tiny(*wish)
    assert tiny(*wish, "train.privacy=dpsgd").train.private


@pytest.mark.parametrize("done", [1, 2])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, done) -> None:
    plan = private("run.rounds=4")
    whole = run_plan(plan, tmp_path / "whole").record
    assert run_plan(plan, tmp_path / "parts", company=Company(stop=StopAfter(done))).record is None
    assert timeless(run_plan(plan, tmp_path / "parts", resume=True).record) == timeless(whole)


def test_the_command_line_tells_that_it_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wishes = [
        *(*TINY, *PRIVATE),
        "budget.adjacency=replace-one",
        "release.summariser=sums",
        "budget.require=proved",
        "release.noise=system",
    ]
    out = tmp_path / "run"
    assert main(["run", "paper", "--out", str(out), *[w for wish in wishes for w in ("--set", wish)]]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "personal encoder (its private training is part of the epsilon), private counts" in told
    assert "exact accountant: proved" in told
    assert "average" in told
    record = json.loads((out / "record.json").read_text())
    assert record["privacy"]["level"] == record["privacy"]["expected_level"] == "proved"
    assert record["privacy"]["encoder"] == "accounted"
    assert "Steps of private training" in (out / "report.html").read_text()
    assert main(["ledger", str(out / "ledgers" / "client-000.json")]) == 0
    assert "training: Gaussian" in capsys.readouterr().out


def test_a_run_with_secret_training_noise_cannot_be_attacked_afterwards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_plan(private("release.noise=system"), tmp_path)
    assert main(["attack", str(tmp_path), "--attack", "mia"]) != 0
    assert "attack such a plan while it runs" in " ".join(capsys.readouterr().err.split())
