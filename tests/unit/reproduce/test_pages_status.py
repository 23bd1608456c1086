"""`vpdr list` shows the state of studies and runs."""

import json
from pathlib import Path

import pytest

from tests.unit.reproduce.study_cases import SMALL
from vpdr.cli import main
from vpdr.reproduce.pages import shorten_reason
from vpdr.reproduce.reproduction import Reproduction, run_reproduction
from vpdr.reproduce.run import ExecutionOptions
from vpdr.reproduce.studies import ReproduceOptions


def list_output(out: Path, capsys) -> str:
    assert main(["list", str(out)]) == 0
    return capsys.readouterr().out


def test_the_list_says_how_to_continue_only_if_runs_are_left(tmp_path: Path, capsys) -> None:
    reproduction = Reproduction.from_id("fig-budget", ReproduceOptions(settings=SMALL, smoke=True, seeds="0"), tmp_path)
    results: list[object] = []
    run_reproduction(reproduction, ExecutionOptions(after_run=results.append, stop=lambda: len(results) >= 1))
    output = list_output(tmp_path, capsys)
    assert "1 run is finished" in output
    assert "the same command goes on with the rest" in output
    run_reproduction(reproduction, ExecutionOptions())
    output = list_output(tmp_path, capsys)
    assert output.endswith(f"{len(reproduction.jobs)} runs are finished\n")
    assert "goes on" not in output


@pytest.mark.usefixtures("wide_console")
def test_a_page_without_numbers_has_nothing_run(tmp_path: Path, capsys) -> None:
    reproduction = Reproduction.from_id("fig-budget", ReproduceOptions(settings=SMALL, smoke=True, seeds="0"), tmp_path)
    run_reproduction(reproduction, ExecutionOptions())
    file = reproduction.output_dir / "fig-budget.json"
    summary = json.loads(file.read_text())
    verdict = "not run (amazon: expected a folder amazon below /deep/down/empty, found none; fetch it)"
    rows = [{**row, "metrics": {}, "verdict": verdict} for row in summary["lines"]]
    file.write_text(json.dumps({**summary, "lines": rows}))
    line = next(line for line in list_output(tmp_path, capsys).splitlines() if "SMOKE" in line)
    assert "nothing run" in line
    assert line.endswith("amazon: expected a folder amazon below empty, found none")


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ("not run (no --data pacs=DIR)", "no --data pacs=DIR"),
        ("not run (cannot read the weights /a/b/nope: gone;\n give a folder)", "cannot read the weights nope: gone"),
        ("not run (" + "long " * 40 + ")", ("long " * 14).rstrip() + "…"),
        ("no number in the paper", "no number in the paper"),
    ],
)
def test_reasons_are_shortened(verdict: str, reason: str) -> None:
    assert shorten_reason(verdict) == reason
