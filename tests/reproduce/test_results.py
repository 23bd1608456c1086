"""RESULTS.md is what the command makes of the committed summaries, to the letter."""

from pathlib import Path

import pytest

from vpdr.reproduce.results import results_page, summaries_in

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_generated() -> None:
    if not (ROOT / "results").is_dir():
        pytest.skip("no results are committed")
    assert (ROOT / "RESULTS.md").read_text() == results_page(summaries_in([ROOT / "results"]))


def test_no_smoke_run_is_committed_as_a_result() -> None:
    if not (ROOT / "results").is_dir():
        pytest.skip("no results are committed")
    assert not [summary["id"] for summary in summaries_in([ROOT / "results"]) if summary["smoke"]]
