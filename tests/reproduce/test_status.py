"""`vpdr list` says what is known, and no more."""

import json
from pathlib import Path

import pytest

from tests.reproduce.reproduction_cases import SMALL
from vpdr.cli import main
from vpdr.reproduce.reproduction import Reproduction, reproduce
from vpdr.reproduce.running import Company
from vpdr.reproduce.status import brief
from vpdr.reproduce.wish import Wish


def listed(out: Path, capsys) -> str:
    assert main(["list", str(out)]) == 0
    return capsys.readouterr().out


def test_only_a_folder_with_something_left_says_how_to_go_on(tmp_path: Path, capsys) -> None:
    what = Reproduction.of("fig-budget", Wish(settings=SMALL, smoke=True, seeds="0"), tmp_path)
    done: list[object] = []
    reproduce(what, Company(after_run=done.append, stop=lambda: len(done) >= 1))
    told = listed(tmp_path, capsys)
    assert "1 run is finished" in told
    assert "the same command goes on with the rest" in told
    reproduce(what, Company())
    told = listed(tmp_path, capsys)
    assert told.endswith(f"{len(what.jobs)} runs are finished\n")
    assert "goes on" not in told


def test_a_page_without_numbers_has_nothing_run(tmp_path: Path, capsys) -> None:
    what = Reproduction.of("fig-budget", Wish(settings=SMALL, smoke=True, seeds="0"), tmp_path)
    reproduce(what, Company())
    file = what.folder / "fig-budget.json"
    summary = json.loads(file.read_text())
    why = "not run (amazon: expected a folder amazon below /deep/down/empty, found none; fetch it)"
    lines = [{**line, "metrics": {}, "verdict": why} for line in summary["lines"]]
    file.write_text(json.dumps({**summary, "lines": lines}))
    row = next(line for line in listed(tmp_path, capsys).splitlines() if "SMOKE" in line)
    assert "nothing run" in row
    assert row.endswith("amazon: expected a folder amazon below empty, found none")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("not run (no --data pacs=DIR)", "no --data pacs=DIR"),
        (
            "not run (cannot read the weights /a/b/nope: gone;\n give a folder)",
            "cannot read the weights nope: gone",
        ),
        ("not run (" + "long " * 40 + ")", ("long " * 14).rstrip() + "…"),
        ("no number in the paper", "no number in the paper"),
    ],
)
def test_a_reason_is_brief(verdict: str, words: str) -> None:
    assert brief(verdict) == words
