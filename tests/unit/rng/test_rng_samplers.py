"""The samplers: their distributions, and that decisions in double precision are those of exact arithmetic."""

import math
import os

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vpdr import rng as exact_noise
from vpdr.rng import EXPONENTIAL, MAX_SCALE, NORMAL, attempt, attempt_exactly
from vpdr.rng import _draw as draw_with_margin
from vpdr.validation import InvalidInput

STRICT = 1e-7  # once in ten million runs chance decides
FAST, SLOW = exact_noise.FLOAT_MARGIN, 1.0  # with a margin of 1 nothing is decided in double precision
SHAPES = {"normal": NORMAL, "exponential": EXPONENTIAL}


def draw(shape, scale: int, count: int, margin: float) -> np.ndarray:
    return draw_with_margin(shape, torch.full((count,), scale), os.urandom, margin).numpy()


def probabilities(shape, scale: int, values: np.ndarray) -> np.ndarray:
    if shape is NORMAL:
        return scipy.stats.norm.cdf((values + 0.5) / scale) - scipy.stats.norm.cdf((values - 0.5) / scale)
    return np.tanh(0.5 / scale) * np.exp(-np.abs(values) / scale)


def chi_square_p_value(drawn: np.ndarray, shape, scale: int) -> float:
    """Every integer that is expected at least ten times is a cell, the others are one cell."""
    values = np.arange(-12 * scale - 12, 12 * scale + 13)
    expected = len(drawn) * probabilities(shape, scale, values)
    observed = np.array([np.count_nonzero(drawn == value) for value in values])
    often = expected >= 10
    observed = np.append(observed[often], len(drawn) - observed[often].sum())
    expected = np.append(expected[often], len(drawn) - expected[often].sum())
    return float(scipy.stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("scale", [1, 3, 40])
def test_every_integer_has_its_probability(name, scale) -> None:
    drawn = draw(SHAPES[name], scale, 200_000, FAST)
    assert chi_square_p_value(drawn, SHAPES[name], scale) > STRICT
    assert chi_square_p_value(drawn, SHAPES[name], scale + 1 + scale // 10) < STRICT  # the test can tell
    assert chi_square_p_value(np.abs(drawn), SHAPES[name], scale) < STRICT


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("scale", [1, 3])
def test_exact_decisions_alone_give_the_same_distribution(name, scale) -> None:
    drawn = draw(SHAPES[name], scale, 6000, SLOW)
    assert chi_square_p_value(drawn, SHAPES[name], scale) > STRICT
    assert chi_square_p_value(drawn, SHAPES[name], scale + 1) < STRICT


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("scale", [1000, 2**31 + 12345, MAX_SCALE])
def test_fine_grids_have_the_continuous_distribution(name, scale) -> None:
    drawn = draw(SHAPES[name], scale, 100_000, FAST)
    name = {"normal": "norm", "exponential": "laplace"}[name]
    jitter = np.random.default_rng(0).uniform(-0.5, 0.5, len(drawn))  # the Kolmogorov-Smirnov test wants no ties
    assert scipy.stats.kstest((drawn + jitter) / scale, name).pvalue > STRICT
    assert scipy.stats.kstest((drawn + jitter) / scale * 1.1, name).pvalue < STRICT
    assert scale < 2**31 or len(np.unique(drawn)) > 0.9999 * len(drawn)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("scale", [1, 77, 2**31 + 12345, MAX_SCALE])
def test_the_same_bits_give_the_same_decisions(name, scale) -> None:
    """Whatever the further bits are, exact arithmetic agrees with what double precision decided."""
    count = 400
    words = np.frombuffer(os.urandom(24 * count), dtype=np.uint64).reshape(3, -1)
    magnitudes, accepted, certain = attempt(SHAPES[name], np.full(count, scale), *words)
    assert certain.mean() > 0.98
    for index in np.flatnonzero(certain):
        own = tuple(int(word[index]) for word in words)
        for more in (os.urandom, bytes, lambda size: b"\xff" * size):
            assert attempt_exactly(SHAPES[name], scale, own, more) == (magnitudes[index], accepted[index])
    assert not attempt(SHAPES[name], np.full(count, scale), *words, SLOW)[2].any()


@pytest.mark.parametrize("name", SHAPES)
def test_a_decision_at_its_limit_is_left_to_exact_arithmetic(name) -> None:
    """The word of a limit of k, of an acceptance, and of a rounding boundary: 64 bits decide none of them."""
    shape, half = SHAPES[name], 2**63
    mpmath.mp.dps = 60
    weights = [mpmath.e ** -(mpmath.mpf(shape.weight(k))) for k in range(60)]
    limit = int(weights[0] / mpmath.fsum(weights) * 2**64)
    chance = int(mpmath.e ** -shape.excess(0, mpmath.mpf(half) / 2**64) * 2**64)
    boundary = -(-(2**63 if shape.to_nearest else 2**64) // 1001)  # 1001 x is just below or above it
    for words in [(limit, half, 0), (0, half, chance), (0, boundary - 1, 0)]:
        arrays = [np.array([word], dtype=np.uint64) for word in words]
        assert not attempt(shape, np.array([1001]), *arrays)[2][0]
        results = {attempt_exactly(shape, 1001, words, more) for more in (bytes, lambda size: b"\xff" * size)}
        assert len(results) == 2  # the further bits decide


@settings(max_examples=500, deadline=None)
@given(
    scale=st.one_of(st.integers(1, MAX_SCALE), st.sampled_from([1, 2, MAX_SCALE])),
    word=st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1])),
    to_nearest=st.booleans(),
)
def test_products_are_those_of_whole_numbers(scale, word, to_nearest) -> None:
    half = 2**63 if to_nearest else 0
    whole, certain = exact_noise._multiple(np.array([scale]), np.array([word], dtype=np.uint64), to_nearest)
    assert whole[0] == (scale * word + half) >> 64
    if certain[0]:
        assert (scale * (word + 1) - 1 + half) >> 64 == whole[0]


def test_the_exponential_function_is_far_more_precise_than_the_margin() -> None:
    """All exponents that are decided in double precision: k up to 8, x in [0, 1)."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random(20_000), 2.0 ** -rng.uniform(0, 60, 2000), [0.0, 1 - 2.0**-53]])
    k = rng.integers(0, 9, len(x))
    mpmath.mp.dps = 40
    for shape in (NORMAL, EXPONENTIAL):
        computed = np.exp(-shape.excess(k, x))
        for index in range(len(x)):
            precise = mpmath.e ** -shape.excess(int(k[index]), mpmath.mpf(float(x[index])))
            assert abs(mpmath.mpf(float(computed[index])) / precise - 1) < exact_noise.FLOAT_MARGIN / 2**7


def test_probabilities_of_the_integer_part() -> None:
    mpmath.mp.dps = 200
    for shape in (NORMAL, EXPONENTIAL):
        weights = [mpmath.e ** -mpmath.mpf(shape.weight(k)) for k in range(700)]
        total = mpmath.fsum(weights)
        limits = exact_noise._cumulative(shape, 512)
        for k, limit in enumerate(limits):
            assert abs(mpmath.mpf(str(limit)) - mpmath.fsum(weights[: k + 1]) / total) < mpmath.mpf(2) ** -500


def test_the_tail_has_no_end() -> None:
    """A uniform number just below 1 gives the integer parts that double precision cannot tell apart."""
    words = (2**64 - 1, 2**62, 0)
    arrays = [np.array([word], dtype=np.uint64) for word in words]
    assert not attempt(NORMAL, np.array([10]), *arrays)[2][0]
    assert attempt_exactly(NORMAL, 10, words, bytes)[0] > 10 * 8.5  # inversion of 52 bits ended at 8.2
    assert attempt_exactly(EXPONENTIAL, 10, words, bytes)[0] > 10 * 43


@pytest.mark.parametrize("sampler", [exact_noise.rounded_gaussian, exact_noise.discrete_laplace])
def test_shapes_scales_and_their_limits(sampler) -> None:
    drawn = sampler(torch.tensor([[1, 2**20], [2**40, MAX_SCALE]]).repeat(500, 1, 1))
    assert drawn.shape == (500, 2, 2)
    spread = drawn.double().std(dim=0) / torch.tensor([[1, 2**20], [2**40, MAX_SCALE]])
    assert ((spread > 0.8) & (spread < 1.8)).all()
    assert sampler(torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 3)
    assert sampler(torch.tensor(7).expand(2, 3)).shape == (2, 3)
    for wrong in (0, -1, MAX_SCALE + 1):
        with pytest.raises(InvalidInput, match="whole number from 1 to 2"):
            sampler(torch.tensor([1, wrong]))


def test_signs_are_fair_and_independent_of_the_magnitude() -> None:
    for shape in (NORMAL, EXPONENTIAL):
        drawn = draw(shape, 2**40, 100_000, FAST)
        for part in (drawn, drawn[np.abs(drawn) > 2**40], drawn[np.abs(drawn) < 2**38]):
            assert scipy.stats.binomtest(int((part > 0).sum()), len(part)).pvalue > STRICT


def test_neither_bits_nor_draws_are_used_twice() -> None:
    """All bits that are requested are other bits, and a draw depends on nothing but its own."""
    requested = []

    def counted(size: int) -> bytes:
        requested.append(os.urandom(size))
        return requested[-1]

    drawn = exact_noise.rounded_gaussian(torch.full((5000,), MAX_SCALE), counted)
    assert len(drawn.unique()) == 5000
    assert sum(map(len, requested)) >= 24 * 5000 * 1.3  # an attempt succeeds with probability 0.71
    again = iter(requested)
    assert torch.equal(drawn, exact_noise.rounded_gaussian(torch.full((5000,), MAX_SCALE), lambda _: next(again)))


def test_the_chance_of_an_exact_decision_is_negligible() -> None:
    words = np.frombuffer(os.urandom(24 * 200_000), dtype=np.uint64).reshape(3, -1)
    assert attempt(NORMAL, np.full(200_000, 2**31), *words)[2].all()  # 2⁻³³ by rounding, 2⁻³⁸ by the rest


def test_the_probability_of_zero() -> None:
    assert probabilities(EXPONENTIAL, 3, np.array([0]))[0] == pytest.approx(
        (math.e ** (1 / 3) - 1) / (math.e ** (1 / 3) + 1)
    )
