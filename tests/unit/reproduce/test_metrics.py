"""The metrics that studies extract from records."""

import math
from dataclasses import replace

import pytest

from tests.unit.report import report_cases
from vpdr.records import FinalAccuracy, RoundRecord, RunRecord
from vpdr.reproduce.metrics import EXTRACTORS


def record(*rounds: dict[str, dict[str, float]]) -> RunRecord:
    """A record with the release diagnostics of each round and client, and equal accuracies."""
    final = FinalAccuracy(clients={"a": 0.5, "b": 0.5}, average=0.5, std=None)
    first = report_cases.record(0, 0.5)
    client = first.rounds[0].clients["north"]
    return replace(
        first,
        final={"all": dict.fromkeys(("head", "framework", "nearest_cosine", "fused"), final)},
        rounds=tuple(
            RoundRecord(
                round=index,
                clients={name: replace(client, release=release) for name, release in clients.items()},
                seconds={},
            )
            for index, clients in enumerate(rounds, 1)
        ),
    )


@pytest.mark.parametrize("reader", ["strict", "controls"])
def test_the_error_is_that_of_the_last_release(reader: str) -> None:
    stages = record(
        {"a": {"relative_error": 90.0}, "b": {"relative_error": 60.0}},
        {"a": {"relative_error": 4.0}, "b": {"relative_error": 8.0}},
        {"a": {}, "b": {}},  # both send their last upload again
    )
    assert EXTRACTORS[reader](stages)["relative_error"] == pytest.approx((4 + 8) / 2)


def test_an_earlier_release_does_not_replace_a_last_one_without_a_number() -> None:
    stages = record(
        {"a": {"relative_error": 90.0}, "b": {"relative_error": 60.0}},
        {"a": {"relative_error": 4.0}, "b": {"relative_error": math.nan}},
    )
    assert EXTRACTORS["strict"](stages)["relative_error"] == 4.0


def test_clients_without_releases_have_no_error() -> None:
    assert "relative_error" not in EXTRACTORS["strict"](record({"a": {}, "b": {}}))
