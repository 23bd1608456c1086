"""Regressions: numbers with which accountants once failed."""

import mpmath
import pytest

from vpdr import Budget
from vpdr.privacy import ACCOUNTANTS, GaussianEvent
from vpdr.privacy.accountants import PureEvent, RepeatedEvent, event_from_dict
from vpdr.validation import InvalidInput

EXACT, JOINT = ACCOUNTANTS["exact"], ACCOUNTANTS["joint"]


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-12, 1e-30), (1e-9, 1e-100), (1e-6, 1e-12), (1e-3, 1e-30), (0.01, 1e-5)]
)
def test_tiny_budgets_are_kept_in_arbitrary_precision(epsilon, delta) -> None:
    multiplier = EXACT.noise_multiplier(Budget(epsilon, delta), 1)
    with mpmath.workdps(80):
        mu, eps = 1 / mpmath.mpf(multiplier), mpmath.mpf(epsilon)
        spent = mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)
        assert spent <= mpmath.mpf(delta)


def test_joint_is_least_also_when_the_selection_takes_nearly_all() -> None:
    pure_events = RepeatedEvent(PureEvent(0.9 / 20), 20)
    multiplier = JOINT.noise_multiplier(Budget(1.0, 1e-5), 20, pure_events)
    assert JOINT.epsilon((pure_events.event,) * 20 + (GaussianEvent(multiplier),) * 20, 1e-5) > 1 - 1e-6


@pytest.mark.parametrize(
    "call",
    [
        lambda: GaussianEvent(1e-160),
        lambda: GaussianEvent(1e170),
        lambda: PureEvent(1e300),
        lambda: EXACT.noise_multiplier(Budget(1.0, 1e-5), 10**400),
        lambda: EXACT.noise_multiplier(Budget(1.0, 1e-5), float("nan")),
        lambda: EXACT.noise_multiplier(Budget(1.0, 1e-5), 2.5),
        lambda: EXACT.epsilon((GaussianEvent(1e14),), 0.0),
        lambda: event_from_dict({"kind": "gaussian", "multiplier": True}),
        lambda: event_from_dict({"kind": "gaussian", "multiplier": 10**400}),
    ],
)
def test_impossible_numbers_are_refused_in_one_line(call) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_large_selections_do_not_overflow() -> None:
    assert JOINT.epsilon((PureEvent(900.0), GaussianEvent(5.0)), 1e-5) >= 900
