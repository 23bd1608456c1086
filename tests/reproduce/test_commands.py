"""`vpdr reproduce`, `vpdr list` and `vpdr results`, as a user types them."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reproduce.reproduction_cases import SETTINGS, SMALL
from vpdr.cli import main
from vpdr.cli.reproduce_table import tell
from vpdr.engines.runner import run_plan
from vpdr.reproduce.reproduction import Reproduction, reproduce
from vpdr.reproduce.running import Company
from vpdr.reproduce.wish import Wish


def run(*arguments: str) -> int:
    return main(["reproduce", *arguments, *SETTINGS, "--jobs", "1"])


def records(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("runs/*/record.json")}


@pytest.fixture(scope="module")
def ablation(tmp_path_factory) -> Path:
    """The folder of a small ablation."""
    out = tmp_path_factory.mktemp("ablation")
    assert run("ablation", "--smoke", "--seeds", "0", "--out", str(out), "--quiet") == 0
    return out


def test_an_ablation_leaves_a_page_and_the_whole_grid(ablation: Path) -> None:
    folder = ablation / "ablation-smoke"
    assert {path.name for path in folder.iterdir()} == {
        f"ablation.{kind}" for kind in ("md", "csv", "json", "png", "svg")
    }
    page = (folder / "ablation.md").read_text()
    assert page.startswith("# SMOKE: Ablation of VPP and DCR")
    assert "neither the paper nor we account for that" in page
    rows = list(csv.DictReader((folder / "ablation.csv").read_text().splitlines()))
    igpp = [row for row in rows if row["method"] == "igpp" and row["dataset"] == "pacs"]
    assert [row["radius"] for row in igpp] == ["5.0", "20.0"]
    assert [row["chosen"] for row in igpp].count("True") == 1


def test_what_is_done_is_not_run_again(ablation: Path, capsys) -> None:
    before = records(ablation)
    assert len(before) % 2 == 1  # two values of R for each method but local; both data sets stand for one
    assert run("ablation", "--smoke", "--seeds", "0", "--out", str(ablation)) == 0
    told = capsys.readouterr().out
    assert told.startswith("SMOKE")
    assert "not judged (smoke)" in told
    assert "pacs (embedded digits)" in told
    assert records(ablation) == before


def test_the_list_says_what_is_done(ablation: Path, capsys) -> None:
    assert main(["list", str(ablation), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    states = {(page["id"], page["smoke"]): page["state"] for page in found["ids"]}
    assert states["ablation", True] in {"done", "partly done"}  # some arms may not be in this version
    assert states["table1", False] == "missing"
    assert all(each["state"] == "done" for each in found["runs"])
    assert main(["list", str(ablation), "--runs"]) == 0
    assert "synthetic fedproto" in capsys.readouterr().out


def test_results_are_one_page(ablation: Path, tmp_path: Path) -> None:
    assert main(["results", str(ablation / "ablation-smoke"), "--out", str(tmp_path / "RESULTS.md")]) == 0
    assert "| SMOKE, " in (tmp_path / "RESULTS.md").read_text()


def test_results_look_below_an_out_and_leave_smoke_runs_out(ablation: Path, tmp_path: Path, capsys) -> None:
    assert main(["results", str(ablation)]) == 2
    assert "only smoke runs in" in capsys.readouterr().err
    shutil.copytree(ablation / "ablation-smoke", tmp_path / "ablation-smoke")
    summary = json.loads((ablation / "ablation-smoke" / "ablation.json").read_text())
    (tmp_path / "ablation").mkdir()
    (tmp_path / "ablation" / "ablation.json").write_text(json.dumps({**summary, "smoke": False}))
    assert main(["results", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "smoke runs are left out: ablation-smoke;" in told.err
    assert "## ablation: Ablation" in told.out
    assert "SMOKE" not in told.out


def test_a_log_has_a_line_for_each_run(tmp_path: Path, capsys) -> None:
    small = ("fig-budget", "--smoke", "--out", str(tmp_path))
    assert run(*small, "--seeds", "0") == 0
    told = capsys.readouterr().err.splitlines()
    runs = len(records(tmp_path))
    assert len(told) == runs
    assert re.fullmatch(rf"1 of {runs} runs: fig-budget office_caltech \S+ R=5 seed 0, \d+\.\d s", told[0])
    assert run(*small, "--seeds", "0") == 0
    assert capsys.readouterr().err == f"{runs} of {runs} runs were there already\n"
    for silent in ("--quiet", "--json"):
        assert run(*small, "--seeds", "1", silent) == 0
        assert not capsys.readouterr().err


def test_a_reason_is_told_once_for_all_its_rows(tmp_path: Path, capsys) -> None:
    wish = Wish(settings=SMALL, smoke=True, seeds="0")
    what = Reproduction.of("ablation", wish, tmp_path)
    cells = [replace(cell, base=None, radii=(), why_not="no such data") for cell in what.cells[1:]]
    done = reproduce(replace(what, cells=(what.cells[0], *cells)), Company())
    assert done.summary is not None
    tell(done.summary, tmp_path)
    told = capsys.readouterr().out
    assert told.count("no such data") == len(done.summary["datasets"])
    assert "rows: PACS (embedded digits instead): not run (no such data)" in told


def test_a_stopped_reproduction_goes_on(tmp_path: Path) -> None:
    wish = Wish(settings=SMALL, smoke=True, seeds="0")
    what = Reproduction.of("fig-budget", wish, tmp_path)
    done = []
    stopped = reproduce(what, Company(after_run=done.append, stop=lambda: len(done) >= 1))
    assert stopped.summary is None
    assert not what.folder.exists()
    assert what.left == len(what.jobs) - 1
    before = records(tmp_path)
    assert reproduce(what, Company()).summary is not None
    assert before.items() <= records(tmp_path).items()


def test_some_points_have_a_page_of_their_own(tmp_path: Path) -> None:
    wish = Wish(settings=SMALL, smoke=True, seeds="0", points=("alpha=0.1, eps=0.5",))
    some = Reproduction.of("strict", wish, tmp_path)
    assert {cell.place.point for cell in some.cells} == {"alpha=0.1, eps=0.5"}
    assert some.folder == tmp_path / "strict-smoke-points"
    assert Reproduction.of("strict", replace(wish, points=()), tmp_path).folder == tmp_path / "strict-smoke"


@pytest.mark.parametrize("name", ["fig-corr", "fig-dcr", "fig-tsne", "fig-budget", "time"])
def test_a_figure_is_drawn(name: str, tmp_path: Path, capsys) -> None:
    assert run(name, "--smoke", "--seeds", "0", "--out", str(tmp_path), "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    folder = tmp_path / f"{name}-smoke"
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / f"{name}.svg").read_text()
    assert all(claim["verdict"] != "agrees" for claim in summary.get("claims", []))  # it is only a smoke run


def test_attacks_fill_their_columns_also_afterwards(tmp_path: Path, capsys) -> None:
    wish = Wish(settings=SMALL, smoke=True, seeds="0")
    before = Reproduction.of("attack-office", wish, tmp_path)
    job = before.jobs[0]
    run_plan(job.plan, job.out)  # made without attacks: it is played again
    assert before.left == len(before.jobs)
    assert run("attack-office", "--smoke", "--seeds", "0", "--out", str(tmp_path), "--json") == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    assert all({"auc", "advantage", "advantage by chance"} <= line["metrics"].keys() for line in lines)
    assert lines[0]["paper"]["cffd"] == 257.7
    assert "cffd" not in lines[0]["metrics"]  # nobody asked for reconstructions
    assert before.left == 0


def test_the_list_needs_nothing(capsys) -> None:
    assert main(["reproduce", "--list", "--json"]) == 0
    found = {each["id"]: each["runs"] for each in json.loads(capsys.readouterr().out)["ids"]}
    assert found["fig-budget"] == 3
    assert found["ablation"] >= 3 * 2 * (7 * 4 + 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "tabel1"], "did you mean 'table1'?"),
        (["reproduce", "table1"], "nothing can be run (no --data digits=DIR"),
        (["reproduce", "table1", "--data", "pacs"], "--data needs"),
        (["reproduce", "table1", "--data", "pacs=gone"], "there is no"),
        (["reproduce", "ablation", "--data", f"office_caltech={__file__}"], "is not a folder"),
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
def test_a_mistake_is_one_line(capsys, tmp_path, monkeypatch, arguments, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert words in told.err
    assert len(told.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("weights", [[], ["--weights", "gone"]])
def test_where_no_row_can_run_an_earlier_page_stays(tmp_path: Path, capsys, weights: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    earlier = tmp_path / "out" / "fig-budget" / "fig-budget.json"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("earlier")
    data = ["--data", f"office_caltech={tmp_path / 'empty'}", "--backbone", "efficientnet_lite0", *weights]
    small = ["--seeds", "0", "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main(["reproduce", "fig-budget", *data, *small]) == 2
    told = capsys.readouterr()
    assert "fig-budget: nothing can be run: " in told.err
    assert len(told.err.strip().splitlines()) == 1
    assert [path.name for path in earlier.parent.iterdir()] == ["fig-budget.json"]
    assert earlier.read_text() == "earlier"
