"""Every study has a valid description, and its paper's numbers are found."""

import re

import pytest

from vpdr.config.load import read_builtin
from vpdr.reproduce.figures import FIGURES
from vpdr.reproduce.metrics import EXTRACTORS, paper_metrics
from vpdr.reproduce.reproduction import count_runs
from vpdr.reproduce.studies import (
    CellKey,
    ReproduceOptions,
    load_study,
    make_cells,
    paper_numbers,
    shared_settings,
    study_ids,
)
from vpdr.validation import InvalidInput

TABLE_IDS = {
    "table1",
    "eps05",
    "ablation",
    "labelskew",
    "het-domain",
    "het-label",
    "agnews",
    "dr",
    "controls",
    "strict",
}
ATTACK_IDS = {"attack-office", "attack-digits", "attack-pacs"}
FIGURE_IDS = {"fig-time", "fig-corr", "fig-dcr", "fig-hyper", "fig-tsne", "fig-budget"}


def test_all_studies_exist() -> None:
    assert set(study_ids()) == TABLE_IDS | ATTACK_IDS | FIGURE_IDS | {"time"}


@pytest.mark.parametrize("name", study_ids())
def test_a_study_names_only_existing_parts(name: str) -> None:
    study = load_study(name)
    assert study.reader in EXTRACTORS
    assert study.kind in FIGURES
    assert set(study.datasets) <= set(shared_settings()["datasets"])
    assert set(study.frameworks) <= set(shared_settings()["names"]["frameworks"])
    methods = {**read_builtin("experiments", "methods"), **study.custom_methods}
    assert set(study.methods) <= set(methods)
    assert study.seeds == tuple(range(len(study.seeds)))
    assert len(study.radii) == 1 or study.plan["benchmark"]["validation_fraction"] > 0


@pytest.mark.parametrize("name", sorted(TABLE_IDS))
def test_a_table_has_its_controls(name: str) -> None:
    study = load_study(name)
    assert "local" in study.methods
    assert {"vpp-random", "vpdr-random"} & set(study.methods)


def cell_key(dataset: str, framework: str, method: str, point: str = "") -> CellKey:
    return CellKey(dataset=dataset, framework=framework, method=method, point=point)


@pytest.mark.parametrize(
    ("name", "key", "metric", "value"),
    [
        ("table1", cell_key("office_caltech", "fedproto", "vpdr"), "avg", 93.36),
        ("table1", cell_key("pacs", "mpft", "igpp"), "sketch", 84.5),
        ("eps05", cell_key("digits", "fedpcl", "igpp"), "syn", 65.25),
        ("ablation", cell_key("office_caltech", "fedproto", "igpp-dcr"), "avg", 92.89),
        ("ablation", cell_key("pacs", "fedproto", "igpp"), "std", 7.31),
        ("labelskew", cell_key("cifar10", "fpl", "vpdr", "0.5"), "avg", 80.14),
        ("agnews", cell_key("agnews", "fedproto", "igpp", "10"), "avg", 90.06),
        ("het-domain", cell_key("office_caltech", "fedtgp", "vpdr", "HtC4"), "avg", 85.25),
        ("het-label", cell_key("cifar10", "fedproto", "vpdr", "HtC4/a=0.5"), "avg", 71.27),
        ("attack-office", cell_key("office_caltech", "fedproto", "igpp", "2"), "auc", 0.5081),
        ("attack-digits", cell_key("digits", "fedproto", "none", "1"), "cffd", 304.8),
        ("dr", cell_key("pacs", "fedproto", "r0.2", "1024"), "auc", 0.5011),
        ("fig-tsne", cell_key("digits", "fedproto", "vpdr"), "T=1 syn", 34.55),
        ("controls", cell_key("office_caltech", "fedproto", "igpp"), "avg", 90.82),
    ],
)
def test_the_papers_numbers_are_found(name: str, key: CellKey, metric: str, value: float) -> None:
    assert paper_metrics(load_study(name), key)[metric] == value


def test_controls_have_no_number_in_the_paper() -> None:
    study = load_study("table1")
    for method in ("local", "vpp-random", "vpdr-random"):
        assert paper_metrics(study, cell_key("pacs", "fedproto", method)) == {}


def test_the_papers_average_is_over_the_domains_that_were_run() -> None:
    metrics = paper_metrics(load_study("table1"), cell_key("digits", "fedproto", "igpp"), ["mnist", "usps"])
    assert metrics["avg"] == pytest.approx((98.2 + 93.42) / 2)
    assert metrics["std"] == pytest.approx((98.2 - 93.42) / 2**0.5)


def test_all_numbers_of_a_table_are_used() -> None:
    study = load_study("table1")
    keys = [cell_key(d, f, m) for d in study.datasets for f in study.frameworks for m in ("igpp", "vpdr")]
    printed = [key for key in keys if paper_metrics(study, key)]
    assert len(printed) == 36 == 6 * len(paper_numbers()["table1_eps1"])


def test_a_smoke_run_has_fewer_of_everything() -> None:
    study = load_study("labelskew")
    cells = make_cells(study, ReproduceOptions(smoke=True))
    assert {cell.key.point for cell in cells} == {"0.1", "0.5"}
    assert len(ReproduceOptions(smoke=True).seeds_for(study)) < len(study.seeds)
    known = [method for method in study.methods if study.method_overrides(method) is not None]
    uploading = [method for method in known if method != "local"]
    assert count_runs(study) == 3 * (5 * 6 * len(uploading) * 4 + 5)  # local runs once for each α


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": ["framework.kind=fpl"]}, "the table names its frameworks"),
        ({"settings": ["run.seed=3"]}, "use --seeds"),
        ({"settings": ["budgt.epsilon=1"]}, "did you mean 'budget'?"),
        ({"backbones": ["vit_smal"]}, "did you mean 'vit_small'?"),
        ({"select": "tset"}, "did you mean 'test'?"),
    ],
)
def test_invalid_options_are_rejected_before_anything_runs(options, message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        ReproduceOptions(**options)


def test_an_unknown_id_gives_a_suggestion() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'ablation'"):
        load_study("ablaton")


def test_a_setting_that_no_run_of_the_study_reads_is_refused() -> None:
    options = ReproduceOptions(smoke=True, settings=("framework.mpft.epochs=1",))
    assert make_cells(load_study("table1"), options)
    with pytest.raises(InvalidInput, match=r"framework\.mpft\.epochs has no effect with framework\.kind=fedproto"):
        make_cells(load_study("fig-budget"), options)
