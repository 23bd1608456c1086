"""`vpdr run`, as a user types it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vpdr
from tests.unit.federation.conftest import TINY, timeless
from vpdr.cli import main

SETTINGS = [part for setting in TINY for part in ("--set", setting)]


def run(*arguments: str) -> int:
    return main(["run", *arguments, *SETTINGS])


def test_one_run_leaves_a_whole_folder(capsys, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run("paper", "--set", "mechanism.kind=vpp", "--set", "regulariser.kind=dcr", "--out", str(out)) == 0
    output = capsys.readouterr().out
    assert "average" in output
    assert "conditional" in output
    names = {path.name for path in out.iterdir()}
    assert names >= {"record.json", "rounds.csv", "plan.toml", "ledgers", "report.html"}
    record = json.loads((out / "record.json").read_text())
    assert record["schema"] == "vpdr-record"
    assert record["plan"]["mechanism"]["kind"] == "vpp"
    assert record.keys() >= {"rounds", "final", "privacy", "ledgers", "versions", "seed", "wall_seconds"}
    lines = (out / "rounds.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 * 3
    assert "accuracy.own.head" in lines[0]
    assert main(["ledger", str(out / "ledgers" / "client-000.json")]) == 0
    assert "0 more releases" in capsys.readouterr().out


def test_the_removed_elliptical_metric_is_refused(capsys, tmp_path: Path) -> None:
    for value in ("projection", "round"):
        assert run("strict", "--set", f"mechanism.metric={value}", "--out", str(tmp_path / "run")) == 2
        assert f"mechanism.metric={value} was removed, only mechanism.metric=plain" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert run("strict", "--set", "mechanism.metric=plain", "--json", "--out", str(tmp_path / "run")) == 0
    assert json.loads(capsys.readouterr().out)["privacy"]["level"] == "proved"


def test_the_stored_plan_runs_again(tmp_path: Path, capsys) -> None:
    assert run("paper", "--out", str(tmp_path / "a"), "--quiet") == 0
    assert main(["run", str(tmp_path / "a" / "plan.toml"), "--out", str(tmp_path / "b"), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    first, second = (json.loads((tmp_path / name / "record.json").read_text()) for name in "ab")
    assert timeless(first["rounds"]) == timeless(second["rounds"])
    assert first["identity"] == second["identity"]


def test_json_is_one_object(capsys, tmp_path: Path) -> None:
    assert run("strict", "--json", "--out", str(tmp_path / "run")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["privacy"]["level"] == "proved"
    assert printed["privacy"]["epsilon_spent"] <= 1
    assert printed["out"] == str(tmp_path / "run")
    assert set(printed["final"]["own"]["head"]["clients"]) == set(printed["clients"])
    assert printed["settings"]["mechanism.kind"] == "rapp"
    assert "mechanism.share" not in printed["settings"]  # rapp has none
    assert "rounds" not in printed
    assert all(Path(path).exists() for path in printed["paths"].values())


def test_the_whole_record_as_json(capsys, tmp_path: Path) -> None:
    assert run("paper", "--json=full", "--out", str(tmp_path / "run")) == 0
    whole = json.loads(capsys.readouterr().out)
    assert len(whole["rounds"]) == 3
    assert whole.keys() == json.loads((tmp_path / "run" / "record.json").read_text()).keys() | {"out"}
    assert run("paper", "--json=summary", "--out", str(tmp_path / "again")) == 0
    summary = json.loads(capsys.readouterr().out)
    shared = (summary.keys() & whole.keys()) - {"out", "wall_seconds"}
    assert {key: summary[key] for key in shared} == {key: whole[key] for key in shared}
    assert run("paper", "--json=all", "--out", str(tmp_path / "third")) == 2
    assert "json must be one of summary, full, got 'all'" in capsys.readouterr().err


def test_the_preset_paper_is_vpdr(capsys, tmp_path: Path) -> None:
    assert run("paper", "--out", str(tmp_path / "run")) == 0
    title = "data synthetic, framework fedproto, mechanism vpp, regulariser dcr, budget epsilon 1 and delta 1e-05"
    assert capsys.readouterr().out.startswith(f"paper: {title}\n")
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["title"] == title
    assert (record["plan"]["mechanism"]["kind"], record["plan"]["regulariser"]["kind"]) == ("vpp", "dcr")
    assert title in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ((), ("fedproto", "vpp", "dcr")),
        (("framework.kind=fedpcl",), ("fedpcl", "vpp", "dcr")),
        (("mechanism.kind=igpp",), ("fedproto", "igpp", "none")),
        (("mechanism.kind=vpp",), ("fedproto", "vpp", "none")),
        (("regulariser.kind=dcr",), ("fedproto", "igpp", "dcr")),
        (("framework.kind=local",), ("local", "igpp", "none")),
    ],
)
@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_plan_that_names_a_mechanism_or_a_regulariser_is_not_vpdr(preset, settings, kinds) -> None:
    config = vpdr.load_config(preset, *settings)
    assert (config.framework.kind, config.mechanism.kind, config.regulariser.kind) == kinds


class StopAfterOne:
    """An interrupt that comes in the first round, or after the first run."""

    def __init__(self) -> None:
        self.asked = 0

    def __enter__(self) -> "StopAfterOne":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def requested(self) -> bool:
        self.asked += 1
        return self.asked > 1


@pytest.fixture
def stopped(monkeypatch):
    """Run the command until it is stopped, and then let others run to their end."""

    def run_and_stop(*arguments: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("vpdr.cli.run.Interrupt", StopAfterOne)
            assert run(*arguments) == 130

    return run_and_stop


def test_a_directory_is_enough_to_resume_a_run(stopped, capsys, tmp_path: Path) -> None:
    out, whole = str(tmp_path / "run"), str(tmp_path / "whole")
    stopped("paper", "--out", out, "--attack", "mia")
    assert f"vpdr run --resume {out} goes on" in capsys.readouterr().err
    assert main(["run", "--resume", out, "--set", "run.rounds=4"]) == 2
    assert "a resumed run keeps its plan; leave out --set" in capsys.readouterr().err
    assert main(["run", f"--resume={out}", "--quiet"]) == 0
    assert run("paper", "--out", whole, "--attack", "mia", "--quiet") == 0
    first, second = (json.loads((Path(path) / "record.json").read_text()) for path in (out, whole))
    assert timeless(first) == timeless(second)
    assert "mia" in first["attacks"]
    assert main(["run", "--resume", out, "--json"]) == 0  # finished: the record is read
    assert json.loads(capsys.readouterr().out)["identity"] == first["identity"]


def test_a_directory_is_enough_to_resume_a_comparison(stopped, capsys, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    arguments = ("paper", "--methods", "local,vpdr", "--seeds", "0..1", "--jobs", "1")
    stopped(*arguments, "--out", str(out))
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/seed-*/record.json")}
    assert len(before) == 1
    capsys.readouterr()
    assert main(["run", "--resume", str(out), "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert len(list(out.glob("*/seed-*/record.json"))) == 4
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in before.items())
    assert run(*arguments, "--out", str(tmp_path / "whole"), "--json") == 0
    assert timeless(resumed["settings"]) == timeless(json.loads(capsys.readouterr().out)["settings"])


def test_the_old_way_to_resume_works_with_a_hint(stopped, capsys, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    stopped("paper", "--out", out)
    capsys.readouterr()
    assert run("paper", "--resume", "--out", out, "--quiet") == 0
    assert f"hint: vpdr run --resume {out} is enough" in capsys.readouterr().err
    assert (tmp_path / "run" / "record.json").exists()


def test_resuming_what_is_no_run_is_one_line(capsys, tmp_path: Path) -> None:
    assert main(["run", "--resume", str(tmp_path)]) == 2
    output = capsys.readouterr().err
    assert "holds no run that can be resumed" in output
    assert output.count("\n") == 1
    (tmp_path / "experiment.json").write_text("{")
    assert main(["run", "--resume", str(tmp_path)]) == 2
    assert "experiment.json is not whole" in capsys.readouterr().err


def test_the_progress_of_a_run_shows_the_accuracy(capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("vpdr.cli.output.SECONDS_BETWEEN_LINES", 0.0)
    assert run("paper", "--out", str(tmp_path / "run")) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    accuracy = record["final"]["own"]["framework"]["average"]
    assert f"rounds, accuracy {100 * accuracy:.1f} %: 3 of 3" in capsys.readouterr().err


def test_releases_on_a_broadcast_path_are_proved(capsys, tmp_path: Path) -> None:
    out = tmp_path / "run"
    feature_map = ("framework.kind=mpft", "mechanism.kind=igpp", "release.encoder=transcript", "budget.require=proved")
    options = [part for setting in feature_map for part in ("--set", setting)]
    assert run("paper", *options, "--out", str(out)) == 0
    assert "transcript encoder, public counts, exact accountant: proved" in capsys.readouterr().out
    privacy = json.loads((out / "record.json").read_text())["privacy"]
    assert (privacy["encoder"], privacy["level"]) == ("transcript", "proved")
    assert privacy["epsilon_spent"] <= 1
    assert not any("trained on the private samples" in words for words in privacy["not_covered"])
    assert "transcript" in (out / "report.html").read_text()
    assert main(["ledger", str(out / "ledgers" / "client-000.json")]) == 0
    assert "transcript" in capsys.readouterr().out
    assert main(["attack", str(out), "--attack", "mia", "--rounds", "1,3"]) == 0
    assert main(["audit", str(out), "--trials", "20", "--seed", "1", "--pair", "antipodal"]) == 0


def test_a_comparison_has_a_folder_a_run_and_a_summary(capsys, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    arguments = ["--methods", "local,none,vpdr", "--seeds", "0..1", "--jobs", "1", "--out", str(out)]
    assert run("paper", *arguments, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    methods = summary["settings"][""]["methods"]
    assert set(methods) == {"local", "none", "vpdr"}
    assert methods["vpdr"]["metrics"]["own.framework"]["low"] is not None
    assert len(list(out.glob("*/seed-*/record.json"))) == 6
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/seed-*/record.json")}
    assert run("paper", *arguments) == 2
    assert "already holds a comparison" in capsys.readouterr().err
    assert run("paper", *arguments, "--resume", "--quiet") == 0
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("*/seed-*/record.json")}


def test_paired_differences_have_a_baseline(capsys, tmp_path: Path) -> None:
    arguments = ["--methods", "local,igpp", "--seeds", "0..1", "--jobs", "1", "--out", str(tmp_path / "x"), "--json"]
    assert run("paper", *arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["baseline"] == "local"
    values = summary["settings"][""]["paired"]["igpp"]["own.framework"]["values"]
    assert len(values) == 2


@pytest.mark.slow
def test_two_workers_give_the_same_records(tmp_path: Path) -> None:
    for workers in ("1", "2"):
        out = tmp_path / workers
        assert run("paper", "--methods", "none,igpp", "--jobs", workers, "--out", str(out), "--quiet") == 0
    for method in ("none", "igpp"):
        one, two = (json.loads((tmp_path / w / method / "seed-0" / "record.json").read_text()) for w in "12")
        assert timeless(one) == timeless(two)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["papr"], "did you mean 'paper'?"),
        (["paper", "--set", "budget.epsilon=-1"], "epsilon must be a positive number"),
        (["paper", "--set", "budgt.epsilon=1"], "did you mean 'budget'?"),
        (["paper", "--seeds", "x"], "seeds must look like"),
        (["paper", "--methods", "locl"], "did you mean 'local'?"),
        (["gone.toml"], "cannot read gone.toml"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(capsys, tmp_path, monkeypatch, arguments, words) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *arguments]) == 2
    output = capsys.readouterr().err
    assert words in output
    assert output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(capsys, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run("paper", "--out", str(tmp_path / "file" / "run")) == 2
    assert capsys.readouterr().err.startswith("error: cannot write")


def test_the_next_free_name_is_taken(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("paper", "--quiet") == 0
    assert run("paper", "--quiet") == 0
    assert (tmp_path / "runs" / "paper-2" / "record.json").exists()


@pytest.mark.slow
def test_ctrl_c_leaves_a_state_to_resume_from(tmp_path: Path) -> None:
    settings = [part for setting in (*TINY, "run.rounds=150") for part in ("--set", setting)]
    out = tmp_path / "run"
    command = [sys.executable, "-m", "vpdr", "run", "paper", "--quiet", "--out", str(out), *settings]
    worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (out / "plan.toml").exists():  # written just before the first round
        assert worker.poll() is None, worker.communicate()[1]
        time.sleep(0.02)
    os.kill(worker.pid, signal.SIGINT)
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 130
    first, second = errors.splitlines()
    assert "once more to stop at once" in first
    assert "--resume" in second
    assert (out / "checkpoint.pt").exists()
    assert not (out / "record.json").exists()
    assert main(["run", "paper", "--quiet", "--resume", "--out", str(out), *settings]) == 0
    whole = tmp_path / "whole"
    assert main(["run", "paper", "--quiet", "--out", str(whole), *settings]) == 0
    first, second = (json.loads((path / "record.json").read_text()) for path in (out, whole))
    assert timeless(first) == timeless(second)


def test_a_schedule_of_unknown_clients_is_refused_and_leaves_nothing(capsys, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run("paper", "--out", str(out), "--set", "participation.schedule.nobody=[1]") == 2
    assert "unknown client in participation.schedule: 'nobody'" in capsys.readouterr().err
    assert not out.exists()


def test_files_follow_the_users_umask_and_ledgers_stay_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        assert run("paper", "--quiet", "--out", str(tmp_path / "run")) == 0
    finally:
        os.umask(before)
    mode = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert mode["record.json"] == mode["report.html"] == 0o644
    assert mode["client-000.json"] == 0o600


@pytest.mark.parametrize("arguments", [["calibrate"], ["calibrate", "--json"]])
def test_a_full_standard_output_is_one_line(arguments) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vpdr", *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr == "error: cannot write the results: No space left on device\n"


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m vpdr calibrate | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version(capsys) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("vpdr 0.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", ""], "--out must name a directory"),
        (["--jobs", "-3"], "-3"),
        (["--methods", ","], "unknown method: ''"),
        (["--attack-rounds", "1"], "--attack-rounds has no effect without --attack"),
        (["--attack-stronger"], "--attack-stronger has no effect without --attack"),
    ],
)
def test_odd_options_are_refused(capsys, arguments, words) -> None:
    assert run("paper", *arguments) == 2
    assert words in capsys.readouterr().err


def test_the_help_shows_what_happens_without_an_option(capsys) -> None:
    assert main(["run", "--help"]) == 0
    output = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "a free runs/NAME if not given" in output
    assert "0 is one per core" in output
