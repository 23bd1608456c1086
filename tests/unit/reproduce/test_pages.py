"""RESULTS.md is generated from the committed summaries, and pages show what they should."""

import re
from pathlib import Path

from vpdr.reproduce.pages import FoundSummary, find_summaries, results_page, study_page

ROOT = Path(__file__).parents[3]


def strict_summary() -> FoundSummary:
    summaries = find_summaries([ROOT / "results"]).summaries
    return next(found for found in summaries if found.summary.id == "strict")


def test_the_committed_page_is_generated() -> None:
    assert (ROOT / "RESULTS.md").read_text() == results_page(find_summaries([ROOT / "results"]).summaries)


def test_no_smoke_run_is_committed_as_a_result() -> None:
    summaries = find_summaries([ROOT / "results"]).summaries
    assert not [found.name for found in summaries if found.summary.smoke]


def test_two_summaries_of_one_study_have_different_headings() -> None:
    headings = [line for line in (ROOT / "RESULTS.md").read_text().splitlines() if line.startswith("## ")]
    assert len(set(headings)) == len(headings)


def test_a_data_set_without_numbers_is_one_line() -> None:
    strict = strict_summary().summary
    titles = [info.title for info in strict.datasets.values() if not info.given]
    page = study_page(strict)
    for title in titles:
        section = page.split(f"## {title}\n")[1].split("\n## ")[0]
        assert re.fullmatch(r"\n\d+ rows: not run \(no --data \w+=DIR\)\.\n", section)


def test_a_study_without_numbers_in_the_paper_shows_all_metrics() -> None:
    strict = strict_summary()
    section = results_page([strict]).split("## strict")[1]
    headings = next(line for line in section.splitlines() if line.startswith("| data"))
    assert all(f"| {name} |" in headings for name in ("head", "nearest prototype", "fused", "relMSE"))
