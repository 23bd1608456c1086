"""What one sample can do to a stage, under every adjacency, for centres that an adversary chose."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import CLASSES, DIM, blobs, opened
from tests.unit.mechanisms.rapp_cases import make_rapp, release_context, stage_params
from vpdr import Adjacency, ClassSums
from vpdr.mechanisms.rapp import stage_statistics
from vpdr.rng import Grid, Streams
from vpdr.types import Features, Prototypes

SAME, ANY, ADD_REMOVE = Adjacency
seeds, rows, labels_of = st.integers(0, 10**6), st.integers(0, 119), st.integers(0, CLASSES - 1)
lengths = st.one_of(st.sampled_from([0.0, 1e-9, 1.0, 1e5, 1e150]), st.floats(0, 30))
radii = st.one_of(st.sampled_from([1e-6, 1e6]), st.floats(0.1, 20))
places = st.sampled_from([0.0, 1.0, 100.0, 1e8])
several = st.sampled_from([1, 2, 3])


def data() -> Features:
    vectors, labels = blobs(2)
    return Features(vectors.double(), labels)


def new_sample(seed: int, length: float) -> torch.Tensor:
    drawn = torch.randn(DIM, generator=Streams(seed).generator("new"), dtype=torch.float64)
    return drawn / drawn.norm() * length


def moved(first: Features, second: Features, params, adjacency: Adjacency) -> tuple[float, float]:
    """The joint shift of sums and hidden counts in units of their noise, and that of the moment."""
    grid, unit_grid = Grid.for_noise(params.radius, params.radius), Grid.for_noise(1.0, 1.0)
    (one, first_moment), (two, second_moment) = (
        stage_statistics(data, params, grid, unit_grid) for data in (first, second)
    )
    rule = ClassSums(classes=len(params.centres))
    unit = rule.sensitivity(params.adjacency, params.radius, one.sizes)
    shift = (grid.to_real(one.sums - two.sums).norm(dim=1) / unit).square().sum()
    counts = (one.sizes - two.sizes).double()
    if rule.counts_are_private(params.adjacency):
        shift = shift + (counts / (unit / params.radius)).square().sum()
    else:
        assert not counts.any()  # public, and the same for all neighbours
    return float(shift.sqrt()), float(unit_grid.to_real(first_moment - second_moment).abs())


@settings(max_examples=150, deadline=None)
@given(seed=seeds, row=rows, length=lengths, radius=radii, far=places, per_class=several)
def test_a_sample_of_the_same_class(seed, row, length, radius, far, per_class) -> None:
    first, second = data(), data()
    second.vectors[row] = new_sample(seed, length)
    shift, moment = moved(first, second, stage_params(seed, SAME, per_class, radius, far), SAME)
    assert shift <= 1 + 1e-12
    assert moment <= 1


@settings(max_examples=150, deadline=None)
@given(seed=seeds, row=rows, label=labels_of, length=lengths, radius=radii, far=places, per_class=several)
def test_any_sample_for_any_other(seed, row, label, length, radius, far, per_class) -> None:
    first, second = data(), data()
    second.vectors[row] = new_sample(seed, length)
    second.labels[row] = label
    shift, moment = moved(first, second, stage_params(seed, ANY, per_class, radius, far), ANY)
    assert shift <= 1 + 1e-12
    assert moment <= 1


@settings(max_examples=100, deadline=None)
@given(seed=seeds, label=labels_of, length=lengths, radius=radii, far=places, per_class=several)
def test_a_sample_more_or_less(seed, label, length, radius, far, per_class) -> None:
    first = data()
    second = Features(
        torch.cat([first.vectors, new_sample(seed, length)[None]]), torch.cat([first.labels, torch.tensor([label])])
    )
    shift, moment = moved(first, second, stage_params(seed, ADD_REMOVE, per_class, radius, far), ADD_REMOVE)
    assert shift <= 1 + 1e-12
    assert moment <= 1


def test_the_bounds_are_attained() -> None:
    params = stage_params(0, ANY, 1, 3.0, 10.0)
    push = torch.zeros(DIM, dtype=torch.float64)
    push[0] = 1e6

    def alone(vector: torch.Tensor, label: int) -> Features:
        return Features((params.centres[label] + vector)[None], torch.tensor([label]))

    assert moved(alone(push, 0), alone(-push, 0), params, ANY)[0] == pytest.approx(1)
    assert moved(alone(push, 0), alone(push, 1), params, ANY)[0] == pytest.approx(1)
    nobody = Features(torch.zeros(0, DIM, dtype=torch.float64), torch.zeros(0, dtype=torch.int64))
    leaving = stage_params(0, ADD_REMOVE, 1, 3.0, 10.0)
    assert moved(alone(push, 0), nobody, leaving, ADD_REMOVE) == pytest.approx((1, 1))


@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_whole_stage_moves_by_no_more_than_it_is_charged(adjacency) -> None:
    """The same noise on two neighbours: the first release differs by the shift of the data alone."""
    mechanism = make_rapp(adjacency=adjacency)
    vectors, labels = blobs(2)
    other, relabelled = vectors.clone(), labels.clone()
    other[3] = 1e6
    if adjacency is ANY:
        relabelled[3] = (labels[3] + 1) % CLASSES
    if adjacency is ADD_REMOVE:
        other, relabelled = torch.cat([vectors, other[3:4]]), torch.cat([labels, labels[3:4]])
    last_broadcast = Prototypes(vectors[:CLASSES] * 50, torch.arange(CLASSES))
    one = opened(mechanism.release(vectors, labels, release_context(last_broadcast=last_broadcast)))
    two = opened(mechanism.release(other, relabelled, release_context(last_broadcast=last_broadcast)))
    assert one.receipt == two.receipt
    first, second = one.state, two.state
    assert first["weight"] == second["weight"]  # the scale of the noise does not depend on the data
    sums = (first["sums"] - second["sums"]) / first["weight"].sqrt()
    counts = (first["counts"] - second["counts"]) / first["counted"].sqrt()
    shift = math.sqrt(float(sums.square().sum() + counts.square().sum()))
    assert shift <= 1 / one.receipt.events[0].noise_multiplier * (1 + 1e-9)
