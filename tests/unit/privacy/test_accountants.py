"""Accountants: reference values, and that calibration never exceeds the budget."""

import math
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vpdr.privacy import ACCOUNTANTS, Budget, GaussianEvent, GuaranteeLevel, NotPrivateEvent, Receipt, get_accountant
from vpdr.privacy.accountants import RDP_ORDERS, PureEvent, RepeatedEvent
from vpdr.privacy.guarantee import GuaranteeTerms
from vpdr.validation import InvalidInput

EXACT, RDP, JOINT = (ACCOUNTANTS[name] for name in ("exact", "rdp", "joint"))
DELTA, ROUNDS = 1e-5, 20
EXACT_VALUES = {0.25: 59.4147, 0.5: 31.4473, 1: 16.6839, 2: 8.9166, 4: 4.8351, 8: 2.6843}
RDP_VALUES = {0.45: 48.1508, 0.5: 43.3824, 0.9: 24.3018, 1: 21.9206, 1.8: 12.3737, 2: 11.1775, 4: 5.7964, 8: 3.0879}
SPLIT = {"rdp": 24.3018, "exact": 18.3654, "joint": 16.7422}

epsilons = st.floats(0.01, 50)
deltas = st.one_of(st.floats(1e-300, 1e-3), st.floats(1e-3, 0.999), st.sampled_from([5e-324, 1 - 2**-53]))
rounds = st.integers(1, 100_000)


@pytest.mark.parametrize(("epsilon", "multiplier"), EXACT_VALUES.items())
def test_exact_values(epsilon, multiplier) -> None:
    assert EXACT.noise_multiplier(Budget(epsilon, DELTA), ROUNDS) == pytest.approx(multiplier, abs=1e-4)


@pytest.mark.parametrize(("epsilon", "multiplier"), RDP_VALUES.items())
def test_rdp_values(epsilon, multiplier) -> None:
    assert RDP.noise_multiplier(Budget(epsilon, DELTA), ROUNDS) == pytest.approx(multiplier, abs=2e-4)


@pytest.mark.parametrize(("name", "multiplier"), SPLIT.items())
def test_selection_beside_release(name, multiplier) -> None:
    pure_events = RepeatedEvent(PureEvent(0.1 / ROUNDS), ROUNDS)
    assert ACCOUNTANTS[name].noise_multiplier(Budget(1.0, DELTA), ROUNDS, pure_events) == pytest.approx(
        multiplier, abs=2e-4
    )


def test_the_joint_value_of_a_discretised_accountant_is_met_from_below() -> None:
    joint = JOINT.noise_multiplier(Budget(1.0, DELTA), ROUNDS, RepeatedEvent(PureEvent(0.005), ROUNDS))
    assert joint == pytest.approx(16.749, rel=1e-3)
    assert joint < 16.749


def test_the_order_of_rdp_is_the_published_grid() -> None:
    assert len(RDP_ORDERS) == 99 + 53 + 3
    assert RDP_ORDERS[0] == pytest.approx(1.1)
    assert RDP_ORDERS[98] == pytest.approx(10.9)
    assert RDP_ORDERS[99:152] == tuple(range(11, 64))
    assert RDP_ORDERS[152:] == (128, 256, 512)


@settings(max_examples=150, deadline=None)
@given(epsilon=epsilons, delta=deltas, count=rounds)
@example(epsilon=0.01, delta=1 - 2**-53, count=3)
@example(epsilon=50.0, delta=5e-324, count=1)
def test_exact_never_spends_more_than_asked_and_wastes_nothing(epsilon, delta, count) -> None:
    multiplier = EXACT.noise_multiplier(Budget(epsilon, delta), count)
    assert EXACT.epsilon((GaussianEvent(multiplier),) * count, delta) <= epsilon
    if delta < 0.9:
        assert EXACT.epsilon((GaussianEvent(multiplier * (1 - 1e-6)),) * count, delta) > epsilon * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(epsilon=epsilons, delta=st.floats(1e-12, 0.5), count=st.integers(1, 300), share=st.floats(0.001, 0.999))
def test_a_selection_and_a_release_never_spend_more_than_asked(epsilon, delta, count, share) -> None:
    pure_events = RepeatedEvent(PureEvent(share * epsilon / count), count)
    budget = Budget(epsilon, delta)
    multipliers = {}
    for name, accountant in ACCOUNTANTS.items():
        try:
            multipliers[name] = accountant.noise_multiplier(budget, count, pure_events)
        except InvalidInput as refusal:
            assert "cannot go below" in str(refusal)  # noqa: PT017 - only the grid's end may refuse
            continue
        events = (pure_events.event,) * count + (GaussianEvent(multipliers[name]),) * count
        assert accountant.epsilon(events, delta) <= epsilon
        assert JOINT.epsilon(events, delta) <= epsilon
    assert multipliers["joint"] <= multipliers["exact"] * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(0.01, 49), delta=st.floats(1e-12, 0.4), count=st.integers(1, 500))
def test_more_privacy_costs_more_noise(epsilon, delta, count) -> None:
    for accountant in (EXACT, RDP):
        try:
            here = accountant.noise_multiplier(Budget(epsilon, delta), count)
        except InvalidInput:
            continue
        assert accountant.noise_multiplier(Budget(epsilon * 1.01, delta), count) <= here
        assert accountant.noise_multiplier(Budget(epsilon, delta * 1.1), count) <= here
        assert accountant.noise_multiplier(Budget(epsilon, delta), count + 1) >= here


def test_joint_is_monotone() -> None:
    grid = [
        JOINT.noise_multiplier(Budget(epsilon, DELTA), ROUNDS, RepeatedEvent(PureEvent(0.1 * epsilon / ROUNDS), ROUNDS))
        for epsilon in (0.01, 0.1, 0.5, 1, 2, 4, 8, 20, 50)
    ]
    assert grid == sorted(grid, reverse=True)


def test_exact_is_never_above_rdp() -> None:
    for epsilon in (0.03, 0.1, 1, 10, 50):
        budget = Budget(epsilon, DELTA)
        assert EXACT.noise_multiplier(budget, ROUNDS) <= RDP.noise_multiplier(budget, ROUNDS)


@pytest.mark.parametrize(("epsilon", "delta", "count"), [(1, 1e-5, 20), (0.01, 1e-300, 10**6), (50, 0.999, 7)])
def test_exact_calibration_takes_less_than_five_milliseconds(epsilon, delta, count) -> None:
    budget, best = Budget(epsilon, delta), math.inf
    for _ in range(5):
        begin = time.perf_counter()
        EXACT.noise_multiplier(budget, count)
        best = min(best, time.perf_counter() - begin)
    assert best < 5e-3


def test_a_not_private_event_has_infinite_epsilon() -> None:
    for accountant in ACCOUNTANTS.values():
        assert accountant.epsilon((GaussianEvent(1.0), NotPrivateEvent()), DELTA) == math.inf


def test_no_event_costs_nothing_and_pure_events_need_no_delta() -> None:
    for accountant in ACCOUNTANTS.values():
        assert accountant.epsilon((), DELTA) == 0
        assert accountant.epsilon((PureEvent(0.25), PureEvent(0.5)), 0.0) == 0.75


def test_joint_adds_unequal_selections_on_top() -> None:
    events = (*[PureEvent(0.01)] * 10, *[GaussianEvent(10.0)] * 10)
    more = JOINT.epsilon((*events, PureEvent(0.3)), DELTA)
    assert more == pytest.approx(JOINT.epsilon(events, DELTA) + 0.3)


def test_rdp_refuses_an_epsilon_below_its_grid() -> None:
    with pytest.raises(InvalidInput, match=r"cannot go below epsilon 0\.02253 .* use the exact accountant"):
        RDP.noise_multiplier(Budget(0.01, DELTA), ROUNDS)


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_bad_requests(name) -> None:
    accountant = get_accountant(name)
    with pytest.raises(InvalidInput, match="delta in"):
        accountant.noise_multiplier(Budget(1.0, 0.0), ROUNDS)
    with pytest.raises(InvalidInput, match="rounds must be a whole number of at least 1, got 0"):
        accountant.noise_multiplier(Budget(1.0, DELTA), 0)
    with pytest.raises(InvalidInput, match="nothing is left"):
        accountant.noise_multiplier(Budget(1.0, DELTA), ROUNDS, RepeatedEvent(PureEvent(0.1), 10))


def test_an_unknown_accountant_is_named() -> None:
    with pytest.raises(InvalidInput, match="unknown accountant 'gdp'; choose one of exact, rdp, joint"):
        get_accountant("gdp")


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan])
def test_a_budget_is_positive(epsilon) -> None:
    with pytest.raises(InvalidInput, match="epsilon must be a positive number"):
        Budget(epsilon, DELTA)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_a_delta_is_a_probability(delta) -> None:
    with pytest.raises(InvalidInput, match="delta must lie in"):
        Budget(1.0, delta)


def test_a_split_adds_up() -> None:
    selection, release = Budget(1.0, DELTA).split(0.1)
    assert (selection.epsilon, selection.delta, release.delta) == (0.1, 0.0, DELTA)
    assert selection.epsilon + release.epsilon == 1.0
    with pytest.raises(InvalidInput, match="one part would be empty"):
        Budget(1.0, DELTA).split(1.0)


class LabelledLeak(NotPrivateEvent):
    """An event without privacy that another package calls by a name of its own."""


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_a_subclass_of_an_event_without_privacy_is_not_private(name) -> None:
    events = (GaussianEvent(10.0), PureEvent(0.1), LabelledLeak())
    terms = GuaranteeTerms(adjacency="replace-one", encoder="public", counts="private", basis="proved")
    assert ACCOUNTANTS[name].epsilon(events, DELTA) == math.inf
    assert Receipt(events=events, terms=terms).level is GuaranteeLevel.NONE
