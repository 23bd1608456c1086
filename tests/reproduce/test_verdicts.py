"""The comparison rule, by hand."""

import pytest

from tests.reproduce.reproduction_cases import harvest, measured
from vpdr.report.summary import interval
from vpdr.reproduce.catalogue import load_study
from vpdr.reproduce.cells import cells_of
from vpdr.reproduce.choosing import choose
from vpdr.reproduce.summary import _apart, summarise
from vpdr.reproduce.verdicts import Contrast, contrast_verdict, verdict
from vpdr.reproduce.wish import Wish

UP = Contrast(interval([1.0, 1.1, 0.9]), 2.0)
UNSURE = Contrast(interval([-1.0, 3.0]), 2.0)
DOWN = Contrast(interval([-1.0, -1.1, -0.9]), 2.0)


@pytest.mark.parametrize(
    ("ours", "paper", "contrast", "words"),
    [
        ([88.0, 92.0], 92.5, None, "agrees (within 1 std over seeds)"),
        ([90.0, 90.2], 91.9, None, "agrees (within 2)"),
        ([90.0], 92.0, None, "agrees (within 2)"),
        ([80.0, 80.2], 92.0, UP, "agrees in sign (interval excludes zero)"),
        ([80.0, 80.2], 92.0, UNSURE, "agrees in sign (interval includes zero)"),
        ([80.0, 80.2], 92.0, DOWN, "does not agree"),
        ([80.0, 80.2], 92.0, Contrast(interval([0.0, 0.0]), 2.0), "does not agree"),
        ([80.0, 80.2], 92.0, None, "does not agree"),
        ([80.0], None, UP, "no number in the paper"),
    ],
)
def test_one_rule(ours, paper, contrast, words: str) -> None:
    assert verdict(interval(ours), paper, 2.0, contrast) == words


def test_differences_are_judged_by_their_sign() -> None:
    assert contrast_verdict(UP) == "agrees in sign (interval excludes zero)"
    assert contrast_verdict(DOWN) == "does not agree (interval excludes zero)"
    assert contrast_verdict(Contrast(interval([1.0]), 2.0)) == "agrees in sign (one seed: no interval)"
    assert contrast_verdict(None) == "no number in the paper"


def wish(tmp_path, **more) -> Wish:
    return Wish(data={"office_caltech": tmp_path}, backbones=["efficientnet_lite0"], **more)


def test_r_is_chosen_on_validation_and_ties_go_to_the_smaller(tmp_path) -> None:
    cells = cells_of(load_study("ablation"), wish(tmp_path))
    held = {5.0: 80.0, 10.0: 90.0, 15.0: 90.0, 20.0: 70.0, None: 50.0}
    on_test = {5.0: 99.0, 10.0: 60.0, 15.0: 61.0, 20.0: 62.0, None: 50.0}
    found = harvest(cells, (0, 1), lambda _, radius, seed: measured(on_test[radius] + seed, held[radius]))
    choice = choose(cells[0], found.results, (0, 1))
    assert (choice.radius, choice.by) == (10.0, "validation")
    assert [run.reading["avg"] for run in choice.runs.values()] == [60.0, 61.0]
    assert choose(cells[0], found.results, (0, 1), "test").radius == 5.0
    assert choose(cells[0], found.results, (0, 1, 2)) is None
    local = next(cell for cell in cells if cell.place.method == "local")
    assert choose(local, found.results, (0, 1)).by == "nothing"


def test_a_summary_says_what_agrees_and_what_was_not_run(tmp_path) -> None:
    study, asked = load_study("ablation"), wish(tmp_path, seeds="0..2")
    cells = cells_of(study, asked)
    gains = {"igpp": 0.0, "vpp": 3.0, "igpp-dcr": -1.0, "vpdr": 1.0}

    def score(place, radius, seed):
        return measured(60.0 + gains.get(place.method, 0.0) + 0.1 * seed, 1.0)

    summary = summarise(study, asked, cells, harvest(cells, (0, 1, 2), score))
    told = {(line["dataset"], line["method"]): line["verdict"] for line in summary["lines"]}
    other = "; other backbone (efficientnet_lite0)"
    assert told["office_caltech", "vpdr"] == f"agrees in sign (interval excludes zero){other}"
    assert told["office_caltech", "igpp"] == f"agrees in sign (interval excludes zero){other}"
    assert told["office_caltech", "igpp-dcr"] == f"does not agree{other}"
    assert told["office_caltech", "local"] == "no number in the paper"
    assert told["pacs", "vpdr"] == "not run (no --data pacs=DIR)"
    pairs = {(pair["first"], pair["second"]): pair for pair in summary["pairs"]}
    assert pairs["vpdr", "igpp"]["ours"]["mean"] == pytest.approx(1.0)
    assert pairs["vpdr", "igpp"]["paper"] == pytest.approx(93.36 - 90.82)
    assert pairs["igpp", "local"]["paper"] is None
    assert {("vpdr", "local"), ("vpp-random", "igpp")} <= set(pairs)


def test_weights_that_are_not_there_are_named(tmp_path) -> None:
    cells = cells_of(load_study("ablation"), Wish(data={"office_caltech": tmp_path}))
    assert cells[0].why_not == "no --weights for vit_small"


def test_two_domains_are_said_to_be_two(tmp_path) -> None:
    study = load_study("table1")
    asked = Wish(data={"digits": tmp_path}, backbones=["efficientnet_lite0"], seeds="0")
    cells = cells_of(study, asked)
    found = harvest(cells, (0,), lambda *_: measured(90.0, 1.0, clients=("mnist", "usps")))
    line = summarise(study, asked, cells, found)["lines"][0]
    assert line["paper"]["avg"] == pytest.approx((98.2 + 93.42) / 2)
    assert line["verdict"].endswith("other backbone (efficientnet_lite0), 2 of 4 domains")


def test_a_line_that_no_axis_changes_is_run_once(tmp_path) -> None:
    cells = cells_of(load_study("table1"), wish(tmp_path))
    alone = [cell for cell in cells if cell.place.method == "local" and cell.base is not None]
    assert len(alone) == 1
    assert len({place.framework for place in alone[0].places}) == 6


@pytest.mark.parametrize(
    ("name", "settings", "apart"),
    [
        ("table1", ("run.measure_every=20",), ["other backbone (efficientnet_lite0)"]),
        ("table1", ("train.lr=0.1",), ["other backbone (efficientnet_lite0)", "changed settings"]),
        (
            "table1",
            ('benchmark.domains=["mnist","usps"]',),
            ["other backbone (efficientnet_lite0)", "2 of 4 domains"],
        ),
        (
            "fig-tsne",
            ('benchmark.domains=["mnist","usps"]',),
            ["other backbone (efficientnet_lite0)", "changed settings"],
        ),
    ],
)
def test_a_line_says_how_far_its_setting_is_from_the_papers(name, settings, apart, tmp_path) -> None:
    study = load_study(name)
    wish = Wish(data={"digits": tmp_path}, backbones=("efficientnet_lite0",), settings=settings)
    domains = wish.wanted.get("benchmark", {}).get("domains", ["mnist", "usps", "svhn", "syn"])
    metrics = dict.fromkeys(domains if name == "table1" else ["T=20 mnist", "T=20 usps"])
    assert _apart(wish, {"dataset": study.datasets[0], "metrics": metrics}) == apart
