"""Help, unknown commands, and the command line as a module."""

import json
import subprocess
import sys

import pytest

from vpdr.cli import main


@pytest.mark.parametrize("command", ["calibrate", "ledger"])
def test_every_command_has_help(capsys, command) -> None:
    assert main([command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def test_an_unknown_command_is_one_line(capsys) -> None:
    assert main(["calibrat"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_without_a_command_the_help_is_shown(capsys) -> None:
    assert main([]) == 0
    assert "calibrate" in capsys.readouterr().out


def test_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vpdr", "calibrate", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["mechanism"] == "vpp"
    failed = subprocess.run(
        [sys.executable, "-m", "vpdr", "calibrate", "--epsilon", "0"], capture_output=True, text=True
    )
    assert failed.returncode == 2
    assert failed.stderr == "error: epsilon must be a positive number, got 0\n"
