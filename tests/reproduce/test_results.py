"""RESULTS.md is what the command makes of the committed summaries, to the letter."""

import re
from pathlib import Path

from vpdr.reproduce.finding import find_summaries
from vpdr.reproduce.page import page
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


def test_data_without_any_number_are_one_line() -> None:
    strict = next(each for each in find_summaries([ROOT / "results"]).summaries if each["id"] == "strict")
    absent = [content["title"] for content in strict["datasets"].values() if not content["given"]]
    text = page(strict)
    for title in absent:
        section = text.split(f"## {title}\n")[1].split("\n## ")[0]
        assert re.fullmatch(r"\n\d+ rows: not run \(no --data \w+=DIR\)\.\n", section)


def test_what_the_paper_does_not_print_is_shown_whole() -> None:
    strict = next(each for each in find_summaries([ROOT / "results"]).summaries if each["id"] == "strict")
    section = results_page([strict]).split("## strict")[1]
    head = next(line for line in section.splitlines() if line.startswith("| data"))
    assert all(f"| {name} |" in head for name in ("head", "nearest prototype", "fused", "relMSE"))
