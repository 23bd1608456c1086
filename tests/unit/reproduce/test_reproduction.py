"""`vpdr reproduce`, `vpdr list` and `vpdr results`, as a user types them."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.reproduce.study_cases import SMALL, SMALL_OPTIONS
from vpdr.cli import main
from vpdr.cli.reproduce import print_study_summary
from vpdr.federation import run_federation
from vpdr.reproduce.reproduction import Reproduction, run_reproduction
from vpdr.reproduce.run import ExecutionOptions
from vpdr.reproduce.studies import ReproduceOptions


def reproduce(*arguments: str) -> int:
    return main(["reproduce", *arguments, *SMALL_OPTIONS, "--jobs", "1"])


def record_times(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("runs/*/record.json")}


@pytest.fixture(scope="module")
def ablation(tmp_path_factory) -> Path:
    """The output directory of a small ablation."""
    out = tmp_path_factory.mktemp("ablation")
    assert reproduce("ablation", "--smoke", "--seeds", "0", "--out", str(out), "--quiet") == 0
    return out


def test_an_ablation_writes_a_page_and_the_whole_grid(ablation: Path) -> None:
    directory = ablation / "ablation-smoke"
    assert {path.name for path in directory.iterdir()} == {
        f"ablation.{kind}" for kind in ("md", "csv", "json", "png", "svg")
    }
    page = (directory / "ablation.md").read_text()
    assert page.startswith("# SMOKE: Ablation of VPP and DCR")
    assert "neither the paper nor we account for that" in page
    rows = list(csv.DictReader((directory / "ablation.csv").read_text().splitlines()))
    igpp = [row for row in rows if row["method"] == "igpp" and row["dataset"] == "pacs"]
    assert [row["radius"] for row in igpp] == ["5.0", "20.0"]
    assert [row["chosen"] for row in igpp].count("True") == 1


@pytest.mark.usefixtures("wide_console")
def test_finished_runs_are_not_repeated(ablation: Path, capsys) -> None:
    before = record_times(ablation)
    assert len(before) % 2 == 1  # two values of R for each method but local; both data sets share their runs
    assert reproduce("ablation", "--smoke", "--seeds", "0", "--out", str(ablation)) == 0
    output = capsys.readouterr().out
    assert output.startswith("SMOKE")
    assert "not judged (smoke)" in output
    assert "pacs (embedded digits)" in output
    assert record_times(ablation) == before


def test_the_list_shows_the_state_of_studies_and_runs(ablation: Path, capsys) -> None:
    assert main(["list", str(ablation), "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    states = {(study["id"], study["smoke"]): study["state"] for study in listing["ids"]}
    assert states["ablation", True] in {"done", "partly done"}  # some methods may not be in this version
    assert states["table1", False] == "missing"
    assert all(run["state"] == "done" for run in listing["runs"])
    assert main(["list", str(ablation), "--runs"]) == 0
    assert "synthetic fedproto" in capsys.readouterr().out


def test_results_are_one_page(ablation: Path, tmp_path: Path) -> None:
    assert main(["results", str(ablation / "ablation-smoke"), "--out", str(tmp_path / "RESULTS.md")]) == 0
    assert "| SMOKE, " in (tmp_path / "RESULTS.md").read_text()


def test_results_read_an_output_directory_without_its_smoke_runs(ablation: Path, tmp_path: Path, capsys) -> None:
    assert main(["results", str(ablation)]) == 2
    assert "only smoke runs in" in capsys.readouterr().err
    shutil.copytree(ablation / "ablation-smoke", tmp_path / "ablation-smoke")
    summary = json.loads((ablation / "ablation-smoke" / "ablation.json").read_text())
    (tmp_path / "ablation").mkdir()
    (tmp_path / "ablation" / "ablation.json").write_text(json.dumps({**summary, "smoke": False}))
    assert main(["results", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert "smoke runs are left out: ablation-smoke;" in output.err
    assert "## ablation: Ablation" in output.out
    assert "SMOKE" not in output.out


def test_a_log_has_a_line_for_each_run(tmp_path: Path, capsys) -> None:
    small = ("fig-budget", "--smoke", "--out", str(tmp_path))
    assert reproduce(*small, "--seeds", "0") == 0
    log = capsys.readouterr().err.splitlines()
    runs = len(record_times(tmp_path))
    assert len(log) == runs
    assert re.fullmatch(rf"1 of {runs} runs: fig-budget office_caltech \S+ R=5 seed 0, \d+\.\d s", log[0])
    assert reproduce(*small, "--seeds", "0") == 0
    assert capsys.readouterr().err == f"{runs} of {runs} runs were there already\n"
    for silent in ("--quiet", "--json"):
        assert reproduce(*small, "--seeds", "1", silent) == 0
        assert not capsys.readouterr().err


def test_a_reason_is_printed_once_for_all_its_rows(tmp_path: Path, capsys) -> None:
    options = ReproduceOptions(settings=SMALL, smoke=True, seeds="0")
    reproduction = Reproduction.from_id("ablation", options, tmp_path)
    cells = [replace(cell, base_config=None, radii=(), why_not="no such data") for cell in reproduction.cells[1:]]
    result = run_reproduction(replace(reproduction, cells=(reproduction.cells[0], *cells)), ExecutionOptions())
    assert result.summary is not None
    print_study_summary(result.summary, tmp_path)
    output = capsys.readouterr().out
    assert output.count("no such data") == len(result.summary.datasets)
    assert "rows: PACS (embedded digits instead): not run (no such data)" in output


def test_a_stopped_reproduction_continues(tmp_path: Path) -> None:
    options = ReproduceOptions(settings=SMALL, smoke=True, seeds="0")
    reproduction = Reproduction.from_id("fig-budget", options, tmp_path)
    done = []
    stopped = run_reproduction(reproduction, ExecutionOptions(after_run=done.append, stop=lambda: len(done) >= 1))
    assert stopped.summary is None
    assert not reproduction.output_dir.exists()
    assert reproduction.remaining_runs == len(reproduction.jobs) - 1
    before = record_times(tmp_path)
    assert run_reproduction(reproduction, ExecutionOptions()).summary is not None
    assert before.items() <= record_times(tmp_path).items()


def test_some_points_have_a_page_of_their_own(tmp_path: Path) -> None:
    options = ReproduceOptions(settings=SMALL, smoke=True, seeds="0", points=("alpha=0.1, eps=0.5",))
    one_point = Reproduction.from_id("strict", options, tmp_path)
    assert {cell.key.point for cell in one_point.cells} == {"alpha=0.1, eps=0.5"}
    assert one_point.output_dir == tmp_path / "strict-smoke-points"
    all_points = Reproduction.from_id("strict", replace(options, points=()), tmp_path)
    assert all_points.output_dir == tmp_path / "strict-smoke"


@pytest.mark.parametrize("name", ["fig-corr", "fig-dcr", "fig-tsne", "fig-budget", "time"])
def test_a_figure_is_drawn(name: str, tmp_path: Path, capsys) -> None:
    assert reproduce(name, "--smoke", "--seeds", "0", "--out", str(tmp_path), "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    directory = tmp_path / f"{name}-smoke"
    assert (directory / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (directory / f"{name}.svg").read_text()
    assert all(claim["verdict"] != "agrees" for claim in summary.get("claims", []))  # a smoke run has no verdict


def test_attacks_are_added_to_finished_runs(tmp_path: Path, capsys) -> None:
    options = ReproduceOptions(settings=SMALL, smoke=True, seeds="0")
    before = Reproduction.from_id("attack-office", options, tmp_path)
    job = before.jobs[0]
    run_federation(job.config, job.out)  # without attacks: it is run again
    assert before.remaining_runs == len(before.jobs)
    assert reproduce("attack-office", "--smoke", "--seeds", "0", "--out", str(tmp_path), "--json") == 0
    rows = json.loads(capsys.readouterr().out)["lines"]
    assert all({"auc", "advantage", "advantage by chance"} <= row["metrics"].keys() for row in rows)
    assert rows[0]["paper"]["cffd"] == 257.7
    assert "cffd" not in rows[0]["metrics"]  # only the membership attack is on by default
    assert before.remaining_runs == 0


def test_the_list_of_studies_needs_no_data(capsys) -> None:
    assert main(["reproduce", "--list", "--json"]) == 0
    runs = {study["id"]: study["runs"] for study in json.loads(capsys.readouterr().out)["ids"]}
    assert runs["fig-budget"] == 3
    assert runs["ablation"] >= 3 * 2 * (7 * 4 + 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "tabel1"], "did you mean 'table1'?"),
        (["reproduce", "table1"], "nothing can be run (no --data digits=DIR"),
        (["reproduce", "table1", "--data", "pacs"], "--data needs"),
        (["reproduce", "table1", "--data", "pacs=gone"], "there is no"),
        (["reproduce", "ablation", "--data", f"office_caltech={__file__}"], "is not a directory"),
        (
            ["reproduce", "ablation", "--smoke", "--backbone", "minilm"],
            "minilm reads texts; ablation needs a backbone for images",
        ),
        (["reproduce", "ablation", "--smoke", "--device", "gpu"], "must be cpu, cuda or cuda:N, got 'gpu'"),
        (["reproduce", "ablation", "--smoke", "--adapters", "foo"], "unknown place of --adapters: 'foo'"),
        (["reproduce", "table1", "--seeds", "x", "--smoke"], "seeds must look like"),
        (["reproduce", "table1", "--smoke", "--attack", "mia"], "has no column for attacks"),
        (["reproduce", "agnews", "--smoke", "--points", "0.2"], "it has '0.1', '0.5', '1', '5', '10'"),
        (["reproduce", "table1", "--smoke", "--points", "1"], "names no point of table1; it has none"),
        (["list", "gone"], "there is no folder gone"),
        (["results", "gone"], "there is no gone"),
    ],
)
def test_an_invalid_command_gives_one_line(capsys, tmp_path, monkeypatch, arguments, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("weights", [[], ["--weights", "gone"]])
def test_an_earlier_page_is_kept_if_no_row_can_run(tmp_path: Path, capsys, weights: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    earlier = tmp_path / "out" / "fig-budget" / "fig-budget.json"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("earlier")
    data = ["--data", f"office_caltech={tmp_path / 'empty'}", "--backbone", "efficientnet_lite0", *weights]
    small = ["--seeds", "0", "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main(["reproduce", "fig-budget", *data, *small]) == 2
    error = capsys.readouterr().err
    assert "fig-budget: nothing can be run: " in error
    assert len(error.strip().splitlines()) == 1
    assert [path.name for path in earlier.parent.iterdir()] == ["fig-budget.json"]
    assert earlier.read_text() == "earlier"
