"""Verdicts, the selection of R, and summaries of imaginary runs."""

import pytest

from tests.unit.reproduce.study_cases import run_metrics, study_results
from vpdr.report.stats import interval
from vpdr.reproduce.run import select_clip_norm
from vpdr.reproduce.studies import ReproduceOptions, load_study, make_cells
from vpdr.reproduce.summaries import (
    Contrast,
    _setting_differences,
    summarise_study,
    verdict_for_contrast,
    verdict_for_value,
)

SAME_SIGN = Contrast(interval([1.0, 1.1, 0.9]), 2.0)
UNCERTAIN = Contrast(interval([-1.0, 3.0]), 2.0)
OTHER_SIGN = Contrast(interval([-1.0, -1.1, -0.9]), 2.0)


@pytest.mark.parametrize(
    ("ours", "paper", "contrast", "verdict"),
    [
        ([88.0, 92.0], 92.5, None, "agrees (within 1 std over seeds)"),
        ([90.0, 90.2], 91.9, None, "agrees (within 2)"),
        ([90.0], 92.0, None, "agrees (within 2)"),
        ([80.0, 80.2], 92.0, SAME_SIGN, "agrees in sign (interval excludes zero)"),
        ([80.0, 80.2], 92.0, UNCERTAIN, "agrees in sign (interval includes zero)"),
        ([80.0, 80.2], 92.0, OTHER_SIGN, "does not agree"),
        ([80.0, 80.2], 92.0, Contrast(interval([0.0, 0.0]), 2.0), "does not agree"),
        ([80.0, 80.2], 92.0, None, "does not agree"),
        ([80.0], None, SAME_SIGN, "no number in the paper"),
    ],
)
def test_verdicts_of_values(ours, paper, contrast, verdict: str) -> None:
    assert verdict_for_value(interval(ours), paper, 2.0, contrast) == verdict


def test_verdicts_of_differences() -> None:
    assert verdict_for_contrast(SAME_SIGN) == "agrees in sign (interval excludes zero)"
    assert verdict_for_contrast(OTHER_SIGN) == "does not agree (interval excludes zero)"
    assert verdict_for_contrast(Contrast(interval([1.0]), 2.0)) == "agrees in sign (one seed: no interval)"
    assert verdict_for_contrast(None) == "no number in the paper"


def office_options(tmp_path, **options) -> ReproduceOptions:
    data_dirs = {"office_caltech": tmp_path}
    return ReproduceOptions(data_dirs=data_dirs, backbones=["efficientnet_lite0"], **options)


def test_r_is_selected_on_validation_and_ties_go_to_the_smaller(tmp_path) -> None:
    cells = make_cells(load_study("ablation"), office_options(tmp_path))
    validation = {5.0: 80.0, 10.0: 90.0, 15.0: 90.0, 20.0: 70.0, None: 50.0}
    test = {5.0: 99.0, 10.0: 60.0, 15.0: 61.0, 20.0: 62.0, None: 50.0}
    metrics = study_results(
        cells, (0, 1), lambda _, radius, seed: run_metrics(test[radius] + seed, validation[radius])
    ).metrics
    selected = select_clip_norm(cells[0], metrics, (0, 1))
    assert (selected.radius, selected.selected_on) == (10.0, "validation")
    assert [run.metrics["avg"] for run in selected.runs.values()] == [60.0, 61.0]
    assert select_clip_norm(cells[0], metrics, (0, 1), "test").radius == 5.0
    assert select_clip_norm(cells[0], metrics, (0, 1, 2)) is None
    local = next(cell for cell in cells if cell.key.method == "local")
    assert select_clip_norm(local, metrics, (0, 1)).selected_on == "nothing"


def test_the_summary_of_a_study(tmp_path) -> None:
    study, options = load_study("ablation"), office_options(tmp_path, seeds="0..2")
    cells = make_cells(study, options)
    gains = {"igpp": 0.0, "vpp": 3.0, "igpp-dcr": -1.0, "vpdr": 1.0}

    def metrics_of(key, radius, seed):
        return run_metrics(60.0 + gains.get(key.method, 0.0) + 0.1 * seed, 1.0)

    summary = summarise_study(study, options, cells, study_results(cells, (0, 1, 2), metrics_of))
    verdicts = {(row.dataset, row.method): row.verdict for row in summary.lines}
    other = "; other backbone (efficientnet_lite0)"
    assert verdicts["office_caltech", "vpdr"] == f"agrees in sign (interval excludes zero){other}"
    assert verdicts["office_caltech", "igpp"] == f"agrees in sign (interval excludes zero){other}"
    assert verdicts["office_caltech", "igpp-dcr"] == f"does not agree{other}"
    assert verdicts["office_caltech", "local"] == "no number in the paper"
    assert verdicts["pacs", "vpdr"] == "not run (no --data pacs=DIR)"
    pairs = {(pair.first, pair.second): pair for pair in summary.pairs}
    assert pairs["vpdr", "igpp"].ours.mean == pytest.approx(1.0)
    assert pairs["vpdr", "igpp"].paper == pytest.approx(93.36 - 90.82)
    assert pairs["igpp", "local"].paper is None
    assert {("vpdr", "local"), ("vpp-random", "igpp")} <= set(pairs)


def test_missing_weights_are_named(tmp_path) -> None:
    cells = make_cells(load_study("ablation"), ReproduceOptions(data_dirs={"office_caltech": tmp_path}))
    assert cells[0].why_not == "no --weights for vit_small"


def test_the_verdict_names_the_number_of_domains(tmp_path) -> None:
    study = load_study("table1")
    options = ReproduceOptions(data_dirs={"digits": tmp_path}, backbones=["efficientnet_lite0"], seeds="0")
    cells = make_cells(study, options)
    results = study_results(cells, (0,), lambda *_: run_metrics(90.0, 1.0, clients=("mnist", "usps")))
    row = summarise_study(study, options, cells, results).lines[0]
    assert row.paper["avg"] == pytest.approx((98.2 + 93.42) / 2)
    assert row.verdict.endswith("other backbone (efficientnet_lite0), 2 of 4 domains")


def test_a_cell_that_no_framework_changes_is_run_once(tmp_path) -> None:
    cells = make_cells(load_study("table1"), office_options(tmp_path))
    local = [cell for cell in cells if cell.key.method == "local" and cell.base_config is not None]
    assert len(local) == 1
    assert len({key.framework for key in local[0].keys}) == 6


@pytest.mark.parametrize(
    ("name", "settings", "differences"),
    [
        ("table1", ("run.measure_every=20",), ["other backbone (efficientnet_lite0)"]),
        ("table1", ("train.lr=0.1",), ["other backbone (efficientnet_lite0)", "changed settings"]),
        ("table1", ('benchmark.domains=["mnist","usps"]',), ["other backbone (efficientnet_lite0)", "2 of 4 domains"]),
        (
            "fig-tsne",
            ('benchmark.domains=["mnist","usps"]',),
            ["other backbone (efficientnet_lite0)", "changed settings"],
        ),
    ],
)
def test_differences_of_the_setting_from_the_papers(name, settings, differences, tmp_path) -> None:
    study = load_study(name)
    options = ReproduceOptions(data_dirs={"digits": tmp_path}, backbones=("efficientnet_lite0",), settings=settings)
    domains = options.overrides.get("benchmark", {}).get("domains", ["mnist", "usps", "svhn", "syn"])
    metrics = dict.fromkeys(domains if name == "table1" else ["T=20 mnist", "T=20 usps"])
    assert _setting_differences(options, study.datasets[0], metrics) == differences
