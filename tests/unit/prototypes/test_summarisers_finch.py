"""FINCH on cases that can be drawn on paper."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vpdr import FinchClusters
from vpdr.prototypes.summarisers import finch
from vpdr.rng import Streams


def directions(*degrees: float) -> torch.Tensor:
    angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def count(points: torch.Tensor, **settings: bool) -> int:
    return len(finch(points, **settings).unique())


def test_one_two_and_three_points_are_one_cluster() -> None:
    for points in (directions(10), directions(10, 80), directions(10, 20, 170)):
        assert count(points) == 1


def test_four_points_are_one_or_two_clusters() -> None:
    pairs = finch(directions(0, 1, 90, 91))
    assert pairs[0] == pairs[1] != pairs[2] == pairs[3]
    assert count(directions(0, 10, 19, 27)) == 1  # a chain of nearest neighbours


def test_two_blobs_are_never_mixed() -> None:
    rng = Streams(0).generator("x")
    blob = torch.randn(20, 8, generator=rng, dtype=torch.float64) * 0.05
    far = torch.zeros(8, dtype=torch.float64)
    far[0] = 1.0
    other = torch.zeros(8, dtype=torch.float64)
    other[1] = 1.0
    labels = finch(torch.cat([blob + far, blob + other]))
    assert not set(labels[:20].tolist()) & set(labels[20:].tolist())
    assert 2 <= len(labels.unique()) <= 4  # three centroids always link into one, so FINCH stops before


def test_duplicates_and_zero_vectors_do_no_harm() -> None:
    assert count(torch.ones(6, 3, dtype=torch.float64)) == 1
    assert count(torch.zeros(5, 3, dtype=torch.float64)) >= 1
    assert count(torch.cat([directions(0, 1, 90, 91), torch.zeros(1, 2, dtype=torch.float64)])) >= 1


def test_an_early_exit_drops_links_longer_than_the_first_ones() -> None:
    # four tight pairs: linking the pairs needs links of 20 degrees and more, the first level had 1 degree
    pairs = directions(0, 1, 21, 22, 90, 91, 111, 112)
    assert count(pairs) == 2
    assert count(pairs, early_exit=True) == 4


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), points=st.integers(1, 40))
def test_labels_are_a_partition_that_scaling_does_not_change(seed, points) -> None:
    vectors = torch.randn(points, 5, generator=Streams(seed).generator("x"), dtype=torch.float64)
    labels = finch(vectors)
    assert sorted(labels.unique().tolist()) == list(range(int(labels.max()) + 1))
    assert torch.equal(labels, finch(vectors * 3))


def test_centroids_and_sizes_belong_together() -> None:
    vectors = torch.cat([directions(0, 1, 90, 91), directions(200)])
    summary = FinchClusters()(vectors, torch.tensor([0, 0, 0, 0, 3]))
    assert summary.labels.tolist() == [0, 0, 3]
    assert summary.sizes.tolist() == [2, 2, 1]
    torch.testing.assert_close(summary.vectors[0], vectors[:2].mean(0))
