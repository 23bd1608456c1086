"""Plug-in files: what they register, and what is said of files that cannot be used."""

import os
from pathlib import Path

import pytest

from vpdr import METHODS, registry
from vpdr.registry import load_plugin, load_stored_plugins, loaded_plugins, unload_plugin
from vpdr.validation import InvalidInput

QUIET = 'import vpdr\nvpdr.METHODS.register("quiet", {"budget": {"epsilon": 0.5}})\n'


@pytest.fixture
def plugin(tmp_path):
    """Write a plug-in file; it is unloaded after the test."""
    written = []

    def write(text: str, name: str = "mine.py") -> Path:
        written.append(tmp_path / name)
        written[-1].write_text(text)
        return written[-1]

    yield write
    for path in written:
        unload_plugin(path)


def test_a_file_is_loaded_once_and_again_after_a_change(plugin) -> None:
    path = plugin(QUIET)
    assert load_plugin(path).description == "method quiet"
    assert load_plugin(path) is loaded_plugins()[-1]
    plugin(QUIET.replace("quiet", "silent"))
    load_plugin(path)
    assert "quiet" not in METHODS
    assert "silent" in METHODS
    unload_plugin(path)
    assert "silent" not in METHODS
    assert str(path) not in os.environ[registry.PLUGINS_VAR]


def test_the_environment_names_files(plugin, monkeypatch) -> None:
    monkeypatch.setenv(registry.PLUGINS_VAR, str(plugin(QUIET)))
    assert METHODS["quiet"] == {"budget": {"epsilon": 0.5}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nx = 1 / 0\n", "line 2: ZeroDivisionError: division by zero"),
        ("def broken(:\n", "line 1: invalid syntax"),
        (QUIET + "raise SystemExit(3)\n", "line 3: SystemExit: 3"),
        ("x = 1\n", ": it registers nothing; call vpdr.MECHANISMS.register"),
        (QUIET.replace("quiet", "igpp"), "line 2: method 'igpp' is registered already"),
        (QUIET.replace("budget", "bugdet"), "line 2: unknown section: 'bugdet'; did you mean 'budget'"),
        (QUIET.replace("quiet", "a/b"), "line 2: methods: 'a/b' names a folder"),
        ('import vpdr\nvpdr.MECHANISMS.register("m", dict)\n', "line 2: mechanism 'm' lacks traits, from_config"),
    ],
)
def test_an_error_is_one_line_and_leaves_nothing(plugin, text, message) -> None:
    path = plugin(text)
    for _ in range(2):
        with pytest.raises(InvalidInput) as caught:
            load_plugin(path)
        assert str(caught.value).startswith(f"plug-in {path}")
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    assert "quiet" not in METHODS
    assert path not in [each.path for each in loaded_plugins()]


def test_a_file_of_the_environment_fails_at_every_read(plugin, monkeypatch) -> None:
    monkeypatch.setenv(registry.PLUGINS_VAR, str(plugin("1 / 0\n")))
    for _ in range(2):
        with pytest.raises(InvalidInput, match="line 1: ZeroDivisionError"):
            list(METHODS)


def test_a_stored_file_is_loaded_only_as_it_was(plugin, tmp_path) -> None:
    path = plugin(QUIET)
    stored = {str(path): load_plugin(path).digest}
    unload_plugin(path)
    load_stored_plugins(stored)
    assert "quiet" in METHODS
    unload_plugin(path)
    path.write_text("raise RuntimeError('executed')\n")
    with pytest.raises(InvalidInput, match=r"mine.py was changed since this plan was stored"):
        load_stored_plugins(stored)
    path.unlink()
    with pytest.raises(InvalidInput, match=r"mine.py of this plan is missing; put it back, or name its copy"):
        load_stored_plugins(stored)
    load_plugin(plugin(QUIET, "copy.py"))
    load_stored_plugins(stored)
