"""Clipped sums: against a loop, between neighbours, and with samples that overflow."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.mechanisms.dpsgd_cases import NoNoise, seeded
from vpdr.mechanisms.dpsgd import SUM_SENSITIVITY, DpSgdConfig, sum_clipped_gradients
from vpdr.privacy import Adjacency, ChargePurpose, EncoderKind, GaussianEvent, GuaranteeLevel
from vpdr.privacy.guarantee import CountVisibility
from vpdr.rng import Grid
from vpdr.validation import InvalidInput

SHAPES = ((3, 2), (4,))


def drawn(rows: int, scale: float, seed: int) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(rows, *shape, generator=rng) for shape in SHAPES]


def flat(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.flatten() for part in parts])


def clipped_sum(gradients: list[torch.Tensor], is_sample: torch.Tensor, clip: float) -> torch.Tensor:
    """The sum as real numbers, on a grid of its own."""
    grid = Grid.for_noise(clip, clip)
    return grid.to_real(flat(sum_clipped_gradients(gradients, is_sample, clip, grid)))


def everything(rows: int) -> torch.Tensor:
    return torch.ones(rows, dtype=torch.bool)


def test_clipping_agrees_with_a_loop() -> None:
    gradients = drawn(7, 2.0, 0)
    gradients[0][3], gradients[1][3] = 0.01, 0.01  # one that is short enough
    total = torch.zeros(10, dtype=torch.float64)
    for row in range(7):
        own = flat([part[row] for part in gradients]).double()
        total += own * min(1.0, 1.5 / float(own.norm()))
    torch.testing.assert_close(clipped_sum(gradients, everything(7), 1.5), total, atol=1e-6, rtol=1e-6)


def test_padding_rows_are_left_out_of_the_sum() -> None:
    gradients = drawn(5, 3.0, 1)
    real = torch.tensor([True, True, False, True, False])
    samples = [part[real] for part in gradients]
    torch.testing.assert_close(clipped_sum(gradients, real, 1.0), clipped_sum(samples, everything(3), 1.0))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_overflows_counts_as_zero(value) -> None:
    gradients = drawn(4, 1.0, 2)
    gradients[1][2, 0] = value
    others = torch.tensor([True, True, False, True])
    torch.testing.assert_close(clipped_sum(gradients, everything(4), 1.0), clipped_sum(gradients, others, 1.0))


@settings(max_examples=60, deadline=None)
@given(
    adjacency=st.sampled_from(list(Adjacency)),
    scale=st.sampled_from([1e-3, 1.0, 1e3, 1e30]),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    seed=st.integers(0, 10_000),
)
def test_neighbours_differ_by_no_more_than_stated(adjacency, scale, clip, seed) -> None:
    first = drawn(6, scale, seed)
    other = drawn(1, scale, seed + 1)
    if adjacency is Adjacency.ADD_REMOVE:
        second = [part[1:] for part in first]
    else:
        second = [torch.cat([new, part[1:]]) for new, part in zip(other, first, strict=True)]
    sums = [clipped_sum(each, everything(len(each[0])), clip) for each in (first, second)]
    assert float((sums[0] - sums[1]).norm()) <= SUM_SENSITIVITY[adjacency] * clip


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_bound_is_reached(adjacency) -> None:
    far = [torch.full((1, *shape), 1e6) for shape in SHAPES]
    here = clipped_sum(far, everything(1), 2.0)
    there = clipped_sum([-part for part in far], everything(1), 2.0)
    moved = here if adjacency is Adjacency.ADD_REMOVE else here - there
    assert float(moved.norm()) == pytest.approx(SUM_SENSITIVITY[adjacency] * 2.0)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_noise_is_a_multiple_of_the_sensitivity(adjacency) -> None:
    config = DpSgdConfig(
        clip_norm=3.0,
        noise_multiplier=2.0,
        steps_per_round=1,
        total_steps=1,
        expected_batch_size=10.0,
        adjacency=adjacency,
    )
    sums = [torch.zeros(40_000, dtype=torch.int64), torch.full((2, 2), 2**20)]
    noisy = config.noisy_mean(sums, GaussianEvent(2.0), seeded())
    assert float(noisy[0].std()) == pytest.approx(2.0 * SUM_SENSITIVITY[adjacency] * 3.0 / 10.0, rel=0.02)
    assert torch.equal(config.noisy_mean(sums, GaussianEvent(2.0), NoNoise())[1], config.grid.to_real(sums[1]) / 10)


def test_the_receipt_of_a_round() -> None:
    config = DpSgdConfig(
        clip_norm=1.0,
        noise_multiplier=7.0,
        steps_per_round=3,
        total_steps=9,
        expected_batch_size=1.0,
        adjacency=Adjacency.ADD_REMOVE,
    )
    receipt = config.round_receipt(seeded())
    assert receipt.events == (GaussianEvent(7.0),) * 3
    assert (receipt.purpose, receipt.level) == (ChargePurpose.TRAINING, GuaranteeLevel.PROVED)
    assert (receipt.terms.encoder, receipt.terms.counts) == (EncoderKind.DP_TRAINED, CountVisibility.PRIVATE)


@pytest.mark.parametrize(
    "wrong", ["clip_norm", "noise_multiplier", "steps_per_round", "total_steps", "expected_batch_size"]
)
def test_impossible_steps_are_refused(wrong) -> None:
    fine = {
        "clip_norm": 1.0,
        "noise_multiplier": 1.0,
        "steps_per_round": 1,
        "total_steps": 1,
        "expected_batch_size": 1.0,
    }
    with pytest.raises(InvalidInput):
        DpSgdConfig(**{**fine, wrong: 0})
