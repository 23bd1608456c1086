"""The examples of docs/datasets.md, run literally with a small model."""

import re
import shlex
from pathlib import Path

import pytest

import vpdr
from tests.unit.data.own_files import features, write_features, write_folder, write_hugging_face, write_texts
from vpdr.cli import main

PAGE = (Path(__file__).parents[3] / "docs" / "datasets.md").read_text()
COMMANDS = [line.partition("  #")[0] for line in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[0].splitlines()]
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SMALL = ("run.rounds=1", "train.epochs=1", "model.dim=6", "model.hidden=8", "model.width=4")
WEIGHTS = ("model.weights=random",)
IMAGES = (*WEIGHTS, "benchmark.pixels=32")


@pytest.fixture
def own_files(tmp_path, monkeypatch):
    """The files that the examples name, in the working directory."""
    write_folder(tmp_path / "photos")
    write_features(tmp_path / "features.csv")
    write_texts(tmp_path / "reviews.jsonl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(own_files, command):
    program, *words = shlex.split(command)
    assert program == "vpdr"
    if "hf=saved" in words:
        write_hugging_face(own_files / "saved", "text")
    if words[0] == "run":
        more = IMAGES if "folder=photos" in words else () if "features=features.csv" in words else WEIGHTS
        words += [word for setting in (*SMALL, *more) for word in ("--set", setting)] + ["--quiet"]
    assert main(words) == 0


def test_the_python_example_runs(own_files, monkeypatch):
    load_config = vpdr.load_config
    monkeypatch.setattr(
        vpdr, "load_config", lambda *names, **paths: load_config(*names, *SMALL, *(IMAGES if paths else ()), **paths)
    )
    x, y, hospital = features()
    names = {"x": x, "y": y, "hospital": hospital}
    exec(compile(PYTHON, "datasets.md", "exec"), names)
    assert names["record"].data.class_names == ("0", "1")
    assert (own_files / "runs" / "photos" / "report.html").exists()
