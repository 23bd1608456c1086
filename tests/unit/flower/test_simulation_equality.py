"""Runs over Flower give the same numbers as `vpdr run`."""

from pathlib import Path

import pytest

from tests.unit.flower.conftest import tiny, without_exchange
from vpdr.federation import run_federation
from vpdr.flower.simulation import simulate_in_process
from vpdr.frameworks import FRAMEWORKS

VPDR = ("mechanism.kind=vpp", "regulariser.kind=dcr")
BROADCAST_FEATURES = ("framework.kind=mpft", "release.encoder=broadcast")
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
    "broadcast features": (*BROADCAST_FEATURES, "mechanism.kind=igpp"),
    "a feature map that some have missed": (*BROADCAST_FEATURES, *VPDR, "participation.fraction=0.5", "run.rounds=5"),
    "a schedule": ('participation.schedule={"client-000" = [1, 3], "client-002" = [2]}',),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_numbers_are_those_of_vpdr_run(tmp_path: Path, case: str) -> None:
    config = tiny(*CASES[case])
    expected = run_federation(config, tmp_path / "run").record
    record = simulate_in_process(config, tmp_path / "flower")
    assert without_exchange(record) == without_exchange(expected)
    assert record.exchange.missing == record.exchange.dropped == 0
    assert len(record.exchange.messages) == config.run.rounds + 1
    for ledger in (tmp_path / "run" / "ledgers").glob("*.json"):
        assert (tmp_path / "flower" / "ledgers" / ledger.name).read_bytes() == ledger.read_bytes()


@pytest.mark.parametrize("per_class", [1, 2])
@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "local"])
def test_the_strict_preset_stays_proved(tmp_path: Path, framework: str, per_class: int) -> None:
    settings = (f"framework.kind={framework}", "release.count=2", f"mechanism.per_class={per_class}")
    config = tiny(*settings, source="strict")
    record = simulate_in_process(config, tmp_path / "flower")
    assert without_exchange(record) == without_exchange(run_federation(config, tmp_path / "run").record)
    assert record.privacy.level == "proved"
    assert record.exchange.dropped == 0


@pytest.mark.parametrize("release_dim", [0, 5])
def test_a_client_draws_the_same_release_space(tmp_path: Path, release_dim: int) -> None:
    config = tiny(f"mechanism.release_dim={release_dim}", source="strict")
    record = simulate_in_process(config, tmp_path / "flower")
    assert without_exchange(record) == without_exchange(run_federation(config, tmp_path / "run").record)
    assert record.privacy.level == "proved"


def test_system_noise_does_not_come_from_the_seed(tmp_path: Path) -> None:
    config = tiny("release.noise=system", "run.rounds=1")
    record = simulate_in_process(config, tmp_path / "flower")
    assert record.privacy.noise == "system"
    assert "simulated" not in record.privacy.sentence
    assert without_exchange(record) != without_exchange(simulate_in_process(config, tmp_path / "again"))
