"""Neighbouring datasets: one sample is changed by anything, and nothing moves further than stated."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import CLASSES, DIM, blobs
from vpdr import Adjacency, ClassMeans, ClassSums
from vpdr.mechanisms import NoiseAllocation
from vpdr.mechanisms.base import RowSums
from vpdr.rng import Grid, Streams
from vpdr.types import Summary

RADIUS = 5.0
SAME, ANY, ADD_REMOVE = Adjacency
seeds = st.integers(0, 10**6)
rows = st.integers(0, 119)
labels_of = st.integers(0, CLASSES - 1)
lengths = st.one_of(st.sampled_from([0.0, 1e-8, RADIUS, 1e4, 1e150]), st.floats(0, 20))


def sample(seed: int, length: float, like: torch.Tensor, how: str) -> torch.Tensor:
    """A new sample: anywhere, opposite to the old one, or a copy of another."""
    if how == "opposite":
        return -like / like.norm() * length
    if how == "copy":
        return blobs(2)[0][seed % 120].double()
    drawn = torch.randn(DIM, generator=Streams(seed).generator("new"), dtype=torch.float64)
    return drawn / drawn.norm() * length


how_made = st.sampled_from(["anywhere", "opposite", "copy"])


def base(scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    vectors, labels = blobs(2)
    return vectors.double() * scale, labels


GRID = Grid.for_noise(RADIUS, RADIUS)


def summarise(rule, vectors: torch.Tensor, labels: torch.Tensor) -> Summary:
    """Rows of clipped samples, as a release computes them."""
    return summarise_clipped(rule, GRID.clip(vectors, RADIUS), labels)


def summarise_clipped(rule, clipped: torch.Tensor, labels: torch.Tensor) -> Summary:
    row_sums = RowSums.of(rule, clipped, labels, GRID)
    rows = GRID.to_real(row_sums.sums) / rule.divisors(row_sums.sizes)[:, None]
    return Summary(rows, row_sums.labels, row_sums.sizes)


def clip_groups(vectors: torch.Tensor, focus: torch.Tensor, radii: tuple[float, float]) -> torch.Tensor:
    clipped = torch.empty(vectors.shape, dtype=torch.int64)
    for mask, radius in zip((focus, ~focus), radii, strict=True):
        clipped[:, mask] = GRID.clip(vectors[:, mask], radius)
    return clipped


def shift(rule, adjacency, first, second, counts: bool) -> float:
    """The joint change, in units of the stated sensitivity."""
    unit = rule.sensitivity(adjacency, RADIUS, first.sizes)
    moved = ((first.vectors - second.vectors).norm(dim=1) / unit).square().sum()
    if counts:
        moved = moved + ((first.sizes - second.sizes).double() / (unit / RADIUS)).square().sum()
    return float(moved.sqrt())


@settings(max_examples=150, deadline=None)
@given(seed=seeds, row=rows, length=lengths, how=how_made, scale=st.sampled_from([0.0, 1.0, 100.0]))
def test_replacing_within_a_class_moves_one_mean_by_at_most_its_sensitivity(seed, row, length, how, scale) -> None:
    vectors, labels = base(scale)
    other = vectors.clone()
    other[row] = sample(seed, length, base()[0][row], how)
    first, second = (summarise(ClassMeans(), v, labels) for v in (vectors, other))
    assert shift(ClassMeans(), SAME, first, second, counts=False) <= 1 + 1e-12
    assert ((first.vectors - second.vectors).norm(dim=1) > 1e-12).sum() <= 1


@settings(max_examples=200, deadline=None)
@given(seed=seeds, row=rows, label=labels_of, length=lengths, how=how_made)
def test_replacing_anything_moves_sums_and_counts_together(seed, row, label, length, how) -> None:
    vectors, labels = base(100.0)
    other, relabelled = vectors.clone(), labels.clone()
    other[row], relabelled[row] = sample(seed, length, vectors[row], how), label
    rule = ClassSums(classes=CLASSES)
    first, second = summarise(rule, vectors, labels), summarise(rule, other, relabelled)
    assert shift(rule, ANY, first, second, counts=True) <= 1 + 1e-12
    if label == int(labels[row]):
        assert shift(rule, SAME, first, second, counts=False) <= 1 + 1e-12


@settings(max_examples=100, deadline=None)
@given(seed=seeds, label=labels_of, length=lengths)
def test_a_sample_more_or_less(seed, label, length) -> None:
    vectors, labels = base()
    other = torch.cat([vectors, sample(seed, length, vectors[0], "anywhere")[None]])
    longer = torch.cat([labels, torch.tensor([label])])
    rule = ClassSums(classes=CLASSES)
    first, second = summarise(rule, vectors, labels), summarise(rule, other, longer)
    assert shift(rule, ADD_REMOVE, first, second, counts=True) <= 1 + 1e-12


def test_the_bounds_are_attained() -> None:
    rule = ClassSums(classes=2)
    push = torch.zeros(1, DIM, dtype=torch.float64)
    push[0, 0] = RADIUS
    here, there = torch.tensor([0]), torch.tensor([1])
    assert shift(rule, ANY, rule(push, here), rule(-push, here), counts=True) == 1
    assert abs(shift(rule, ANY, rule(push, here), rule(push, there), counts=True) - 1) < 1e-12
    empty = rule(push[:0], here[:0])
    assert abs(shift(rule, ADD_REMOVE, rule(push, here), empty, counts=True) - 1) < 1e-12
    means = ClassMeans()
    assert shift(means, SAME, means(push, here), means(-push, here), counts=False) == 1


@settings(max_examples=150, deadline=None)
@given(seed=seeds, row=rows, label=labels_of, length=lengths, how=how_made, keep=st.floats(0.01, 0.5))
def test_two_groups_cost_no_more_than_one(seed, row, label, length, how, keep) -> None:
    """Theorem 4.2 on sums and counts: the shift in units of each group's own noise is at most 1/σ_ref."""
    groups, sigma = NoiseAllocation.from_fraction(DIM, keep), 3.0
    focus = torch.zeros(DIM, dtype=torch.bool)
    focus[torch.randperm(DIM, generator=Streams(seed).generator("focus"))[: groups.num_selected]] = True
    bounds = (RADIUS * groups.radii[0], RADIUS * groups.radii[1])
    vectors, labels = base(100.0)
    other, relabelled = vectors.clone(), labels.clone()
    other[row], relabelled[row] = sample(seed, length, vectors[row], how), label
    rule = ClassSums(classes=CLASSES)
    first = summarise_clipped(rule, clip_groups(vectors, focus, bounds), labels)
    second = summarise_clipped(rule, clip_groups(other, focus, bounds), relabelled)
    stds = sigma * rule.sensitivity(ANY, RADIUS, first.sizes)[:, None] * groups.coord_scale(focus)
    moved = ((first.vectors - second.vectors) / stds).square().sum()
    moved += ((first.sizes - second.sizes).double() / (sigma * 2)).square().sum()
    assert float(moved.sqrt()) <= 1 / sigma + 1e-12


@settings(max_examples=100, deadline=None)
@given(dim=st.integers(2, 2000), keep=st.floats(0.001, 0.5))
def test_the_geometry_of_the_groups(dim, keep) -> None:
    groups = NoiseAllocation.from_fraction(dim, keep)
    (first, second), (low, high), weights = groups.radii, groups.group_scales, groups.weights
    assert 1 <= groups.num_selected < dim
    assert abs(first**2 + second**2 - 1) < 1e-12
    assert abs(sum(weights) - 1) < 1e-12  # so 1/σ_A² + 1/σ_B² = 1/σ_ref²
    assert abs((first / low) ** 2 + (second / high) ** 2 - 1) < 1e-12
    assert groups.relative_energy >= 1 - 1e-12
    assert low <= 1 + 1e-12 or 2 * groups.num_selected > dim


@settings(max_examples=60, deadline=None)
@given(seed=seeds, scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_clipped_blocks_stay_inside(seed, scale) -> None:
    vectors = scale * torch.randn(50, DIM, generator=Streams(seed).generator("x"), dtype=torch.float64)
    focus = torch.rand(DIM, generator=Streams(seed).generator("focus")) < 0.3
    clipped = GRID.to_real(clip_groups(vectors, focus, (2.0, 3.0)))
    assert (clipped[:, focus].norm(dim=1) <= 2).all()
    assert (clipped[:, ~focus].norm(dim=1) <= 3).all()
    assert (GRID.to_real(GRID.clip(vectors, RADIUS)).norm(dim=1) <= RADIUS).all()
