"""Flower carries the messages and changes no number."""

from pathlib import Path

import pytest

from tests.flower.conftest import tiny, without_exchange
from vpdr.engines.runner import run_plan
from vpdr.flower.simulation import simulate_in_process
from vpdr.frameworks import FRAMEWORKS

VPDR = ("mechanism.kind=vpp", "regulariser.kind=dcr")
ON_PATH = ("framework.kind=mpft", "release.encoder=transcript")
CASES = {
    **{name: (f"framework.kind={name}", *VPDR, "run.rounds=2") for name in FRAMEWORKS},
    "none": ("mechanism.kind=none", "run.rounds=2"),
    "igpp": ("mechanism.kind=igpp", "run.rounds=2"),
    "a selection that is remembered": (*VPDR, "mechanism.selection=once"),
    "a selection from broadcasts": (*VPDR, "mechanism.selection=public"),
    "rdp": ("budget.accountant=rdp", "run.rounds=2"),
    "tests now and then": ("run.measure_every=2",),
    "few releases": ("release.count=2",),
    "public sizes": ("weights.kind=class_count", "benchmark.skew=label"),
    "some are away": (*VPDR, "participation.fraction=0.7", "participation.dropout=0.2", "run.rounds=4"),
    "a broadcast path": (*ON_PATH, "mechanism.kind=igpp"),
    "a path that some have missed": (*ON_PATH, *VPDR, "participation.fraction=0.5", "run.rounds=5"),
    "a schedule": ('participation.schedule={"client-000" = [1, 3], "client-002" = [2]}',),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_numbers_are_those_of_vpdr_run(tmp_path: Path, case: str) -> None:
    plan = tiny(*CASES[case])
    expected = run_plan(plan, tmp_path / "run").record
    record = simulate_in_process(plan, tmp_path / "flower")
    assert without_exchange(record) == without_exchange(expected)
    assert record["exchange"]["missing"] == record["exchange"]["dropped"] == 0
    assert len(record["exchange"]["messages"]) == plan.run.rounds + 1  # one a round, and a last one to close
    for ledger in (tmp_path / "run" / "ledgers").glob("*.json"):
        assert (tmp_path / "flower" / "ledgers" / ledger.name).read_bytes() == ledger.read_bytes()


@pytest.mark.parametrize("per_class", [1, 2])
@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "local"])
def test_the_strict_preset_stays_proved(tmp_path: Path, framework: str, per_class: int) -> None:
    settings = (f"framework.kind={framework}", "release.count=2", f"mechanism.per_class={per_class}")
    plan = tiny(*settings, source="strict")
    record = simulate_in_process(plan, tmp_path / "flower")
    assert without_exchange(record) == without_exchange(run_plan(plan, tmp_path / "run").record)
    assert record["privacy"]["level"] == "proved"
    assert record["exchange"]["dropped"] == 0


@pytest.mark.parametrize("kept", [0, 5])
def test_a_silo_makes_the_same_metric(tmp_path: Path, kept: int) -> None:
    plan = tiny("mechanism.metric=projection", f"mechanism.release_dim={kept}", source="strict")
    record = simulate_in_process(plan, tmp_path / "flower")
    assert without_exchange(record) == without_exchange(run_plan(plan, tmp_path / "run").record)
    assert record["privacy"]["level"] == "proved"


def test_real_noise_is_not_the_seeds(tmp_path: Path) -> None:
    plan = tiny("release.noise=system", "run.rounds=1")
    record = simulate_in_process(plan, tmp_path / "flower")
    assert record["privacy"]["noise"] == "system"
    assert "simulated" not in record["privacy"]["sentence"]
    assert without_exchange(record) != without_exchange(simulate_in_process(plan, tmp_path / "again"))
