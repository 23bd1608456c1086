"""What a record says, and that its description says the same."""

import json
import re
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.federation.conftest import tiny
from vpdr.federation import run_federation
from vpdr.io import dump_toml, json_bytes
from vpdr.records import RunRecord, final_accuracy, privacy_statement, read_record

DESCRIBED = (Path(__file__).parents[3] / "docs" / "record.md").read_text()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    out = tmp_path_factory.mktemp("runs") / "run"
    run_federation(tiny("mechanism.kind=vpp", "regulariser.kind=dcr"), out)
    return read_record(out / "record.json")


def test_every_field_is_described(record) -> None:
    client = record.rounds[0].clients["client-000"]
    for content in (record, record.privacy, client, client.accuracy["all"], client.release):
        names = [field.name for field in fields(content)] if is_dataclass(content) else content
        for name in names:
            assert re.search(rf"`[^`]*\b{name}\b[^`]*`", DESCRIBED), name


def test_averages_and_spreads_are_over_clients(record) -> None:
    found = record.final["all"]["framework"]
    values = list(found.clients.values())
    assert found.average == pytest.approx(sum(values) / 3)
    mean = sum(values) / 3
    assert found.std == pytest.approx((sum((value - mean) ** 2 for value in values) / 2) ** 0.5)


def test_a_client_without_a_value_is_left_out() -> None:
    found = final_accuracy({"a": 0.5, "b": None, "c": float("nan")})
    assert (list(found.clients), found.average, found.std) == (["a", "b", "c"], 0.5, None)


def test_nan_is_written_as_null() -> None:
    assert json.loads(json_bytes({"a": float("nan"), "b": [float("inf"), 1.5]})) == {"a": None, "b": [None, 1.5]}


keys = st.text(min_size=1, max_size=8)
values = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(keys, st.one_of(values, st.dictionaries(keys, values, max_size=3)), max_size=4))
def test_toml_reads_back_what_was_written(data) -> None:
    assert tomllib.loads(dump_toml(data)) == data


@pytest.mark.parametrize(
    ("settings", "dataset"),
    [
        (["benchmark.kind=quickstart"], "all rows of the client, since they are split by their labels"),
        (["benchmark.kind=quickstart", "budget.adjacency=replace-one"], "the training rows after the split"),
        (
            ["benchmark.kind=quickstart", "budget.adjacency=replace-one", "benchmark.assignment=sample_hash"],
            "all rows of the client, since each is assigned",
        ),
        (  # the rows of an image folder are sorted by class: another label moves all rows between
            ["benchmark.kind=pacs", "budget.adjacency=replace-one", "benchmark.assignment=sample_hash"],
            "the training rows after the split",
        ),
        (
            ["benchmark.kind=pacs", "budget.adjacency=add-remove", "benchmark.assignment=sample_hash"],
            "all rows of the client, since each is assigned",
        ),
        (["benchmark.kind=quickstart", "benchmark.manifest=a.json"], "the training rows after the split"),
        (["benchmark.kind=synthetic"], "the training rows after the split"),
    ],
)
def test_the_statement_says_which_dataset_is_protected(settings, dataset) -> None:
    config = tiny("release.summariser=sums", *settings)
    statement = privacy_statement(config, [])
    assert statement.dataset.startswith(dataset)
