"""Clipping to whole steps: the bound holds without rounding, for any sample, whatever the other samples are."""

from fractions import Fraction

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vpdr.rng import MAX_SCALE, Grid, Streams, add_noise, row_norms
from vpdr.validation import InvalidInput

SMALLEST, LARGEST = 5e-324, 1.7976931348623157e308
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-10, 10),
    st.sampled_from([0.0, SMALLEST, -SMALLEST, 1e-300, 1e-160, 1e153, 1e160, 1e300, LARGEST, -LARGEST]),
)
samples = st.lists(numbers, min_size=1, max_size=12)
radii = st.one_of(st.floats(1e-12, 1e12), st.sampled_from([1e-12, 1.0, 5.0, 2.0**20, 1e12]))
multipliers = st.sampled_from([1e-6, 1.0, 16.7, 1e6, 1e9, 1e15])


def squared_norm(whole: torch.Tensor) -> int:
    """In Python's integers, which cannot overflow."""
    return sum(each**2 for each in whole.tolist())


@settings(max_examples=400, deadline=None)
@given(row=samples, radius=radii, multiplier=multipliers)
@example(row=[1e300, -1e300], radius=1e-12, multiplier=1.0)
@example(row=[SMALLEST] * 3, radius=1e-12, multiplier=1e-6)
@example(row=[3.0, 4.0], radius=5.0, multiplier=1.0)
def test_no_sample_is_longer_than_the_radius(row, radius, multiplier) -> None:
    grid = Grid.for_noise(radius, multiplier * radius)
    clipped = grid.clip(torch.tensor([row], dtype=torch.float64), radius)
    assert clipped.dtype is torch.int64
    assert squared_norm(clipped[0]) <= grid.steps(radius) ** 2
    assert Fraction(grid.steps(radius)) * Fraction(grid.step) <= Fraction(radius)
    assert grid.steps(radius) <= 2**26
    if multiplier <= 2**19:
        assert grid.steps(radius) >= 2**25


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_becomes_zero(value) -> None:
    """Features are validated before; gradients are not."""
    rows = torch.tensor([[1.0, 2.0], [value, 1.0], [1.0, 2.0]], dtype=torch.float64)
    clipped = Grid.for_noise(5.0, 5.0).clip(rows, 5.0)
    assert clipped[1].tolist() == [0, 0]
    assert torch.equal(clipped[0], clipped[2])
    assert clipped[0].any()


def test_short_samples_stay_and_long_ones_get_the_radius() -> None:
    grid = Grid.for_noise(5.0, 100.0)
    rows = torch.randn(300, 40, generator=Streams(0).generator("x"), dtype=torch.float64)
    rows *= torch.linspace(0.01, 3, 300, dtype=torch.float64)[:, None]
    clipped = grid.to_real(grid.clip(rows, 5.0))
    expected = rows * (5.0 / rows.norm(dim=1, keepdim=True).clamp(min=5.0))
    torch.testing.assert_close(clipped, expected, atol=2 * grid.step, rtol=0)


@pytest.mark.parametrize("dim", [1, 3, 512, 2000, 70_000])
def test_a_sample_is_clipped_the_same_whatever_and_wherever_the_others_are(dim) -> None:
    count = 700 if dim < 1000 else 40
    rows = torch.randn(count, dim, generator=Streams(dim).generator("x"), dtype=torch.float64)
    grid = Grid.for_noise(1.0, 1.0)
    together = grid.clip(rows, 1.0)
    order = torch.randperm(count, generator=Streams(1).generator("order"))
    assert torch.equal(grid.clip(rows[order], 1.0), together[order])
    assert torch.equal(row_norms(rows[order]), row_norms(rows)[order])
    for number in range(0, count, 37):
        assert torch.equal(grid.clip(rows[number : number + 1], 1.0)[0], together[number])
        assert torch.equal(grid.clip(rows[number:], 1.0)[0], together[number])
    transposed = rows.T.contiguous().T  # the same numbers, column by column in memory
    assert torch.equal(grid.clip(transposed, 1.0), together)


@settings(max_examples=200, deadline=None)
@given(radius=radii, multiplier=multipliers, factor=st.floats(0.01, 40))
def test_noise_is_never_less_than_stated(radius, multiplier, factor) -> None:
    grid = Grid.for_noise(radius, multiplier * radius)
    std = multiplier * radius * factor
    scale = int(grid.noise_scale(torch.tensor([std], dtype=torch.float64)))
    assert Fraction(std) / Fraction(grid.step) <= scale <= MAX_SCALE
    assert scale <= Fraction(std) / Fraction(grid.step) * (1 + Fraction(1, 2**39)) + 1


def test_a_sensitivity_beyond_the_integers_is_refused() -> None:
    with pytest.raises(InvalidInput, match="steps of the grid is too much"):
        Grid.for_noise(1.0, 1.0).noise_scale(torch.tensor([1e9], dtype=torch.float64))


def test_no_clip_norm_makes_a_step_overflow() -> None:
    for radius in (1e-300, SMALLEST, 1e300):
        grid = Grid.for_noise(radius, radius)
        assert 0 < grid.step < float("inf")
        assert 1 / grid.step < float("inf")
        assert not grid.clip(torch.zeros(2, 3, dtype=torch.float64), radius).any()


def test_sums_are_exact_in_any_order() -> None:
    grid = Grid.for_noise(1.0, 1.0)
    rows = grid.clip(torch.randn(2000, 16, generator=Streams(0).generator("x"), dtype=torch.float64), 1.0)
    order = torch.randperm(2000, generator=Streams(1).generator("order"))
    assert torch.equal(rows.sum(0), rows[order].sum(0))


def test_extreme_noise_is_cut_off_where_the_output_is() -> None:
    whole, noise = torch.tensor([2**61, -(2**61), 5]), torch.tensor([2**62, -(2**62), 7])
    assert add_noise(whole, noise).tolist() == [2**61, -(2**61), 12]
    assert add_noise(-whole, noise).tolist()[:2] == [2**61, -(2**61)]  # as if the noise had been larger still
