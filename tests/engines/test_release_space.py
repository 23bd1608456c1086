"""The space of a release, from a plan alone: the projection that clients will have."""

import pytest
import torch

from tests.engines.conftest import tiny
from vpdr.encoder import families
from vpdr.engines.build import Pattern
from vpdr.engines.release_space import release_space
from vpdr.engines.trunks import member_of, trunk_of
from vpdr.errors import InvalidInput
from vpdr.mechanisms.rapp import Geometry
from vpdr.plan import Plan, load_experiment
from vpdr.plan.experiment import Wishes
from vpdr.rng import Streams

REAL = ("benchmark.kind=quickstart", "model.weights=random", "mechanism.metric=projection")


def plan_of(*settings: str) -> Plan:
    return load_experiment("strict", Wishes(settings=(*REAL, *settings))).arms[0].plan


@pytest.mark.parametrize("backbone", ["efficientnet_lite0", "vit_tiny", "resnet18"])
@pytest.mark.parametrize("kind", ["random", "orthogonal", "train"])
def test_it_is_made_of_the_path_that_clients_release_through(backbone, kind) -> None:
    plan = plan_of(
        f"model.backbone={backbone}", f"model.projection={kind}", "model.projection_scale=2", "run.seed=3"
    )
    made = Pattern.of(plan, 10).promise.mechanism.geometry
    path = trunk_of(plan, member_of(plan, 0), Streams(3)).path
    inputs = torch.randn(5, path.projection.in_features, generator=Streams(1).draw("x"))
    features = path(inputs).detach()
    assert made.dims == (512, min(512, path.projection.in_features))
    torch.testing.assert_close(made.back(made.into(features)).float(), features, atol=1e-3, rtol=1e-3)
    still = path(torch.zeros(1, path.projection.in_features)).detach()
    torch.testing.assert_close(made.offset.float(), still[0])


def test_an_orthogonal_projection_stretches_nothing() -> None:
    made = release_space(plan_of("model.projection=orthogonal"), Streams(0))
    torch.testing.assert_close(
        made.inward @ made.inward.T, torch.eye(512, dtype=torch.float64), atol=1e-5, rtol=0
    )


def test_the_public_rule_chooses_the_dimension_of_both() -> None:
    for metric in ("plain", "projection"):
        plan = plan_of("mechanism.expected=20", f"mechanism.metric={metric}")
        assert release_space(plan, Streams(0)).dims == (512, 64)
    assert release_space(plan_of("mechanism.release_dim=7"), Streams(0)).dims == (512, 7)


def test_everybody_makes_the_same_and_other_seeds_another() -> None:
    plan = plan_of()
    one, two, other = (release_space(plan, Streams(seed)).inward for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_plain_is_as_it_was() -> None:
    assert release_space(tiny(source="strict"), Streams(0)).is_plain
    narrow = release_space(tiny("mechanism.release_dim=5", source="strict"), Streams(0))
    assert torch.equal(narrow.inward, Geometry.random(12, 5, Streams(0).draw("release-space")).inward)


@pytest.mark.parametrize("family", families())
def test_clients_of_several_projections_have_no_common_metric(family) -> None:
    if family in {"HtC4", "LiteC4"}:  # one feature extractor, so one projection to begin with
        assert release_space(plan_of(f"model.family={family}"), Streams(0)).dims[0] == 512
        return
    with pytest.raises(
        InvalidInput, match=f"one projection for all clients, family {family} has .*=plain"
    ) as told:
        plan_of(f"model.family={family}")
    assert "\n" not in str(told.value)
    assert plan_of(f"model.family={family}", "mechanism.metric=plain").mechanism.metric == "plain"


def test_what_another_mechanism_does_not_read_is_no_mistake() -> None:
    assert plan_of("model.family=HtFE4", "mechanism.kind=igpp").mechanism.kind == "igpp"
