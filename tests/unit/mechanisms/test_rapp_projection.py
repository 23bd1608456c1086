"""The projection of a release: by hand, sample by sample, and the noise that is published behind it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import CLASSES, DIM, blobs, opened
from tests.unit.mechanisms.rapp_cases import make_rapp, release_context, stage_params
from tests.unit.mechanisms.test_rapp_stage_sensitivity import (
    labels_of,
    lengths,
    moved,
    new_sample,
    places,
    radii,
    rows,
    seeds,
)
from vpdr import Adjacency, Budget, Rapp
from vpdr.mechanisms import ReleaseProjection
from vpdr.mechanisms.rapp import centres_from_broadcast, default_release_dim
from vpdr.prototypes import ClassMeans
from vpdr.rng import Streams
from vpdr.types import Features, Prototypes
from vpdr.validation import InvalidInput


def random_projection(dim: int = DIM, num_dims: int = DIM // 2, seed: int = 0) -> ReleaseProjection:
    return ReleaseProjection.random(dim, num_dims, Streams(seed).generator("space"))


def test_identity_and_random_projections() -> None:
    rng = Streams(0).generator("space")
    identity, narrow = ReleaseProjection.identity(DIM), ReleaseProjection.random(DIM, 5, rng)
    vectors = blobs(1)[0].double()
    assert identity.project(vectors) is vectors
    assert identity.is_identity
    assert not narrow.is_identity
    assert random_projection(DIM, DIM).is_identity
    torch.testing.assert_close(narrow.basis.T @ narrow.basis, torch.eye(5, dtype=torch.float64))
    once = narrow.lift(narrow.project(vectors))
    torch.testing.assert_close(narrow.lift(narrow.project(once)), once, atol=1e-5, rtol=1e-5)
    assert (identity.norm_ratio, identity.mean_variance) == (1, 1)
    assert narrow.norm_ratio**2 == pytest.approx(narrow.mean_variance) == pytest.approx(5 / DIM)
    with pytest.raises(InvalidInput, match="can keep 1 to 32"):
        ReleaseProjection.random(DIM, 33, rng)


def test_a_subspace_by_hand() -> None:
    """The line along (1, 1, 0)/√2."""
    half = torch.tensor([[0.5], [0.5], [0.0]], dtype=torch.float64).sqrt()
    line = ReleaseProjection(half)
    assert line.dims == (3, 1)
    assert (line.mean_variance, line.norm_ratio) == pytest.approx((1 / 3, math.sqrt(1 / 3)))
    projected = line.project(torch.tensor([[4.0, 2.0, 7.0], [1.0, -1.0, 3.0]]))
    torch.testing.assert_close(projected, torch.tensor([[6 / math.sqrt(2)], [0.0]]))
    lifted = line.lift(projected)
    torch.testing.assert_close(lifted, torch.tensor([[3.0, 3.0, 0.0], [0, 0, 0]], dtype=torch.float64))


@pytest.mark.parametrize("num_dims", [5, 130, 299])
@pytest.mark.parametrize("samples", [0, 1, 1000, 2001])
def test_blocks_change_nothing(num_dims, samples) -> None:
    projection = random_projection(300, num_dims)
    x = torch.randn(samples, 300, generator=Streams(1).generator("x"), dtype=torch.float64)
    torch.testing.assert_close(projection.project(x).double(), x @ projection.basis, atol=1e-4, rtol=1e-4)


def test_a_sample_is_projected_the_same_whoever_else_is_there() -> None:
    """Bit for bit: where the number of samples is private, rounding must not reveal it."""
    projection = random_projection(300, 200)
    x = torch.randn(1500, 300, generator=Streams(1).generator("x"), dtype=torch.float64)
    whole = projection.project(x)
    for count in (1, 2, 3, 17, 255, 256, 257, 1023, 1024, 1025, 1499):
        assert torch.equal(projection.project(x[:count]), whole[:count])


@pytest.mark.parametrize("num_dims", [2, 7, 64, 69, 70, 71, 200])
def test_a_sample_is_projected_the_same_wherever_it_stands(num_dims: int) -> None:
    """Where one sample is removed, all later ones move up."""
    x = torch.randn(600, 301, generator=Streams(1).generator("x"), dtype=torch.float64)
    projection = random_projection(301, num_dims, seed=2)
    whole = projection.project(x)
    assert torch.equal(projection.project(x[1:]), whole[1:])
    assert torch.equal(projection.project(x[3:]), whole[3:])


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
    num_dims=st.sampled_from([5, DIM]),
)
def test_the_sensitivity_holds_after_a_projection(
    seed, row, label, length, radius, far, per_class, adjacency, num_dims
) -> None:
    """For any projection, any sample and any centres that an adversary may choose."""
    vectors, labels = blobs(2)
    other, relabelled = vectors.double(), labels.clone()
    if adjacency is Adjacency.ADD_REMOVE:
        other, relabelled = torch.cat([other, other[:1]]), torch.cat([labels, torch.tensor([label])])
        row = -1
    other[row] = new_sample(seed, length)
    if adjacency is Adjacency.REPLACE_ONE:
        relabelled[row] = label
    projection = random_projection(DIM, num_dims, seed)
    params = stage_params(seed, adjacency, per_class, radius, far, num_dims)
    first, second = (
        Features(projection.project(vectors.double()), labels),
        Features(projection.project(other), relabelled),
    )
    shift, moment = moved(first, second, params, adjacency)
    assert shift <= 1 + 1e-9
    assert moment <= 1 + 1e-9


def error_ratio(projection: ReleaseProjection, mean_variance: float | None = None) -> float:
    """Over many runs: the error in the feature space over the variance that was published for it."""
    drawn = torch.randn(400, DIM, generator=Streams(1).generator("pooled"), dtype=torch.float64)
    vectors = projection.lift(drawn[:, : projection.dims[1]] * 3)  # inside the subspace
    labels = torch.arange(400) % CLASSES
    clean = ClassMeans()(vectors, labels).vectors
    mechanism = make_rapp(rounds=1, epsilon=4.0, clip_norm=200.0, shares=(1.0,), projection=projection)
    ratios = []
    for seed in range(60):
        upload = opened(mechanism.release(vectors, labels, release_context(seed=seed))).prototypes
        published = upload.variances
        if mean_variance is not None:
            published = published / projection.mean_variance * mean_variance
        ratios.append(float(((upload.vectors - clean).square().mean(1) / published).mean()))
    return sum(ratios) / len(ratios)


@pytest.mark.parametrize("num_dims", [DIM, 11, 9, 5])
def test_the_published_variance_is_the_error_in_the_feature_space(num_dims) -> None:
    assert error_ratio(random_projection(num_dims=num_dims)) == pytest.approx(1, abs=0.05)


def test_a_wrong_scale_would_be_detected() -> None:
    narrow = random_projection(num_dims=5)
    assert abs(error_ratio(narrow, mean_variance=1.0) - 1) > 0.5  # per coordinate of u instead of z
    assert abs(error_ratio(narrow, mean_variance=5 / DIM / 1.44) - 1) > 0.3


def test_a_broadcast_is_projected_into_the_space_of_the_release() -> None:
    drawn = 3 * torch.randn(CLASSES, DIM, generator=Streams(5).generator("x"))
    broadcast = Prototypes(drawn, torch.arange(CLASSES))
    for projection in (ReleaseProjection.identity(DIM), random_projection(num_dims=20)):
        centres = centres_from_broadcast(broadcast, projection, CLASSES, 1e3)
        expected = drawn.double() @ projection.basis @ projection.basis.T
        torch.testing.assert_close(projection.lift(centres), expected, atol=1e-3, rtol=1e-3)


def test_the_first_radius_is_that_of_a_typical_feature() -> None:
    rng = Streams(6).generator("x")
    features = torch.randn(5000, DIM, generator=rng)
    for num_dims in (DIM, 7):
        projection = ReleaseProjection.random(DIM, num_dims, rng)
        energy = projection.project(features.double()).square().sum(1).mean()
        typical = energy / features.square().sum(1).mean()
        assert projection.norm_ratio == pytest.approx(float(typical.sqrt()), rel=0.02)


def test_a_dimension_is_enough_and_the_subspace_is_the_same_for_all_clients() -> None:
    budget, settings = Budget(1.0, 1e-5), {"clip_norm": 2.0, "classes": 3}
    assert Rapp.calibrated(budget, 5, dim=16, **settings).projection.is_identity
    first, second = (Rapp.calibrated(budget, 5, dim=512, samples_per_class=20, **settings) for _ in range(2))
    assert first.projection.dims == (512, default_release_dim(512, budget, 20))
    assert torch.equal(first.projection.basis, second.projection.basis)
    with pytest.raises(InvalidInput, match="expected dim, the dimension of the features, or a projection"):
        Rapp.calibrated(budget, 5, **settings)
