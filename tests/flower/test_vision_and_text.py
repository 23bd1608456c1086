"""Pictures and texts through real backbones, and whose paths they are read from."""

import csv
from pathlib import Path

import pytest

from tests.flower.conftest import tiny, without_exchange
from vpdr.engines.runner import run_plan
from vpdr.flower.judgement import judge
from vpdr.flower.policy import BudgetTerms, DataTerms, Policy
from vpdr.flower.refusals import Code, Refused
from vpdr.flower.samples import at_home
from vpdr.flower.simulation import simulate_in_process
from vpdr.plan import Plan, load_experiment
from vpdr.plan.experiment import Wishes
from vpdr.plan.sections import BenchmarkSection

SMALL = ("run.rounds=1", "train.epochs=1", "model.dim=32", "model.hidden=16", "train.batch=16")
TOPICS = ("war and peace talks", "the cup final", "shares fell on friday", "a new chip for phones")


def plan_of(*settings: str) -> Plan:
    return load_experiment("paper", Wishes(settings=(*SMALL, *settings))).arms[0].plan


def same(plan: Plan, tmp_path: Path) -> None:
    expected = run_plan(plan, tmp_path / "run").record
    assert without_exchange(simulate_in_process(plan, tmp_path / "flower")) == without_exchange(expected)


@pytest.mark.embedded
@pytest.mark.parametrize("adapters", ["last", "blocks"])
def test_pictures(tmp_path: Path, adapters: str) -> None:
    size = "benchmark.samples=40" if adapters == "blocks" else "benchmark.samples=80"
    same(plan_of("benchmark.kind=quickstart", size, f"model.adapters={adapters}"), tmp_path)


@pytest.mark.embedded
@pytest.mark.parametrize("adapters", ["last", "blocks"])
def test_texts(tmp_path: Path, adapters: str) -> None:
    (tmp_path / "news").mkdir()
    for name, count in (("train.csv", 48), ("test.csv", 16)):
        with (tmp_path / "news" / name).open("w", newline="") as file:
            rows = [(1 + n % 4, f"News {n}", f"{TOPICS[n % 4]}, said source {n}") for n in range(count)]
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    plan = plan_of(
        "benchmark.kind=agnews",
        f"benchmark.root={tmp_path / 'news'}",
        "benchmark.clients=2",
        "benchmark.concentration=100",
        "model.backbone=minilm",
        f"model.adapters={adapters}",
    )
    same(plan, tmp_path)


def test_every_path_is_the_owners() -> None:
    greedy = tiny("benchmark.root=/etc", "benchmark.manifest=/etc/passwd", "model.weights=hub:evil/twin")
    data = DataTerms(benchmark="synthetic", settings={"root": "/srv/mine"})
    seen = at_home(Policy(name="a", data=data), greedy)
    assert seen.benchmark.root == "/srv/mine"
    assert (seen.benchmark.manifest, seen.model.weights, seen.run.device) == ("", "", "cpu")


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_private_labels_are_not_divided_by_a_server(adjacency: str) -> None:
    wishes = ("benchmark.kind=quickstart", "benchmark.samples=40", f"budget.adjacency={adjacency}")
    plan = load_experiment("strict", Wishes(settings=(*wishes, "release.noise=system"))).arms[0].plan
    budget = BudgetTerms(adjacency=adjacency)
    bare = Policy(name="photos", budget=budget, data=DataTerms(benchmark="quickstart"))
    with pytest.raises(Refused) as refusal:
        judge(bare, plan)
    assert refusal.value.code is Code.DIVISION
    own = DataTerms(benchmark="quickstart", settings={"manifest": "/srv/split.json", "samples": 60})
    settled = Policy(name="photos", budget=budget, data=own)
    judge(settled, plan)
    greedy = ("benchmark.test_fraction=0.5", "benchmark.skew=label", "benchmark.minimum=30")
    other = load_experiment("strict", Wishes(settings=(*wishes, *greedy))).arms[0].plan
    section = at_home(settled, other).benchmark
    assert section == BenchmarkSection(kind="quickstart", manifest="/srv/split.json", samples=60)
    public = Policy(name="photos", data=DataTerms(benchmark="quickstart"))
    judge(public, plan_of("benchmark.kind=quickstart", "release.noise=system"))


@pytest.mark.embedded
def test_simulated_owners_keep_the_division(tmp_path: Path) -> None:
    settings = (*SMALL, "benchmark.kind=quickstart", "benchmark.samples=40")
    same(load_experiment("strict", Wishes(settings=settings)).arms[0].plan, tmp_path)
