"""Records and summaries as JSON: what is written is read back, and a damaged file gives one clear line."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.federation.conftest import tiny
from vpdr.attacks import AttackConfig, AttackFactory
from vpdr.cli import main
from vpdr.federation import RunOptions, run_federation
from vpdr.io import from_json, json_bytes, json_safe
from vpdr.records import read_record
from vpdr.reproduce.pages import read_summary
from vpdr.validation import InvalidInput

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Part:
    share: float
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Whole:
    parts: Mapping[str, Part]
    counts: tuple[int, ...]
    best: float | None


def test_optional_fields_are_left_out_and_nan_is_null() -> None:
    whole = Whole(parts={"a": Part(share=math.nan), "b": Part(share=1, note="few")}, counts=(1, 2), best=None)
    data = {"parts": {"a": {"share": None}, "b": {"share": 1, "note": "few"}}, "counts": [1, 2], "best": None}
    assert json_safe(whole) == data
    assert math.isnan(from_json(Whole, data, "a file").parts["a"].share)
    assert from_json(Whole, data, "a file").parts["b"] == whole.parts["b"]


def test_a_record_with_attacks_is_read_as_it_was_written(tmp_path: Path) -> None:
    attacks = AttackConfig(kinds=("mia", "fsh"), likelihood_ratio=True, steps=5)
    run_federation(tiny(), tmp_path / "a", options=RunOptions(observers=[AttackFactory(attacks)]))
    file = tmp_path / "a" / "record.json"
    assert json_bytes(read_record(file)) == file.read_bytes()


def test_a_record_of_an_older_version_is_read_as_it_was_written() -> None:
    file = ROOT / "tests" / "integration" / "version_0_1" / "finished" / "record.json"
    assert json_bytes(read_record(file)) == file.read_bytes()


@pytest.mark.parametrize("file", sorted((ROOT / "results").glob("*.json")), ids=lambda file: file.stem)
def test_a_committed_summary_is_read_as_it_was_written(file: Path) -> None:
    content = json.loads(file.read_text())
    for dataset in content["datasets"].values():
        dataset.setdefault("adapters", "")  # older summaries have none
    assert json.loads(json_bytes(read_summary(file))) == content


def lose(content: dict[str, Any]) -> None:
    del content["lines"][0]["verdict"]


def add(content: dict[str, Any]) -> None:
    content["lines"][0]["vote"] = 1


def change(content: dict[str, Any]) -> None:
    content["lines"][0]["verdict"] = ["yes"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lose, "lines lacks verdict"),
        (add, "lines has the unknown key vote"),
        (change, "lines: verdict is \"['yes']\""),
        (lambda content: content.update(lines=3), "lines is '3'"),
        (lambda content: content.pop("seeds"), "eps05.json lacks seeds"),
    ],
)
def test_a_damaged_summary_gives_one_line(
    damage: Callable[[dict[str, Any]], None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((ROOT / "results" / "eps05.json").read_text())
    damage(content)
    file = tmp_path / "eps05.json"
    file.write_text(json.dumps(content))
    assert main(["results", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{message}" in line
    assert str(file) in line
    assert line.endswith("it is damaged or of another version; make it again")


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    for content, message in (({"name": "a"}, "lacks identity"), ([1], "is '\\[1\\]'"), ({"schema": 3}, "lacks name")):
        (tmp_path / "record.json").write_text(json.dumps(content))
        with pytest.raises(InvalidInput, match=message):
            read_record(tmp_path / "record.json")
