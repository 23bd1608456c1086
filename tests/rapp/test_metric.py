"""Elliptical noise: the map by hand, what one sample can do behind it, and what is published of its noise."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import CLASSES, DIM, blobs, elliptical
from tests.rapp.rapp_cases import made, occasion, view
from tests.rapp.test_stage_sensitivity import (
    labels_of,
    lengths,
    moved,
    new_sample,
    places,
    radii,
    rows,
    seeds,
)
from vpdr import Adjacency
from vpdr.errors import InvalidInput
from vpdr.mechanisms import Geometry
from vpdr.mechanisms.rapp.centres import heard_centres
from vpdr.prototypes import ClassMeans
from vpdr.rng import Streams
from vpdr.types import Features, Prototypes

WEIGHT, BIAS = torch.tensor([[9.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), torch.tensor([1.0, 2.0, 3.0])


def near(found: torch.Tensor, *diagonal: float) -> None:
    torch.testing.assert_close(found, torch.diag(torch.tensor(diagonal, dtype=torch.float64)))


def test_a_small_projection_by_hand() -> None:
    """Singular values 9 and 1: squared scales 9/5 and 1/5, nothing along the third axis."""
    shaped = Geometry.of_projection(WEIGHT, BIAS)
    assert shaped.dims == (3, 2)
    near(shaped.inward @ shaped.inward.T, 5 / 9, 5, 0)
    near(shaped.outward.T @ shaped.outward, 9 / 5, 1 / 5, 0)
    near(shaped.inward @ shaped.outward, 1, 1, 0)
    assert shaped.spread == pytest.approx(2 / 3)
    # a typical feature W·h of a round h has 81 + 1 of energy, and 81·5/9 + 1·5 = 50 behind the map
    assert shaped.shrinks == pytest.approx(math.sqrt(50 / 82))
    lengths = shaped.into(torch.tensor([[4.0, 2.0, 7.0], [1.0, 3.0, 3.0]])).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([3 * math.sqrt(5 / 9), math.sqrt(5)]))
    told = shaped.back(shaped.into(torch.tensor([[4.0, 5.0, 7.0]])))
    torch.testing.assert_close(told, torch.tensor([[4.0, 5.0, 3.0]], dtype=torch.float64))


def test_a_subspace_by_hand() -> None:
    """Along (1, 1, 0)/√2 the projection above stretches by √((81 + 1)/2)."""
    half = torch.tensor([[0.5], [0.5], [0.0]], dtype=torch.float64).sqrt()
    within = Geometry(half, half.T, torch.zeros(3, dtype=torch.float64), math.sqrt(1 / 3))
    shaped = Geometry.of_projection(WEIGHT, BIAS, within=within)
    torch.testing.assert_close(shaped.inward @ shaped.inward.T, half @ half.T)
    assert (shaped.spread, shaped.shrinks) == pytest.approx((1 / 3, math.sqrt(41 / 82)))
    outside = Geometry(half.flip(0), half.flip(0).T, within.offset, within.shrinks)  # half out of reach
    left = Geometry.of_projection(WEIGHT, within=outside)
    near(left.inward @ left.inward.T, 0, 1, 0)
    assert Geometry.of_projection(WEIGHT, within=Geometry.plain(3)).dims == (3, 2)
    with pytest.raises(InvalidInput, match="got zeros"):
        Geometry.of_projection(torch.zeros(3, 2))


def test_equal_singular_values_leave_a_subspace_as_it_is() -> None:
    """So that machines which round differently still release in the same one."""
    turned = torch.nn.init.orthogonal_(torch.empty(DIM, DIM), generator=Streams(2).draw("turn"))
    within = Geometry.random(DIM, 5, Streams(0).draw("space"))
    shaped = Geometry.of_projection(turned, within=within)
    torch.testing.assert_close(
        shaped.inward @ shaped.outward, within.inward @ within.outward, atol=1e-5, rtol=0
    )


def test_a_map_that_only_stretches_is_not_plain() -> None:
    stretched = Geometry.of_projection(torch.diag(torch.tensor([4.0, 1.0])))
    assert not stretched.is_plain
    torch.testing.assert_close(
        stretched.into(torch.eye(2)).norm(dim=1).double() ** 2, torch.tensor([0.625, 2.5]).double()
    )


def test_the_projections_own_scale_does_not_matter() -> None:
    one, other = Geometry.of_projection(WEIGHT, BIAS), Geometry.of_projection(7 * WEIGHT, BIAS)
    torch.testing.assert_close(one.inward, other.inward)
    assert one.shrinks == pytest.approx(other.shrinks)


@pytest.mark.parametrize("reached", [5, 130, 300, 700])
@pytest.mark.parametrize("samples", [0, 1, 1000, 2001])
def test_blocks_change_nothing(reached, samples) -> None:
    shaped = elliptical(300, reached)
    x = torch.randn(samples, 300, generator=Streams(1).draw("x"), dtype=torch.float64)
    whole = (x - shaped.offset) @ shaped.inward
    torch.testing.assert_close(shaped.into(x).double(), whole, atol=1e-4, rtol=1e-4)


def test_a_sample_is_mapped_the_same_whoever_else_is_there() -> None:
    """Bit for bit: where the number of samples is private, not even rounding may tell it."""
    shaped = elliptical(300, 200)
    x = torch.randn(1500, 300, generator=Streams(1).draw("x"), dtype=torch.float64)
    whole = shaped.into(x)
    for count in (1, 2, 3, 17, 255, 256, 257, 1023, 1024, 1025, 1499):
        assert torch.equal(shaped.into(x[:count]), whole[:count])


@pytest.mark.parametrize("kept", [2, 7, 64, 69, 70, 71, 200])
def test_a_sample_is_mapped_the_same_wherever_it_stands(kept: int) -> None:
    """Where one can go, all others move up."""
    x = torch.randn(600, 301, generator=Streams(1).draw("x"), dtype=torch.float64)
    for shaped in (Geometry.random(301, kept, Streams(2).draw("space")), elliptical(301, kept)):
        whole = shaped.into(x)
        assert torch.equal(shaped.into(x[1:]), whole[1:])
        assert torch.equal(shaped.into(x[3:]), whole[3:])


def test_no_sign_is_left_to_the_machine() -> None:
    assert bool((elliptical(60, 20).inward.diagonal() > 0).all())


@settings(max_examples=150, deadline=None)
@given(
    seed=seeds,
    row=rows,
    label=labels_of,
    length=lengths,
    radius=radii,
    far=places,
    per_class=st.sampled_from([1, 2]),
    adjacency=st.sampled_from(list(Adjacency)),
    kept=st.sampled_from([5, DIM]),
)
def test_no_sample_does_more_behind_the_map(
    seed, row, label, length, radius, far, per_class, adjacency, kept
) -> None:
    """For any projection, any sample and any centres that an enemy may choose."""
    vectors, labels = blobs(2)
    other, relabelled = vectors.double(), labels.clone()
    if adjacency is Adjacency.ADD_REMOVE:
        other, relabelled = torch.cat([other, other[:1]]), torch.cat([labels, torch.tensor([label])])
        row = -1
    other[row] = new_sample(seed, length)
    if adjacency is Adjacency.REPLACE_ONE:
        relabelled[row] = label
    shaped = elliptical(seed=seed, kept=kept)
    looking = view(seed, adjacency, per_class, radius, far, kept)
    first, second = Features(shaped.into(vectors.double()), labels), Features(shaped.into(other), relabelled)
    shift, moment = moved(first, second, looking, adjacency)
    assert shift <= 1 + 1e-9
    assert moment <= 1 + 1e-9


def ratio(geometry: Geometry, claimed: float | None = None) -> float:
    """Over many runs: the error in the feature space over the variance that was published for it."""
    pooled = torch.randn(400, DIM, generator=Streams(1).draw("pooled"), dtype=torch.float64)
    vectors = geometry.back(pooled[:, : geometry.dims[1]] * 3)  # what the map reaches
    labels = torch.arange(400) % CLASSES
    clean = ClassMeans()(vectors, labels).vectors
    mechanism = made(rounds=1, epsilon=4.0, clip_norm=200.0, shares=(1.0,), geometry=geometry)
    found = []
    for seed in range(60):
        told = mechanism.release(vectors, labels, occasion(seed=seed)).prototypes
        published = told.variances if claimed is None else told.variances / geometry.spread * claimed
        found.append(float(((told.vectors - clean).square().mean(1) / published).mean()))
    return sum(found) / len(found)


@pytest.mark.parametrize("shape", [{}, {"reached": 9}, {"kept": 5}, {"reached": 20, "kept": 11}])
def test_the_published_variance_is_the_error_in_the_feature_space(shape) -> None:
    assert ratio(elliptical(**shape)) == pytest.approx(1, abs=0.05)


def test_a_wrong_scale_would_be_noticed() -> None:
    shaped = elliptical(kept=5)
    assert abs(ratio(shaped, claimed=1.0) - 1) > 0.5  # per coordinate of the release, not of the feature
    wider = Geometry(shaped.inward / 1.2, 1.2 * shaped.outward, shaped.offset, shaped.shrinks)
    assert ratio(wider) == pytest.approx(1, abs=0.05)
    assert abs(ratio(wider, claimed=5 / DIM) - 1) > 0.3  # as if scales had a mean square of 1


def test_noise_goes_where_the_projection_stretches() -> None:
    """The noise of a release along a singular vector has the variance of its singular value."""
    weight = torch.diag(torch.linspace(1, 8, DIM))
    mechanism = made(rounds=1, geometry=Geometry.of_projection(weight), shares=(1.0,))
    nobody = torch.zeros(4000, DIM), torch.arange(4000) % CLASSES
    told = [mechanism.release(*nobody, occasion(seed=seed)).prototypes.vectors for seed in range(60)]
    energy = torch.cat(told).square().mean(0)
    torch.testing.assert_close(energy / energy.mean(), weight.diagonal() / 4.5, rtol=0.5, atol=0)
    assert energy[-8:].mean() / energy[:8].mean() == pytest.approx(7.210 / 1.790, rel=0.1)


def test_a_broadcast_is_heard_through_the_map() -> None:
    shaped = elliptical()
    told = Prototypes(3 * torch.randn(CLASSES, DIM, generator=Streams(5).draw("x")), torch.arange(CLASSES))
    centres = heard_centres(told, shaped, CLASSES, 1e3)
    torch.testing.assert_close(shaped.back(centres).float(), told.vectors, atol=1e-3, rtol=1e-3)


def test_the_first_radius_is_that_of_a_typical_feature() -> None:
    rng = Streams(6).draw("x")
    weight = torch.randn(DIM, 3 * DIM, generator=rng) / math.sqrt(3 * DIM)
    for kept in (DIM, 7):
        shaped = Geometry.of_projection(weight, within=Geometry.random(DIM, kept, rng))
        features = torch.randn(5000, 3 * DIM, generator=rng) @ weight.T
        typical = shaped.into(features.double()).square().sum(1).mean() / features.square().sum(1).mean()
        assert shaped.shrinks == pytest.approx(float(typical.sqrt()), rel=0.02)


def test_it_pays_where_features_follow_the_projection() -> None:
    """Less squared error than round noise, by (Σs)² / (dΣs²), once clipping is the same for both."""
    weight = torch.diag(torch.linspace(0.1, 3, DIM).square())
    values = weight.diagonal()
    expected = float(values.sum() ** 2 / (DIM * values.square().sum()))
    vectors = torch.randn(4000, DIM, generator=Streams(7).draw("x")) @ weight
    labels = torch.arange(4000) % CLASSES
    clean = ClassMeans()(vectors.double(), labels).vectors

    def error(geometry: Geometry) -> float:
        clip_norm = 3 * float(vectors.square().sum(1).mean().sqrt())
        mechanism = made(rounds=1, clip_norm=clip_norm, shares=(1.0,), geometry=geometry)
        runs = [mechanism.release(vectors, labels, occasion(seed=seed)) for seed in range(40)]
        return sum(float((made.prototypes.vectors - clean).square().sum()) for made in runs)

    assert error(Geometry.of_projection(weight)) / error(Geometry.plain(DIM)) == pytest.approx(
        expected, rel=0.1
    )
