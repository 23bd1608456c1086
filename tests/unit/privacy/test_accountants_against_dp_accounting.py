"""Our closed forms against Google's dp-accounting and against arbitrary precision.

dp-accounting reads REPLACE_ONE in two ways: its RDP accountant ignores the relation, its PLD accountant
doubles the sensitivity. Our sensitivities already hold the factor 2, so the oracle is always asked with
add-or-remove, where both mean what we mean.
"""

import math

import dp_accounting as dp
import mpmath
import pytest
from dp_accounting import pld, rdp
from dp_accounting.pld import common, privacy_loss_distribution

from vpdr.privacy import ACCOUNTANTS, Budget, GaussianEvent
from vpdr.privacy.accountants import PureEvent, RepeatedEvent, epsilon_from_mu, log_delta

EXACT, RDP, JOINT = (ACCOUNTANTS[name] for name in ("exact", "rdp", "joint"))
DELTA = 1e-5


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1, 2, 8, 50])
@pytest.mark.parametrize("rounds", [1, 20, 1000])
def test_exact_multiplier_is_the_analytic_gaussian(epsilon, rounds) -> None:
    oracle = dp.get_sigma_gaussian(epsilon, DELTA) * math.sqrt(rounds)
    assert EXACT.noise_multiplier(Budget(epsilon, DELTA), rounds) == pytest.approx(oracle, rel=1e-6)


def test_composition_of_gaussians_agrees_with_the_pld_accountant() -> None:
    multiplier = EXACT.noise_multiplier(Budget(1.0, DELTA), 20)
    oracle = pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    oracle.compose(dp.GaussianDpEvent(multiplier), 20)
    assert oracle.get_epsilon(DELTA) == pytest.approx(1.0, abs=1e-3)


def test_the_reference_accountant_has_two_readings_of_replace_one() -> None:
    event = dp.GaussianDpEvent(5.0)
    doubled = pld.PLDAccountant(dp.NeighboringRelation.REPLACE_ONE).compose(event).get_epsilon(DELTA)
    single = pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event).get_epsilon(DELTA)
    assert doubled == pytest.approx(EXACT.epsilon((GaussianEvent(2.5),), DELTA), rel=1e-3)
    assert single == pytest.approx(EXACT.epsilon((GaussianEvent(5.0),), DELTA), rel=1e-3)


def test_rdp_is_the_classical_conversion_and_looser_than_todays() -> None:
    ours = RDP.epsilon((GaussianEvent(5.0),) * 20, DELTA)
    surprise, precision = math.log(1 / DELTA), 20 / 25
    best_order = precision / 2 + math.sqrt(2 * precision * surprise)  # the optimum over all real orders
    assert best_order <= ours < best_order * 1.001
    today = rdp.RdpAccountant(orders=[1 + k / 10 for k in range(1, 5000)])
    today.compose(dp.GaussianDpEvent(5.0), 20)
    assert ours > today.get_epsilon(DELTA) > EXACT.epsilon((GaussianEvent(5.0),) * 20, DELTA)


@pytest.mark.parametrize(
    ("epsilon", "share"), [(0.5, 0.1), (1, 0.05), (1, 0.1), (1, 0.2), (1, 0.5), (2, 0.1), (8, 0.1)]
)
def test_joint_agrees_with_discretised_privacy_loss_distributions(epsilon, share) -> None:
    rounds, each = 20, share * epsilon / 20
    multiplier = JOINT.noise_multiplier(Budget(epsilon, DELTA), rounds, RepeatedEvent(PureEvent(each), rounds))
    pure = common.DifferentialPrivacyParameters(each, 0.0)
    grid = each / math.ceil(each / 1e-4)  # the selection's loss falls on the grid
    selection = privacy_loss_distribution.from_privacy_parameters(pure, value_discretization_interval=grid)
    release = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier / math.sqrt(rounds), value_discretization_interval=grid
    )
    spent = selection.self_compose(rounds).compose(release).get_epsilon_for_delta(DELTA)
    assert spent == pytest.approx(epsilon, rel=2e-3)
    assert spent >= epsilon * (1 - 1e-6)  # the oracle rounds up, we do not


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1, 7, 50])
@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.5, 2.0, 9.0])
def test_the_curve_agrees_with_arbitrary_precision(epsilon, mu) -> None:
    with mpmath.workdps(60):
        high = mpmath.ncdf(mpmath.mpf(mu) / 2 - mpmath.mpf(epsilon) / mu)
        low = mpmath.exp(epsilon) * mpmath.ncdf(-mpmath.mpf(mu) / 2 - mpmath.mpf(epsilon) / mu)
        oracle = float(mpmath.log(high - low)) if high > low else -math.inf
    ours = log_delta(epsilon, mu)
    assert ours == pytest.approx(oracle, rel=1e-7) or (oracle < -2e4 and ours < -2e4)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3, 0.9, 0.999999])
@pytest.mark.parametrize("mu", [0.05, 1.0, 12.0])
def test_epsilon_is_an_upper_bound_in_arbitrary_precision(delta, mu) -> None:
    epsilon = epsilon_from_mu(mu, delta)
    with mpmath.workdps(60):
        above = mpmath.ncdf(mpmath.mpf(mu) / 2 - mpmath.mpf(epsilon) / mu)
        left = above - mpmath.exp(epsilon) * mpmath.ncdf(-mpmath.mpf(mu) / 2 - mpmath.mpf(epsilon) / mu)
        assert left <= mpmath.mpf(delta) * (1 + mpmath.mpf("1e-9"))
