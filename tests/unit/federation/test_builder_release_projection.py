"""The space of rapp's release, from a config alone."""

import pytest
import torch

from tests.unit.federation.conftest import tiny
from vpdr.config import ExperimentOptions, RunConfig, load_experiment
from vpdr.config.rules import make_mechanism
from vpdr.encoder.zoo import model_families
from vpdr.federation.builder import ClientFactory
from vpdr.mechanisms import ReleaseProjection
from vpdr.rng import Streams

REAL = ("benchmark.kind=quickstart", "model.weights=random")


def strict_config(*settings: str) -> RunConfig:
    return load_experiment("strict", ExperimentOptions(settings=(*REAL, *settings))).method_configs[0].config


def projection_of(config: RunConfig, seed: int = 0) -> ReleaseProjection:
    return make_mechanism(config, config.mechanism.kind, 10, Streams(seed)).projection


def test_clients_use_the_projection_of_the_config() -> None:
    config = strict_config("mechanism.release_dim=7", "run.seed=3")
    of_clients = ClientFactory(config, 10).release_config.mechanism.projection
    assert torch.equal(of_clients.basis, projection_of(config, 3).basis)


def test_the_public_rule_sets_the_dimension() -> None:
    assert projection_of(strict_config("mechanism.expected=20")).dims == (512, 64)
    assert projection_of(strict_config("mechanism.release_dim=7")).dims == (512, 7)


def test_equal_seeds_give_equal_projections() -> None:
    config = strict_config("mechanism.release_dim=7")
    one, two, other = (projection_of(config, seed).basis for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_without_release_dim_all_dimensions_are_released() -> None:
    assert projection_of(tiny(source="strict")).is_identity
    narrow = projection_of(tiny("mechanism.release_dim=5", source="strict"))
    assert torch.equal(narrow.basis, ReleaseProjection.random(12, 5, Streams(0).generator("release-space")).basis)


@pytest.mark.parametrize("family", model_families())
def test_clients_of_different_models_share_one_projection(family) -> None:
    assert projection_of(strict_config(f"model.family={family}", "mechanism.release_dim=7")).dims == (512, 7)
