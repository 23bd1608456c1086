"""Help, unknown commands, and the command line as a module."""

import json
import os
import subprocess
import sys

import pytest

from vpdr.cli import main
from vpdr.cli.app import COMMANDS, load_command


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


def _modules_after(*arguments: str) -> set[str]:
    """The modules that a command has loaded, in a process of its own."""
    code = (
        "import atexit, sys; from vpdr.cli import main; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        f"main({list(arguments)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--show-completion", "bash"]])
def test_help_version_and_completion_load_no_command(arguments) -> None:
    loaded = _modules_after(*arguments)
    assert "typer" in loaded
    assert not loaded & {"torch", "numpy", "scipy", "vpdr.api", "vpdr.config", "vpdr.cli.run", "vpdr.mechanisms"}


def test_the_list_of_commands_has_the_first_sentence_of_each_help() -> None:
    for name, (_, first_line) in COMMANDS.items():
        help_text = (load_command(name).help or "").split("\n\n")[0]
        assert " ".join(help_text.split()) == first_line, name


def test_completion_knows_commands_and_options(monkeypatch) -> None:
    for words, expected in (("vpdr se", "settings"), ("vpdr run --resu", "--resume")):
        environment = {
            **os.environ,
            "_VPDR_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
            "_TYPER_COMPLETE_ARGS": words,
        }
        code = "import sys; sys.argv[0] = 'vpdr'; from vpdr.cli import main; sys.exit(main())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert expected in done.stdout.split(), done


@pytest.mark.parametrize("arguments", [["rnu"], ["data", "chek"], ["calibrate", "--epsilonn", "1"]])
def test_a_suggestion_is_made_once(capsys, arguments) -> None:
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.lower().count("did you mean") == 1
