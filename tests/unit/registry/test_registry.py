"""Plug-ins by name: those of other packages, and names that are not there."""

import multiprocessing
import os
import subprocess
import sys
from importlib import metadata

import pytest

from vpdr.registry import Registry
from vpdr.validation import InvalidInput


@pytest.fixture
def entry_points(monkeypatch) -> list[metadata.EntryPoint]:
    points: list[metadata.EntryPoint] = []
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    return points


def point(name: str, value: str) -> metadata.EntryPoint:
    return metadata.EntryPoint(name, value, "vpdr.colours")


def test_an_entry_point_that_cannot_be_imported_is_reported_in_one_line(entry_points) -> None:
    entry_points += [point("pi", "math:pi"), point("mauve", "no_such_package.colours:MAUVE")]
    registry = Registry("colour", {"red": 1})
    for _ in range(2):  # the second read must not skip the other plug-ins
        with pytest.raises(InvalidInput) as caught:
            registry["red"]
        assert str(caught.value) == (
            "colour 'mauve' of no_such_package.colours:MAUVE cannot be loaded (ModuleNotFoundError: No module named "
            "'no_such_package'); change or remove its package"
        )
    entry_points.pop()
    assert sorted(registry) == ["pi", "red"]


def test_an_entry_point_of_a_taken_name_is_refused_at_every_read(entry_points) -> None:
    entry_points += [point("red", "math:pi")]
    registry = Registry("colour", {"red": 1})
    for _ in range(2):
        with pytest.raises(
            InvalidInput, match=r"colour 'red' of math:pi cannot be loaded \(its name is registered already\)"
        ):
            list(registry)


def test_an_unknown_name_is_suggested_and_still_a_key_error(entry_points) -> None:
    registry = Registry("colour", {"red": 1})
    with pytest.raises(InvalidInput, match=r"^unknown colour: 'rad'; did you mean 'red'\?$"):
        registry["rad"]
    assert "rad" not in registry
    assert registry.get("rad") is None


def test_a_worker_process_says_why_it_lacks_a_plug_in(entry_points, monkeypatch) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", multiprocessing.current_process)
    with pytest.raises(InvalidInput, match="colour 'nb' is registered in another process only; use jobs=1"):
        Registry("colour", {"red": 1})["nb"]


def test_a_command_names_a_plug_in_that_cannot_be_imported(tmp_path) -> None:
    package = tmp_path / "bad-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[vpdr.mechanisms]\nbad = no_such_package:Bad\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "vpdr", "calibrate", "--mechanism", "igpp"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: mechanism 'bad' of no_such_package:Bad cannot be loaded")
    assert "Traceback" not in done.stderr
