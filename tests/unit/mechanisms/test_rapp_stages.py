"""How the budget is cut into stages."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BUDGET
from vpdr.mechanisms.rapp import DEFAULT_STAGE_SHARES, StageSchedule, parse_shares
from vpdr.privacy import ACCOUNTANTS
from vpdr.validation import InvalidInput


@given(releases=st.integers(1, 40), shares=st.lists(st.floats(0.01, 10), min_size=1, max_size=8))
def test_all_releases_together_are_all_stages_once(releases, shares) -> None:
    stages = StageSchedule(releases=releases, shares=tuple(shares))
    done, all_numbers = 0, []
    for _ in range(releases):
        numbers = stages.stages_in_release(done)
        assert len(numbers) >= 1
        all_numbers += list(numbers)
        done = numbers.stop
    assert all_numbers == list(range(stages.count))
    assert math.fsum(stages.share(number) for number in all_numbers) == pytest.approx(1, rel=1e-12)
    assert len(stages.stages_in_release(done)) == 1  # beyond the schedule: one more, which a ledger refuses


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("releases", [1, 2, 5, 20])
def test_the_events_are_the_budget(accountant, releases) -> None:
    by = ACCOUNTANTS[accountant]
    stages, single = StageSchedule(releases=releases), by.noise_multiplier(BUDGET, 1)
    events = tuple(e for number in range(stages.count) for e in stages.stage(number, single).events)
    assert BUDGET.epsilon * 0.99 < by.epsilon(events, BUDGET.delta) <= BUDGET.epsilon


def test_five_releases_are_the_five_shares() -> None:
    stages = StageSchedule(releases=5)
    assert [round(stages.share(number), 12) for number in range(5)] == list(DEFAULT_STAGE_SHARES)
    assert [list(StageSchedule(releases=2).stages_in_release(done)) for done in (0, 3)] == [[0, 1, 2], [3, 4]]
    assert list(StageSchedule(releases=1).stages_in_release(0)) == [0, 1, 2, 3, 4]
    twenty = StageSchedule(releases=20)
    assert sum(twenty.share(number) for number in range(4)) == pytest.approx(0.05)


def test_most_goes_into_sums_and_little_into_the_moment() -> None:
    stage = StageSchedule(releases=5).stage(4, 3.0)
    assert stage.sums.noise_multiplier == pytest.approx(3 / math.sqrt(0.4 * 0.97))
    assert stage.moment.noise_multiplier == pytest.approx(3 / math.sqrt(0.4 * 0.03))
    assert StageSchedule(releases=5, moment_share=0.0).stage(0, 3.0).moment is None


@pytest.mark.parametrize("text", ["", "5,ten", "5;10"])
def test_shares_are_numbers(text) -> None:
    with pytest.raises(InvalidInput, match="5,10,15,30,40"):
        parse_shares(text)


@pytest.mark.parametrize("wrong", [{"shares": ()}, {"shares": (1.0, 0.0)}, {"releases": 0}, {"moment_share": 1.0}])
def test_impossible_stages_are_refused(wrong) -> None:
    with pytest.raises(InvalidInput):
        StageSchedule(**{"releases": 5, **wrong})
