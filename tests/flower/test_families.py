"""Families of models over Flower: each silo has the member of its place, as in the loop, or none at all."""

from pathlib import Path

import pytest

from tests.flower.conftest import changed, opening, tiny, with_features, without_exchange
from tests.flower.owner_cases import refused
from vpdr.encoder import family_member
from vpdr.engines.runner import run_plan
from vpdr.errors import InvalidInput
from vpdr.flower.home import Home
from vpdr.flower.node import answer
from vpdr.flower.policy import DataTerms, Policy
from vpdr.flower.refusals import Code
from vpdr.flower.samples import seat_of
from vpdr.flower.simulation import simulate_in_process
from vpdr.plan import Plan, load_experiment
from vpdr.plan.experiment import Wishes

FAMILY = ("model.family=LiteC4", "benchmark.kind=quickstart", "benchmark.samples=40", "run.rounds=1")


def plan_of(*settings: str) -> Plan:
    wishes = (*FAMILY, "train.epochs=1", "train.batch=16", "model.dim=12", *settings)
    return load_experiment("paper", Wishes(settings=wishes)).arms[0].plan


def silo(tmp_path: Path, place: str) -> Home:
    """A silo with features of its own, whose policy says its place, or does not."""
    home = with_features(tmp_path, tiny())
    changed(home.path, ("place = 0\n", place))
    return home


@pytest.mark.parametrize("place", [0, 2, 5])
def test_a_silo_has_the_member_of_its_place(tmp_path: Path, place: int) -> None:
    home, plan = silo(tmp_path, f"place = {place}\n"), plan_of()
    assert seat_of(home.policy(), plan)[0].member == family_member("LiteC4", place)
    assert answer(home, opening(plan)).upload is not None


def test_without_a_place_a_family_is_refused(tmp_path: Path) -> None:
    home = silo(tmp_path, "")
    assert refused(home, opening(plan_of())) is Code.PLACE
    assert not (home.path / "ledger.json").exists()
    assert answer(home, opening(tiny())).upload is not None  # one model for all needs no place


def test_a_place_is_a_number() -> None:
    with pytest.raises(InvalidInput, match="place must be at least -1, got -2"):
        DataTerms(place=-2)


@pytest.mark.embedded
def test_the_numbers_are_those_of_vpdr_run(tmp_path: Path) -> None:
    plan = plan_of("run.rounds=2")
    expected = run_plan(plan, tmp_path / "run").record
    assert without_exchange(simulate_in_process(plan, tmp_path / "flower")) == without_exchange(expected)


@pytest.mark.embedded
def test_a_silo_with_one_domain_of_a_benchmark_has_its_own_member() -> None:
    plan = plan_of()
    data = DataTerms(benchmark="quickstart", place=3, settings={"domains": ["printed"], "samples": 40})
    seat, _ = seat_of(Policy(name="printed", data=data), plan)
    assert seat.member == family_member("LiteC4", 3)
