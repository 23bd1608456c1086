"""What a server is told, what the owner is told, and what stays on this machine."""

import json
from pathlib import Path

import pytest

from tests.flower.conftest import RUN, changed, one_home, opening, tiny
from vpdr.flower.home import Home
from vpdr.flower.node import answer


@pytest.mark.parametrize(
    ("metrics", "names"),
    [("nothing", {"epsilon"}), ("accuracy", {"losses", "accuracy", "epsilon", "seconds"})],
)
def test_measurements_stay_at_home_unless_the_owner_says_so(tmp_path: Path, metrics, names) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    changed(home.path, ('metrics = "everything"', f'metrics = "{metrics}"'))
    assert set(answer(home, opening(plan)).facts["measured"]) == names


def test_a_repeated_answer_keeps_what_the_owner_keeps_by_now(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    assert "accuracy" in answer(home, opening(plan)).facts["measured"]
    changed(home.path, ('metrics = "everything"', 'metrics = "nothing"'))
    facts = answer(home, opening(plan)).facts
    assert (set(facts["measured"]), facts["seconds"]) == ({"epsilon"}, 0.0)


def test_the_owner_sees_what_the_server_does_not(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    changed(home.path, ('metrics = "everything"', 'metrics = "nothing"'))
    answer(home, opening(plan))
    (line,) = (home.path / "measured.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["run"], told["round"]) == (RUN, 0)
    assert "head" in told["accuracy"]["own"]


def test_a_note_can_hold_anything(tmp_path: Path) -> None:
    Home(tmp_path).note("\ud800")
    assert "ud800" in (tmp_path / "refusals.log").read_text()


def test_notes_do_not_fill_the_disk(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("vpdr.flower.home.LONGEST_LOG", 10_000)
    home = Home(tmp_path)
    for _ in range(50):
        home.note("x" * 10_000)
    assert (tmp_path / "refusals.log").stat().st_size < 11_000
