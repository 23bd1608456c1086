"""Model families over Flower: each client has the member of its position, as in `vpdr run`."""

from pathlib import Path

import pytest

from tests.unit.flower.conftest import edit_policy, make_feature_store, make_request, tiny, without_exchange
from tests.unit.flower.owner_cases import refusal_code
from vpdr.config import ExperimentOptions, RunConfig, load_experiment
from vpdr.encoder.zoo import family_model_spec
from vpdr.federation import run_federation
from vpdr.flower.client_app import handle_request, load_local_client
from vpdr.flower.owner import DataPolicy, NodeStore, Policy, RefusalCode
from vpdr.flower.simulation import simulate_in_process
from vpdr.validation import InvalidInput

FAMILY = ("model.family=LiteC4", "benchmark.kind=quickstart", "benchmark.samples=40", "run.rounds=1")


def make_config(*settings: str) -> RunConfig:
    settings = (*FAMILY, "train.epochs=1", "train.batch=16", "model.dim=12", *settings)
    return (
        load_experiment("paper", ExperimentOptions(settings=("mechanism.kind=igpp", *settings)))
        .method_configs[0]
        .config
    )


def make_silo(tmp_path: Path, place: str) -> NodeStore:
    """A node with a feature file and this line for its position."""
    store = make_feature_store(tmp_path, tiny())
    edit_policy(store.path, ("place = 0\n", place))
    return store


@pytest.mark.parametrize("place", [0, 2, 5])
def test_a_client_has_the_model_of_its_position(tmp_path: Path, place: int) -> None:
    store, config = make_silo(tmp_path, f"place = {place}\n"), make_config()
    assert load_local_client(store.policy(), config, b"key")[0].model_spec == family_model_spec("LiteC4", place)
    assert handle_request(store, make_request(config)).upload is not None


def test_without_a_position_a_family_is_refused(tmp_path: Path) -> None:
    store = make_silo(tmp_path, "")
    assert refusal_code(store, make_request(make_config())) is RefusalCode.PLACE
    assert not (store.path / "ledger.json").exists()
    assert handle_request(store, make_request(tiny())).upload is not None  # one model for all needs no place


def test_a_position_is_a_number() -> None:
    with pytest.raises(InvalidInput, match="place must be at least -1, got -2"):
        DataPolicy(place=-2)


@pytest.mark.embedded
def test_the_numbers_are_those_of_vpdr_run(tmp_path: Path) -> None:
    config = make_config("run.rounds=2")
    expected = run_federation(config, tmp_path / "run").record
    assert without_exchange(simulate_in_process(config, tmp_path / "flower")) == without_exchange(expected)


@pytest.mark.embedded
def test_a_client_with_one_domain_of_a_benchmark_has_its_own_model() -> None:
    config = make_config()
    data = DataPolicy(benchmark="quickstart", place=3, settings={"domains": ["printed"], "samples": 40})
    setup, _ = load_local_client(Policy(name="printed", data=data), config, b"key")
    assert setup.model_spec == family_model_spec("LiteC4", 3)
