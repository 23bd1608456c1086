"""A failed run does not end a reproduction: the others run, and the next call tries it again."""

import json
import os
from pathlib import Path

import pytest

from tests.unit.reproduce.study_cases import SMALL, SMALL_OPTIONS
from vpdr.cli import main
from vpdr.federation import Job, JobResult, sweep
from vpdr.federation import run as federation_run
from vpdr.reproduce import run as run_module
from vpdr.reproduce.reproduction import Reproduction
from vpdr.reproduce.run import is_finished
from vpdr.reproduce.studies import ReproduceOptions
from vpdr.validation import InvalidInput

SMOKE = [*SMALL_OPTIONS, "--smoke", "--seeds", "0"]


def make_reproduction(out: Path, name: str = "fig-budget") -> Reproduction:
    return Reproduction.from_id(name, ReproduceOptions(settings=SMALL, smoke=True, seeds="0"), out)


def reproduce(out: Path, *options: str, name: str = "fig-budget", jobs: int = 1) -> int:
    return main(["reproduce", name, *SMOKE, "--out", str(out), "--jobs", str(jobs), *options])


@pytest.fixture
def failing_methods(monkeypatch):
    """The methods whose runs fail; tests add and remove them."""
    methods: set[str] = set()
    original = federation_run.run_federation

    def run_or_fail(config, out, **options):
        name = "vpdr-random" if config.mechanism.selection == "random" else config.mechanism.kind
        if name in methods:
            raise RuntimeError("the disk\nis on fire")
        return original(config, out, **options)

    monkeypatch.setattr(federation_run, "run_federation", run_or_fail)
    return methods


def test_the_other_runs_continue_and_the_page_names_the_error(
    tmp_path: Path, capsys, failing_methods: set[str]
) -> None:
    failing_methods.add("igpp")
    assert reproduce(tmp_path) == 1
    output = capsys.readouterr()
    error = "RuntimeError: the disk is on fire"
    assert f"not run ({error})" in output.out
    last = output.err.splitlines()[-2:]
    assert last[0].startswith(f"failed: fig-budget office_caltech igpp R=5 seed 0: {error}")
    assert last[1] == "1 of 3 runs failed; the same command tries them again"
    summary = json.loads((tmp_path / "fig-budget-smoke" / "fig-budget.json").read_text())
    verdicts = {row["method"]: row["verdict"] for row in summary["lines"]}
    assert verdicts.pop("igpp") == f"not run ({error})"
    assert not any("not run" in verdict for verdict in verdicts.values())


def test_only_failed_runs_are_tried_again(tmp_path: Path, capsys, failing_methods: set[str]) -> None:
    failing_methods.add("igpp")
    reproduce(tmp_path)
    (job,) = [job for job in make_reproduction(tmp_path).jobs if not is_finished(job)]
    assert "on fire" in (job.out / "failure.txt").read_text()
    assert main(["list", str(tmp_path), "--runs"]) == 0
    assert "failed" in capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/record.json")}
    failing_methods.clear()
    assert reproduce(tmp_path) == 0
    assert capsys.readouterr().err.splitlines()[0] == "2 of 3 runs were there already"
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/record.json")}
    assert before.items() <= after.items()
    assert len(after) == 3
    assert not (job.out / "failure.txt").exists()


def test_failures_are_printed_also_with_json_and_quiet(tmp_path: Path, capsys, failing_methods: set[str]) -> None:
    failing_methods.add("igpp")
    assert reproduce(tmp_path, "--json") == 1
    output = capsys.readouterr()
    (failed,) = json.loads(output.out)["failed"]
    assert failed["method"] == "igpp"
    assert failed["why"] == "RuntimeError: the disk is on fire"
    assert len(output.err.splitlines()) == 2
    assert reproduce(tmp_path, "--quiet") == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_no_page_is_written_if_all_runs_fail(tmp_path: Path, capsys, failing_methods: set[str]) -> None:
    failing_methods |= {"igpp", "vpp", "vpdr-random"}
    assert reproduce(tmp_path, "--quiet") == 1
    errors = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in errors[:3]] == ["failed"] * 3
    assert errors[3] == "3 of 3 runs failed, so no page is written; the same command tries them again"
    assert not (tmp_path / "fig-budget-smoke").exists()


def test_the_figure_of_a_failed_run_is_the_dot_plot(tmp_path: Path, failing_methods: set[str]) -> None:
    failing_methods.add("vpp")
    assert reproduce(tmp_path, "--quiet", name="fig-tsne") == 1
    assert (tmp_path / "fig-tsne-smoke" / "fig-tsne.png").exists()


def test_an_error_while_building_concerns_only_its_rows(tmp_path: Path, capsys, monkeypatch) -> None:
    original = run_module.build

    def build(config, *arguments):
        if config.mechanism.kind == "igpp":
            raise OSError("input/output error")
        return original(config, *arguments)

    monkeypatch.setattr(run_module, "build", build)
    assert reproduce(tmp_path, "--quiet") == 1
    assert capsys.readouterr().err.startswith("failed: fig-budget office_caltech igpp R=5 seed 0: OSError: ")
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 2


@pytest.mark.slow
def test_a_failure_in_a_worker_process_is_reported(tmp_path: Path, capsys) -> None:
    job = make_reproduction(tmp_path).jobs[0]
    job.out.parent.mkdir(parents=True)
    job.out.write_text("a file instead of the directory of the run")
    assert reproduce(tmp_path, "--quiet", jobs=2) == 1
    assert "failed: fig-budget office_caltech igpp R=5 seed 0: cannot write" in capsys.readouterr().err
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 2


class CrashingJob(Job):
    """A job that ends its worker process."""

    def __reduce__(self):
        return os._exit, (1,)


@pytest.mark.slow
def test_a_crashed_worker_does_not_stop_other_runs(tmp_path: Path) -> None:
    jobs = make_reproduction(tmp_path).jobs
    crashing = CrashingJob("", "crashing", jobs[0].config, tmp_path / "crashing")
    results = list(sweep([crashing, *jobs], workers=2, resume=True, keep_going=True))
    finished = {result.job.method for result in results if result.record is not None}
    assert finished == {job.method for job in jobs}
    (crashed,) = [result for result in results if result.record is None]
    assert crashed.job.method == "crashing"
    assert "its process died" in str(crashed.error)
    with pytest.raises(InvalidInput, match="a worker process died"):
        list(sweep([crashing], workers=2, resume=True))


def test_a_sweep_without_keep_going_ends_at_the_first_failure(tmp_path: Path, failing_methods: set[str]) -> None:
    failing_methods.add("igpp")
    with pytest.raises(RuntimeError, match="on fire"):
        list(sweep(make_reproduction(tmp_path).jobs, workers=1, resume=True))


def test_a_second_interrupt_ends_the_command(tmp_path: Path, monkeypatch) -> None:
    def interrupted(*_, **__) -> JobResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(federation_run, "run_federation", interrupted)
    assert reproduce(tmp_path, "--quiet") == 130
