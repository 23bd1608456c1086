"""Regressions: numbers with which accountants once failed."""

import mpmath
import pytest

from tests.unit.privacy.test_ledger import TERMS
from vpdr import Budget
from vpdr.privacy import ACCOUNTANTS, GaussianEvent, Receipt
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


class SubsampledEvent:
    """A cost that no accountant here knows; it once cost nothing."""


@pytest.mark.parametrize("name", ACCOUNTANTS)
@pytest.mark.parametrize("others", [(), (GaussianEvent(20.0),), (PureEvent(0.1), GaussianEvent(20.0))])
def test_an_event_of_an_unknown_type_is_refused(name, others) -> None:
    with pytest.raises(InvalidInput, match="no accountant knows the event SubsampledEvent"):
        ACCOUNTANTS[name].epsilon((*others, SubsampledEvent()), 1e-5)
    with pytest.raises(InvalidInput, match="SubsampledEvent"):
        Receipt(events=(*others, SubsampledEvent()), terms=TERMS)


@pytest.mark.parametrize("rounds", [1, 3, 7, 20, 1000])
@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_the_noise_is_verified_by_the_accountant_itself(name, rounds) -> None:
    accountant = ACCOUNTANTS[name]
    multiplier = accountant.noise_multiplier(Budget(1.0, 1e-5), rounds)
    assert accountant.epsilon((GaussianEvent(multiplier),) * rounds, 1e-5) <= 1.0


def test_rdp_bisects_on_its_own_epsilon(monkeypatch) -> None:
    rdp = ACCOUNTANTS["rdp"]
    published = rdp.noise_multiplier(Budget(1.0, 1e-5), 20)
    assert round(published, 3) == 21.921
    stricter = type(rdp).epsilon
    monkeypatch.setattr(type(rdp), "epsilon", lambda self, events, delta: 2 * stricter(self, events, delta))
    assert rdp.noise_multiplier(Budget(1.0, 1e-5), 20) > 1.9 * published
