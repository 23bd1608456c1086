"""Bounds that hold whatever the distribution, checked against other people's code and against the curve."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from vpdr.audits.claims import Claim, contradicted
from vpdr.audits.intervals import Cut, Point, best_cuts, lower, point, upper
from vpdr.privacy import Adjacency, Gaussian, Level, Pure
from vpdr.privacy.accountants import ACCOUNTANTS
from vpdr.privacy.gaussian_curve import epsilon_of


@settings(max_examples=60, deadline=None)
@given(runs=st.integers(1, 2000), share=st.floats(0, 1), doubt=st.sampled_from([0.001, 0.0125, 0.05]))
def test_rates_agree_with_scipy(runs, share, doubt) -> None:
    hits = round(share * runs)
    expected = binomtest(hits, runs).proportion_ci(1 - 2 * doubt, method="exact")
    assert lower(np.array([hits]), runs, doubt)[0] == pytest.approx(expected.low, abs=1e-9)
    assert upper(np.array([hits]), runs, doubt)[0] == pytest.approx(expected.high, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(mu=st.floats(0.05, 4), z=st.floats(-2, 4), delta=st.sampled_from([1e-9, 1e-5, 1e-2]))
def test_no_true_point_of_a_gaussian_contradicts_it(mu, z, delta) -> None:
    seen = Point(power=float(norm.sf(z - mu)), false_alarms=float(norm.sf(z)))
    assert seen.epsilon(delta) <= epsilon_of(mu, delta) + 1e-9
    assert seen.mu == pytest.approx(mu, abs=1e-3)
    claim = claimed((Gaussian(1 / mu),), delta)
    assert contradicted(claim.curve(), seen) is None


@settings(max_examples=60, deadline=None)
@given(mu=st.floats(0.2, 4), z=st.floats(-1, 1))
def test_a_point_beyond_the_curve_contradicts_it(mu, z) -> None:
    half = z + mu / 2
    seen = Point(power=float(norm.sf(half - 1.3 * mu)), false_alarms=float(norm.sf(half)))
    assert contradicted(claimed((Gaussian(1 / mu),), 1e-5).curve(), seen) is not None


def claimed(events, delta) -> Claim:
    return Claim(
        epsilon=ACCOUNTANTS["exact"].epsilon(events, delta),
        delta=delta,
        level=Level.PROVED,
        adjacency=Adjacency.REPLACE_SAME_LABEL,
        releases=1,
        events=events,
    )


def test_randomised_response_is_not_contradicted() -> None:
    seen = Point(power=math.e / (1 + math.e), false_alarms=1 / (1 + math.e))
    assert seen.epsilon(0.0) == pytest.approx(1.0)
    assert contradicted(claimed((Pure(1.0),), 1e-5).curve(), seen) is None
    assert contradicted(claimed((Pure(0.9),), 1e-5).curve(), seen) is not None


def test_a_test_is_chosen_in_either_direction() -> None:
    low, high = np.arange(100.0), np.arange(200.0, 300.0)
    for first, second, above in ((low, high, True), (high, low, False)):
        cut, other = best_cuts(first, second, 1e-5, 0.0125)
        assert cut.above is above
        assert other.above is above
        found = point(cut, first, second, 0.0125)
        assert found.power == pytest.approx(0.0125 ** (1 / 100))
        assert found.false_alarms == pytest.approx(1 - 0.0125 ** (1 / 100))


def test_equal_scores_certify_nothing() -> None:
    same = np.zeros(50)
    for cut in best_cuts(same, same, 1e-5, 0.0125):
        assert point(cut, same, same, 0.0125).epsilon(1e-5) == 0
        assert point(cut, same, same, 0.0125).mu == 0
    assert Cut(0.0, True).hits(same) == 0


@pytest.mark.statistics
def test_the_stated_confidence_is_kept() -> None:
    """Two worlds at distance μ: the bound exceeds the truth in at most 5 % of audits, at every threshold."""
    rng, mu, wrong = np.random.default_rng(0), 1.0, 0
    for _ in range(400):
        first, second = rng.normal(size=(2, 300))
        second = second + mu
        cuts = best_cuts(first[:100], second[:100], 1e-5, 0.0125)
        points = [point(cut, first[100:], second[100:], 0.0125) for cut in cuts]
        wrong += max(each.mu for each in points) > mu
    assert wrong <= 20
