"""RESULTS.md is what the command makes of the committed summaries, to the letter."""

from pathlib import Path

from vpdr.reproduce.finding import find_summaries
from vpdr.reproduce.results import results_page

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_generated() -> None:
    assert (ROOT / "RESULTS.md").read_text() == results_page(find_summaries([ROOT / "results"]).summaries)


def test_no_smoke_run_is_committed_as_a_result() -> None:
    found = find_summaries([ROOT / "results"]).summaries
    assert not [summary["id"] for summary in found if summary["smoke"]]


def test_two_summaries_of_one_table_have_headings_of_their_own() -> None:
    headings = [line for line in (ROOT / "RESULTS.md").read_text().splitlines() if line.startswith("## ")]
    assert len(set(headings)) == len(headings)
