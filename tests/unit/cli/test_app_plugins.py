"""`--plugin FILE.py`: a mechanism and a method of a file behave as the built-in ones."""

import json
import re
from pathlib import Path

import pytest

from vpdr.cli import main
from vpdr.registry import unload_plugin

MINE = """
import vpdr

class Mine(vpdr.Igpp):
    '''IGPP under a name of its own.'''

vpdr.MECHANISMS.register("mine", Mine)
vpdr.METHODS.register("mine", {"mechanism": {"kind": "mine"}})
"""
SMALL = [
    *("--set", "benchmark.kind=synthetic", "--set", "benchmark.samples=40"),
    *("--set", "model.dim=8", "--set", "run.rounds=2"),
]


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    yield path
    unload_plugin(path)


def test_its_names_are_listed(mine, capsys) -> None:
    assert main(["methods", "--plugin", str(mine), "--json"]) == 0
    lists = json.loads(capsys.readouterr().out)
    assert lists["methods"]["mine"] == "IGPP under a name of its own. (mechanism.kind=mine)"
    assert lists["mechanisms"]["mine"] == "IGPP under a name of its own."
    assert main(["settings", "mechanism", "--json"]) == 0
    kind = next(each for each in json.loads(capsys.readouterr().out)["settings"] if each["name"] == "kind")
    assert "mine" in kind["choices"]
    assert main(["calibrate", "--mechanism", "mine", "--json"]) == 0
    calibration = json.loads(capsys.readouterr().out)
    assert calibration["mechanism"] == "mine"
    assert calibration["noise_multiplier"] == pytest.approx(16.68, abs=0.01)


def test_a_run_states_its_plug_in_and_resumes_with_it_alone(mine, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    command = ["run", "paper", "--plugin", str(mine), "--methods", "igpp,mine", "--seeds", "0", *SMALL]
    assert main([*command, "--jobs", "2", "--out", str(out), "--quiet"]) == 0
    plan = (out / "mine" / "seed-0" / "plan.toml").read_text()
    assert re.search(r'\[plugins\]\n".*mine.py" = "[0-9a-f]{64}"', plan)
    assert "mine" in (out / "report.html").read_text()
    records = [json.loads((out / name / "seed-0" / "record.json").read_text()) for name in ("igpp", "mine")]
    assert records[0]["final"] == records[1]["final"]
    assert records[1]["plan"]["mechanism"]["kind"] == "mine"

    unload_plugin(mine)
    assert main(["run", "--resume", str(out), "--quiet"]) == 0
    single = tmp_path / "single"
    assert main(["run", str(out / "mine" / "seed-0" / "plan.toml"), "--out", str(single), "--quiet"]) == 0

    unload_plugin(mine)
    assert main(["audit", str(single), "--trials", "60", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["audited"]["mechanism"] == "mine"
    unload_plugin(mine)
    assert main(["attack", str(single), "--quiet"]) == 0

    unload_plugin(mine)
    mine.write_text(MINE + "\n# another version\n")
    for directory in (out, single):
        assert main(["run", "--resume", str(directory), "--quiet"]) == 2
        assert "mine.py was changed since this plan was stored" in capsys.readouterr().err
    moved = tmp_path / "moved.py"
    moved.write_text(MINE)
    mine.unlink()
    assert main(["run", "--resume", str(single), "--quiet"]) == 2
    assert "mine.py of this plan is missing" in capsys.readouterr().err
    try:
        assert main(["run", "--resume", str(single), "--plugin", str(moved), "--quiet"]) == 0
    finally:
        unload_plugin(moved)


@pytest.mark.parametrize("command", ["run", "methods", "doctor", "reproduce", "calibrate", "audit", "attack"])
def test_an_error_in_the_file_is_one_line(tmp_path: Path, command, capsys) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import vpdr\nvpdr.MECHANISMS.register('mine')\n")
    assert main([command, "--plugin", str(broken)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "broken.py, line 2: TypeError" in error
    assert main([command, "--plugin", str(tmp_path / "none.py")]) == 2
    assert "none.py: No such file or directory; expected a Python file" in capsys.readouterr().err


def test_a_flower_simulation_knows_it(mine, tmp_path) -> None:
    pytest.importorskip("flwr")
    assert main(["flower", "simulate", "--plugin", str(mine), "--set", "mechanism.kind=mine", *SMALL,
                 "--out", str(tmp_path / "flower"), "--json"]) == 0  # fmt: skip
    assert "[plugins]" in (tmp_path / "flower" / "plan.toml").read_text()
