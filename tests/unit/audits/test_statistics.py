"""Distribution-free bounds, against scipy and against the exact Gaussian curve."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from vpdr.audits.auditor import Claim, violated_point
from vpdr.audits.statistics import (
    OperatingPoint,
    ThresholdTest,
    best_tests,
    clopper_pearson_lower,
    clopper_pearson_upper,
    operating_point,
)
from vpdr.privacy import ACCOUNTANTS, Adjacency, GaussianEvent, GuaranteeLevel
from vpdr.privacy.accountants import PureEvent, epsilon_from_mu


@settings(max_examples=60, deadline=None)
@given(trials=st.integers(1, 2000), rate=st.floats(0, 1), alpha=st.sampled_from([0.001, 0.0125, 0.05]))
def test_rates_agree_with_scipy(trials, rate, alpha) -> None:
    hits = round(rate * trials)
    expected = binomtest(hits, trials).proportion_ci(1 - 2 * alpha, method="exact")
    assert clopper_pearson_lower(np.array([hits]), trials, alpha)[0] == pytest.approx(expected.low, abs=1e-9)
    assert clopper_pearson_upper(np.array([hits]), trials, alpha)[0] == pytest.approx(expected.high, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(mu=st.floats(0.05, 4), z=st.floats(-2, 4), delta=st.sampled_from([1e-9, 1e-5, 1e-2]))
def test_no_true_point_of_a_gaussian_contradicts_it(mu, z, delta) -> None:
    point = OperatingPoint(power=float(norm.sf(z - mu)), fpr=float(norm.sf(z)))
    assert point.epsilon(delta) <= epsilon_from_mu(mu, delta) + 1e-9
    assert point.mu == pytest.approx(mu, abs=1e-3)
    claim = make_claim((GaussianEvent(1 / mu),), delta)
    assert violated_point(claim.curve(), point) is None


@settings(max_examples=60, deadline=None)
@given(mu=st.floats(0.2, 4), z=st.floats(-1, 1))
def test_a_point_beyond_the_curve_contradicts_it(mu, z) -> None:
    half = z + mu / 2
    point = OperatingPoint(power=float(norm.sf(half - 1.3 * mu)), fpr=float(norm.sf(half)))
    assert violated_point(make_claim((GaussianEvent(1 / mu),), 1e-5).curve(), point) is not None


def make_claim(events, delta) -> Claim:
    return Claim(
        epsilon=ACCOUNTANTS["exact"].epsilon(events, delta),
        delta=delta,
        level=GuaranteeLevel.PROVED,
        adjacency=Adjacency.REPLACE_SAME_LABEL,
        releases=1,
        events=events,
    )


def test_randomised_response_is_not_contradicted() -> None:
    point = OperatingPoint(power=math.e / (1 + math.e), fpr=1 / (1 + math.e))
    assert point.epsilon(0.0) == pytest.approx(1.0)
    assert violated_point(make_claim((PureEvent(1.0),), 1e-5).curve(), point) is None
    assert violated_point(make_claim((PureEvent(0.9),), 1e-5).curve(), point) is not None


def test_a_test_is_chosen_in_either_direction() -> None:
    low, high = np.arange(100.0), np.arange(200.0, 300.0)
    for first, second, above in ((low, high, True), (high, low, False)):
        test, mu_test = best_tests(first, second, 1e-5, 0.0125)
        assert test.above is above
        assert mu_test.above is above
        point = operating_point(test, first, second, 0.0125)
        assert point.power == pytest.approx(0.0125 ** (1 / 100))
        assert point.fpr == pytest.approx(1 - 0.0125 ** (1 / 100))


def test_equal_scores_certify_nothing() -> None:
    same = np.zeros(50)
    for test in best_tests(same, same, 1e-5, 0.0125):
        assert operating_point(test, same, same, 0.0125).epsilon(1e-5) == 0
        assert operating_point(test, same, same, 0.0125).mu == 0
    assert ThresholdTest(0.0, True).count_hits(same) == 0


@pytest.mark.statistics
def test_the_stated_confidence_is_kept() -> None:
    """Two worlds at distance μ: the bound exceeds the truth in at most 5 % of audits, at every threshold."""
    rng, mu, wrong = np.random.default_rng(0), 1.0, 0
    for _ in range(400):
        first, second = rng.normal(size=(2, 300))
        second = second + mu
        tests = best_tests(first[:100], second[:100], 1e-5, 0.0125)
        points = [operating_point(test, first[100:], second[100:], 0.0125) for test in tests]
        wrong += max(point.mu for point in points) > mu
    assert wrong <= 20
