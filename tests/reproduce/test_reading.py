"""What tables read from records."""

import math

import pytest

from vpdr.reproduce.reading import READERS


def record(*rounds: dict[str, dict[str, float]]) -> dict:
    """Rounds of clients' releases, with nothing else that a reader needs."""
    every = {"average": 0.5, "std": None, "clients": {"a": 0.5, "b": 0.5}}
    return {
        "final": {"all": dict.fromkeys(("head", "framework", "nearest_cosine", "fused"), every)},
        "rounds": [
            {"round": t, "clients": {name: {"release": release} for name, release in each.items()}}
            for t, each in enumerate(rounds, 1)
        ],
    }


@pytest.mark.parametrize("reader", ["strict", "controls"])
def test_the_error_is_that_of_the_last_release(reader: str) -> None:
    stages = record(
        {"a": {"relative_error": 90.0}, "b": {"relative_error": 60.0}},
        {"a": {"relative_error": 4.0}, "b": {"relative_error": 8.0}},
        {"a": {}, "b": {}},  # both send again what they have sent before
    )
    assert READERS[reader](stages)["relative_error"] == pytest.approx((4 + 8) / 2)


def test_a_stage_does_not_stand_in_for_a_last_release_without_a_number() -> None:
    stages = record(
        {"a": {"relative_error": 90.0}, "b": {"relative_error": 60.0}},
        {"a": {"relative_error": 4.0}, "b": {"relative_error": math.nan}},
    )
    assert READERS["strict"](stages)["relative_error"] == 4.0


def test_who_releases_nothing_has_no_error() -> None:
    assert "relative_error" not in READERS["strict"](record({"a": {}, "b": {}}))
