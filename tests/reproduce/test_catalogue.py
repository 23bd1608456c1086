"""Every table and figure has one description, and the paper's numbers are found from it."""

import pytest

from vpdr.errors import InvalidInput
from vpdr.plan.sources import read_builtin
from vpdr.reproduce.catalogue import ids, load_study, paper_numbers, setting
from vpdr.reproduce.cells import Place, cells_of
from vpdr.reproduce.figures.gallery import _PICTURES
from vpdr.reproduce.paper import printed
from vpdr.reproduce.reading import READERS
from vpdr.reproduce.reproduction import runs_of
from vpdr.reproduce.wish import Wish

TABLES = {
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
ATTACKS = {"attack-office", "attack-digits", "attack-pacs"}
FIGURES = {"fig-time", "fig-corr", "fig-dcr", "fig-hyper", "fig-tsne", "fig-budget"}
LATER = {"rapp", "igpp-accumulated", "none-weighted"}  # arms that another room brings


def test_everything_that_is_asked_for_is_there() -> None:
    assert set(ids()) == TABLES | ATTACKS | FIGURES | {"time"}


@pytest.mark.parametrize("name", ids())
def test_a_description_names_what_exists(name: str) -> None:
    study = load_study(name)
    assert study.reader in READERS
    assert study.kind in _PICTURES
    assert set(study.datasets) <= set(setting()["datasets"])
    assert set(study.frameworks) <= set(setting()["names"]["frameworks"])
    arms = {**read_builtin("experiments", "methods"), **study.arms}
    assert set(study.methods) - LATER <= set(arms)
    assert study.seeds == tuple(range(len(study.seeds)))
    assert len(study.radii) == 1 or study.plan["benchmark"]["validation_fraction"] > 0


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_has_its_controls(name: str) -> None:
    study = load_study(name)
    assert "local" in study.methods
    assert {"vpp-random", "vpdr-random"} & set(study.methods)


def place(dataset: str, framework: str, method: str, point: str = "") -> Place:
    return Place(dataset=dataset, framework=framework, method=method, point=point)


@pytest.mark.parametrize(
    ("name", "where", "metric", "value"),
    [
        ("table1", place("office_caltech", "fedproto", "vpdr"), "avg", 93.36),
        ("table1", place("pacs", "mpft", "igpp"), "sketch", 84.5),
        ("eps05", place("digits", "fedpcl", "igpp"), "syn", 65.25),
        ("ablation", place("office_caltech", "fedproto", "igpp-dcr"), "avg", 92.89),
        ("ablation", place("pacs", "fedproto", "igpp"), "std", 7.31),
        ("labelskew", place("cifar10", "fpl", "vpdr", "0.5"), "avg", 80.14),
        ("agnews", place("agnews", "fedproto", "igpp", "10"), "avg", 90.06),
        ("het-domain", place("office_caltech", "fedtgp", "vpdr", "HtC4"), "avg", 85.25),
        ("het-label", place("cifar10", "fedproto", "vpdr", "HtC4/a=0.5"), "avg", 71.27),
        ("attack-office", place("office_caltech", "fedproto", "igpp", "2"), "auc", 0.5081),
        ("attack-digits", place("digits", "fedproto", "none", "1"), "cffd", 304.8),
        ("dr", place("pacs", "fedproto", "r0.2", "1024"), "auc", 0.5011),
        ("fig-tsne", place("digits", "fedproto", "vpdr"), "T=1 syn", 34.55),
        ("controls", place("office_caltech", "fedproto", "igpp"), "avg", 90.82),
    ],
)
def test_the_papers_numbers_are_found(name: str, where: Place, metric: str, value: float) -> None:
    assert printed(load_study(name), where)[metric] == value


def test_what_the_paper_does_not_print_is_missing() -> None:
    study = load_study("table1")
    for method in ("local", "vpp-random", "vpdr-random"):
        assert printed(study, place("pacs", "fedproto", method)) == {}


def test_the_average_of_some_domains_is_theirs_alone() -> None:
    found = printed(load_study("table1"), place("digits", "fedproto", "igpp"), ["mnist", "usps"])
    assert found["avg"] == pytest.approx((98.2 + 93.42) / 2)
    assert found["std"] == pytest.approx((98.2 - 93.42) / 2**0.5)


def test_all_numbers_of_a_table_are_used() -> None:
    study = load_study("table1")
    places = [place(d, f, m) for d in study.datasets for f in study.frameworks for m in ("igpp", "vpdr")]
    assert len([p for p in places if printed(study, p)]) == 36 == 6 * len(paper_numbers()["table1_eps1"])


def test_a_smoke_run_has_fewer_of_everything() -> None:
    study = load_study("labelskew")
    small = cells_of(study, Wish(smoke=True))
    assert {cell.place.point for cell in small} == {"0.1", "0.5"}
    assert len(Wish(smoke=True).seeds_of(study)) < len(study.seeds)
    sharing = [method for method in study.methods if study.arm(method) is not None and method != "local"]
    assert runs_of(study) == 3 * (5 * 6 * len(sharing) * 4 + 5)  # local once for each α


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"settings": ["framework.kind=fpl"]}, "the table names its frameworks"),
        ({"settings": ["run.seed=3"]}, "use --seeds"),
        ({"settings": ["budgt.epsilon=1"]}, "did you mean 'budget'?"),
        ({"backbones": ["vit_smal"]}, "did you mean 'vit_small'?"),
        ({"select": "tset"}, "did you mean 'test'?"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(wish, words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace("?", r"\?")):
        Wish(**wish)


def test_an_unknown_id_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'ablation'"):
        load_study("ablaton")
