"""One run that fails does not end a reproduction: the others go on, and the next call tries it again."""

import json
import os
from pathlib import Path

import pytest

from tests.reproduce.reproduction_cases import SETTINGS, SMALL
from vpdr.cli import main
from vpdr.engines import sweep as sweeping
from vpdr.engines.sweep import Done, Job, sweep
from vpdr.errors import InvalidInput
from vpdr.reproduce import running
from vpdr.reproduce.reproduction import Reproduction
from vpdr.reproduce.running import finished
from vpdr.reproduce.wish import Wish

SHORT = [*SETTINGS, "--smoke", "--seeds", "0"]


def reproduction(out: Path, name: str = "fig-budget") -> Reproduction:
    return Reproduction.of(name, Wish(settings=SMALL, smoke=True, seeds="0"), out)


def run(out: Path, *more: str, name: str = "fig-budget", jobs: int = 1) -> int:
    return main(["reproduce", name, *SHORT, "--out", str(out), "--jobs", str(jobs), *more])


@pytest.fixture
def broken(monkeypatch):
    """Runs of these methods fail; the caller may mend them."""
    methods: set[str] = set()
    whole = sweeping.run_plan

    def run_plan(plan, out, **how):
        name = "vpdr-random" if plan.mechanism.selection == "random" else plan.mechanism.kind
        if name in methods:
            raise RuntimeError("the disk\nis on fire")
        return whole(plan, out, **how)

    monkeypatch.setattr(sweeping, "run_plan", run_plan)
    return methods


def test_the_others_go_on_and_the_page_says_why(tmp_path: Path, capsys, broken: set[str]) -> None:
    broken.add("igpp")
    assert run(tmp_path) == 1
    told = capsys.readouterr()
    why = "RuntimeError: the disk is on fire"
    assert f"not run ({why})" in told.out
    last = told.err.splitlines()[-2:]
    assert last[0].startswith(f"failed: fig-budget office_caltech igpp R=5 seed 0: {why}")
    assert last[1] == "1 of 3 runs failed; the same command tries them again"
    summary = json.loads((tmp_path / "fig-budget-smoke" / "fig-budget.json").read_text())
    verdicts = {line["method"]: line["verdict"] for line in summary["lines"]}
    assert verdicts.pop("igpp") == f"not run ({why})"
    assert not any("not run" in verdict for verdict in verdicts.values())


def test_only_what_failed_is_tried_again(tmp_path: Path, capsys, broken: set[str]) -> None:
    broken.add("igpp")
    run(tmp_path)
    (job,) = [job for job in reproduction(tmp_path).jobs if not finished(job)]
    assert "on fire" in (job.out / "failure.txt").read_text()
    assert main(["list", str(tmp_path), "--runs"]) == 0
    assert "failed" in capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/record.json")}
    broken.clear()
    assert run(tmp_path) == 0
    assert capsys.readouterr().err.splitlines()[0] == "2 of 3 runs were there already"
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/record.json")}
    assert before.items() <= after.items()
    assert len(after) == 3
    assert not (job.out / "failure.txt").exists()


def test_failures_are_told_also_in_silence(tmp_path: Path, capsys, broken: set[str]) -> None:
    broken.add("igpp")
    assert run(tmp_path, "--json") == 1
    told = capsys.readouterr()
    (failed,) = json.loads(told.out)["failed"]
    assert failed["method"] == "igpp"
    assert failed["why"] == "RuntimeError: the disk is on fire"
    assert len(told.err.splitlines()) == 2
    assert run(tmp_path, "--quiet") == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_where_all_failed_no_page_is_written(tmp_path: Path, capsys, broken: set[str]) -> None:
    broken |= {"igpp", "vpp", "vpdr-random"}
    assert run(tmp_path, "--quiet") == 1
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in told[:3]] == ["failed"] * 3
    assert told[3] == "3 of 3 runs failed, so no page is written; the same command tries them again"
    assert not (tmp_path / "fig-budget-smoke").exists()


def test_a_picture_of_a_run_that_failed_is_that_of_the_table(tmp_path: Path, broken: set[str]) -> None:
    broken.add("vpp")
    assert run(tmp_path, "--quiet", name="fig-tsne") == 1
    assert (tmp_path / "fig-tsne-smoke" / "fig-tsne.png").exists()


def test_data_that_cannot_be_prepared_keep_their_rows_only(tmp_path: Path, capsys, monkeypatch) -> None:
    whole = running.build

    def build(plan, *rest):
        if plan.mechanism.kind == "igpp":
            raise OSError("input/output error")
        return whole(plan, *rest)

    monkeypatch.setattr(running, "build", build)
    assert run(tmp_path, "--quiet") == 1
    assert capsys.readouterr().err.startswith("failed: fig-budget office_caltech igpp R=5 seed 0: OSError: ")
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 2


def test_side_by_side_a_failure_is_told_by_its_worker(tmp_path: Path, capsys) -> None:
    job = reproduction(tmp_path).jobs[0]
    job.out.parent.mkdir(parents=True)
    job.out.write_text("a file where the run wants a folder")
    assert run(tmp_path, "--quiet", jobs=2) == 1
    assert "failed: fig-budget office_caltech igpp R=5 seed 0: cannot write" in capsys.readouterr().err
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 2


class Deadly(Job):
    """A run whose worker dies of it."""

    def __reduce__(self):
        return os._exit, (1,)


def test_a_worker_that_dies_takes_no_other_run_with_it(tmp_path: Path) -> None:
    jobs = reproduction(tmp_path).jobs
    deadly = Deadly("", "deadly", jobs[0].plan, tmp_path / "deadly")
    found = list(sweep([deadly, *jobs], workers=2, resume=True, keep_going=True))
    assert {done.job.method for done in found if done.record is not None} == {job.method for job in jobs}
    (died,) = [done for done in found if done.record is None]
    assert died.job.method == "deadly"
    assert "its process died" in str(died.trouble)
    with pytest.raises(InvalidInput, match="a worker process died"):
        list(sweep([deadly], workers=2, resume=True))


def test_a_comparison_still_ends_at_the_first_failure(tmp_path: Path, broken: set[str]) -> None:
    broken.add("igpp")
    with pytest.raises(RuntimeError, match="on fire"):
        list(sweep(reproduction(tmp_path).jobs, workers=1, resume=True))


def test_a_second_interrupt_ends_it_at_once(tmp_path: Path, monkeypatch) -> None:
    def interrupted(*_, **__) -> Done:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "run_plan", interrupted)
    assert run(tmp_path, "--quiet") == 130
