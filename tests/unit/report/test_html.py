"""The page: one file, valid, escaped, the same every time."""

import copy
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.unit.report.report_cases import NOTHING, OPEN, privacy, record, summary, trial
from vpdr.report.html import comparison_page, run_page

VOID = {"meta", "br"}


class Outline(HTMLParser):
    """Checks that tags are balanced, and collects ids, links and words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.tags: Counter[str] = Counter()
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags[tag] += 1
        attributes = dict(attrs)
        self.ids.update([attributes["id"]] if "id" in attributes else [])
        self.links += [attributes[key] for key in ("href", "xlink:href", "src") if key in attributes]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def build_page(runs: list[Any], baseline: str | None = "local", title: str = "A trial") -> str:
    seeds = sorted({run[2].seed for run in runs})
    return comparison_page(title, "trial", seeds, baseline, summary(runs, baseline), runs)


@pytest.fixture(scope="module")
def trial_page() -> str:
    return build_page(trial())


@pytest.fixture(scope="module")
def outline(trial_page: str) -> Outline:
    return Outline(trial_page)


def test_elements_ids_and_links_of_the_page(trial_page: str, outline: Outline) -> None:
    assert outline.tags["h1"] == outline.tags["main"] == outline.tags["title"] == 1
    assert outline.tags["table"] == 3
    assert outline.tags["svg"] == outline.tags["figure"] == 6 + 5 + 1
    assert max(outline.ids.values()) == 1, "an id names one element"
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)
    assert set(re.findall(r"url\(#([^)]*)\)", trial_page)) <= set(outline.ids)


def test_the_page_needs_no_network_and_no_scripts(trial_page: str, outline: Outline) -> None:
    assert set(re.findall(r"https?://[^\"'\s<]*", re.sub(r'xmlns(:\w+)?="[^"]*"', "", trial_page))) == set()
    assert not outline.tags.keys() & {"script", "link", "img", "iframe", "image", "object"}
    assert "@import" not in trial_page
    assert all(link.startswith("#") for link in outline.links)


def test_equal_runs_give_equal_bytes(trial_page: str) -> None:
    assert build_page(copy.deepcopy(trial())) == trial_page


def test_the_guarantee_is_stated_for_every_method(outline: Outline) -> None:
    for words in (
        "What the guarantee covers",
        "a sentence about conditional with epsilon 1",
        "holds end to end for the stated adjacency",
        "no client sent anything",
        "no finite ε describes them",
        "They are simulations",
        "north 2, south 2",
        "4 gaussian",
        "replace-same-label",
    ):
        assert words in outline.text


def test_the_page_says_how_to_run_it_again(outline: Outline) -> None:
    assert "vpdr run trial --seeds 0..2" in outline.text
    assert "36.0 s in 24 runs" in outline.text
    assert 'kind = "conditional"' in outline.text
    assert "Differs from local: mechanism.kind = conditional." in outline.text


def test_infinite_ratios_are_counted_on_the_page(outline: Outline) -> None:
    assert "left out of its mean: strict-8 12 of 12." in outline.text
    assert "infinite in 12 of 12 releases" in outline.text


def test_all_text_is_escaped() -> None:
    evil = '<script>alert("x")</script>&$x_1$'
    runs = []
    for seed in (0, 1):
        hurt = record(seed, 0.5, nearest=0.3, statement=replace(privacy(), not_covered=(evil,), sentence=evil))
        hurt.plan["run"]["name"] = evil
        runs += [(evil, "local", record(seed, 0.6, statement=NOTHING)), (evil, evil, hurt)]
    text = build_page(runs, title=evil)
    assert "<script" not in text
    outline = Outline(text)
    assert evil in "".join(outline.words)
    Outline(run_page(replace(runs[1][2], name=evil)))


@pytest.mark.parametrize("seeds", [1, 2])
def test_missing_metrics_leave_gaps(seeds: int) -> None:
    runs: list[Any] = []
    for seed in range(seeds):
        runs += [("", "local", record(seed, 0.6, statement=NOTHING)), ("", "mpft", record(seed, 0.6, ratio=None))]
    outline = Outline(build_page(runs))
    assert outline.tags["svg"] == 5
    assert "—" in outline.text
    assert ("one seed" in outline.text) is (seeds == 1)


def test_a_plan_with_seeds_and_nothing_to_compare() -> None:
    runs = [("", "", record(seed, 0.6, nearest=0.2)) for seed in (0, 1)]
    outline = Outline(build_page(runs, baseline=None))
    assert "No baseline was run" in outline.text
    assert "this plan" in outline.text


def test_a_baseline_that_did_not_run_is_not_mentioned() -> None:
    runs = [("", name, record(seed, 0.6)) for seed in (0, 1) for name in ("igpp-1", "igpp-8")]
    assert "local" not in Outline(build_page(runs, baseline="local")).text


@pytest.mark.parametrize("statement", [NOTHING, OPEN, privacy()], ids=["nothing", "open", "private"])
def test_a_single_run_has_its_own_page(statement: dict[str, Any]) -> None:
    run = record(3, 0.6, 0.4, nearest=0.2, statement=statement)
    outline = Outline(run_page(run))
    assert run_page(copy.deepcopy(run)) == run_page(run)
    assert "trial, seed 3" in outline.text
    assert "vpdr run plan.toml" in outline.text
    assert ("gaussian multiplier 8.25" in outline.text) is any(statement.releases.values())


def test_the_page_of_a_large_comparison_is_small() -> None:
    names = ["local", *(f"{kind}-{epsilon}" for kind in ("igpp", "vpdr", "random", "strict") for epsilon in (1, 8))]
    runs = [
        (setting, name, record(seed, 0.5, 0.3 + seed / 50, nearest=0.2, rounds=20))
        for setting in ("domains", "missing")
        for name in names
        for seed in range(3)
    ]
    assert len(build_page(runs).encode()) < 3_000_000
