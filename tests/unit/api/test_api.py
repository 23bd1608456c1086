"""The Python interface refuses what it cannot do in one line, and does what its arguments say."""

import dataclasses
import re
from pathlib import Path

import pytest

import vpdr
from tests.unit.federation.conftest import tiny
from vpdr.attacks import AttackFactory
from vpdr.federation import RunOptions
from vpdr.validation import InvalidInput


def test_callbacks_are_called_without_a_directory() -> None:
    rounds_done = []
    options = RunOptions(on_round_end=[lambda state: rounds_done.append(state.rounds_done)])
    record = vpdr.run(tiny(), options=options)
    assert rounds_done == [1, 2, 3]
    assert len(record.rounds) == 3


def test_progress_is_passed_on_without_a_directory(monkeypatch) -> None:
    given = []
    build = vpdr.api.build
    monkeypatch.setattr(
        vpdr.api, "build", lambda config, progress, **_: given.append(progress) or build(config, progress)
    )
    options = RunOptions(progress=lambda phase, done, total: None)
    vpdr.run(tiny(), options=options)
    assert given == [options.progress]


def test_a_run_that_is_stopped_without_a_directory_has_no_record() -> None:
    rounds_done = []
    options = RunOptions(
        on_round_end=[lambda state: rounds_done.append(state.rounds_done)], stop=lambda: len(rounds_done) == 2
    )
    with pytest.raises(InvalidInput, match="stopped after round 2; give out"):
        vpdr.run(tiny(), options=options)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("resume", {"resume": True}),
        ("attacks", {"attacks": vpdr.AttackConfig(kinds=("mia",))}),
        ("options.observers", {"options": RunOptions(observers=[AttackFactory(vpdr.AttackConfig(kinds=("mia",)))])}),
    ],
)
def test_what_needs_a_directory_is_refused_without_one(name, arguments) -> None:
    with pytest.raises(InvalidInput, match=f"{name} needs a directory for its files, got none; give out"):
        vpdr.run(tiny(), **arguments)


@pytest.mark.parametrize(
    ("names", "arguments", "message"),
    [
        (["../esc"], {}, "'../esc' names a folder; use letters"),
        (["a"], {"baseline": "zz"}, "unknown baseline: 'zz'; choose one of a"),
        ([], {}, "a comparison needs at least one method and one seed"),
        (["a"], {"seeds": []}, "a comparison needs at least one method and one seed"),
        (["a"], {"seeds": [0, 0]}, "seeds must be different whole numbers of at least 0, got [0, 0]"),
        (["a"], {"seeds": [-1]}, "seeds must be different whole numbers of at least 0, got [-1]"),
    ],
)
def test_a_comparison_that_cannot_be_made_writes_nothing(tmp_path: Path, names, arguments, message) -> None:
    out = tmp_path / "out"
    with pytest.raises(InvalidInput, match=re.escape(message)):
        vpdr.compare({name: tiny() for name in names}, out, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_baseline_of_a_named_experiment_is_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="unknown baseline: 'zz'"):
        vpdr.compare("quickstart", tmp_path / "out", baseline="zz")


def test_a_finished_comparison_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    message = r"already holds a comparison; add --resume \(resume=True\), or choose another directory"
    with pytest.raises(InvalidInput, match=message):
        vpdr.compare({"a": tiny()}, tmp_path)


def test_an_unknown_attack_is_refused(tmp_path: Path) -> None:
    config, attacks = tiny("run.rounds=1"), vpdr.AttackConfig(kinds=("mai",))
    with pytest.raises(InvalidInput, match="unknown attack: 'mai'; did you mean 'mia'"):
        vpdr.run(config, tmp_path / "a", attacks=attacks)
    vpdr.run(config, tmp_path / "b")
    with pytest.raises(InvalidInput, match="unknown attack: 'mai'; did you mean 'mia'"):
        vpdr.attack(tmp_path / "b", attacks)


def test_an_attack_config_names_its_own_arguments() -> None:
    with pytest.raises(InvalidInput, match=r"^adversary_encoder must be one of client, initial, got 'x'"):
        dataclasses.replace(vpdr.AttackConfig(kinds=("mia",)), adversary_encoder="x")
