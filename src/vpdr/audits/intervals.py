"""From scores in two worlds to numbers that hold with a stated confidence, whatever the distribution."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import betaincinv, ndtr, ndtri

Scores = Float[np.ndarray, " n"]
Rates = Float[np.ndarray, " k"]
_HUGE = 1e100  # scores without noise have no bound, their squares must
_MAY_MISS = 0.4  # of the counted optimum, by a threshold that was read off a fitted curve


@dataclass(frozen=True, slots=True)
class Cut:
    """A test: guess the second world above the threshold, or below it."""

    threshold: float
    above: bool

    def hits(self, scores: Scores) -> int:
        """How often it guesses the second world."""
        return int(((scores > self.threshold) == self.above).sum())


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One point of a trade-off curve: both hold together with probability 1 - 2 `doubt`."""

    power: float  # the test's true rate of hits is at least this
    false_alarms: float  # its true rate of false alarms is at most this

    def epsilon(self, delta: float) -> float:
        """The largest ε that this point rules out at δ, in either direction; 0 if none."""
        return max(0.0, self.log_ratio(delta))

    def log_ratio(self, delta: float) -> float:
        """The same before it is cut off at 0, to compare tests that certify nothing yet."""
        ways = ((self.power, self.false_alarms), (1 - self.false_alarms, 1 - self.power))
        return max(_log_ratio(more - delta, less) for more, less in ways)

    @property
    def mu(self) -> float:
        """The largest μ whose Gaussian curve this point rules out; 0 if none."""
        return max(0.0, self.distance)

    @property
    def distance(self) -> float:
        """The same before it is cut off at 0."""
        return float(ndtri(self.power) - ndtri(self.false_alarms))


def _log_ratio(more: float, less: float) -> float:
    if more <= 0:
        return -math.inf
    return math.log(more / less) if less > 0 else math.inf


def lower(hits: Rates, runs: int, doubt: float) -> Rates:
    """Clopper and Pearson's lower bound on a rate; wrong with a chance of at most `doubt`."""
    some = np.maximum(hits, 1e-9)
    found: Rates = np.where(hits > 1e-9, betaincinv(some, runs - hits + 1, doubt), 0.0)
    return found


def upper(hits: Rates, runs: int, doubt: float) -> Rates:
    """Clopper and Pearson's upper bound on a rate."""
    return 1 - lower(runs - hits, runs, doubt)


def point(cut: Cut, first: Scores, second: Scores, doubt: float) -> Point:
    """What fresh runs of both worlds certify about a test that was fixed before they were seen."""
    power = lower(np.array([float(cut.hits(second))]), len(second), doubt)
    alarms = upper(np.array([float(cut.hits(first))]), len(first), doubt)
    return Point(power=float(power[0]), false_alarms=float(alarms[0]))


def best_cuts(first: Scores, second: Scores, delta: float, doubt: float) -> tuple[Cut, Cut]:
    """The tests that would certify the most on these runs: for ε at δ, and for μ.

    Few runs favour some threshold by chance, so rates are first read off a Gaussian fitted to the scores;
    where what was counted disagrees clearly, what was counted wins.
    """
    values = np.unique(np.concatenate([first, second]))
    thresholds = (values[1:] + values[:-1]) / 2 if len(values) > 1 else values
    counted, smooth = (_points(first, second, thresholds, doubt, hits) for hits in (_counted, _smooth))
    return (
        _best(counted, smooth, lambda each: each.log_ratio(delta)),
        _best(counted, smooth, lambda each: each.distance),
    )


Judged = list[tuple[Cut, Point]]


def _best(counted: Judged, smooth: Judged, worth: Callable[[Point], float]) -> Cut:
    seen = {cut: worth(each) for cut, each in counted}
    winner = max(seen, key=lambda cut: seen[cut])
    fitted = max(smooth, key=lambda found: worth(found[1]))[0]
    return fitted if seen[fitted] >= seen[winner] - _MAY_MISS * abs(seen[winner]) else winner


def _points(
    first: Scores, second: Scores, thresholds: Scores, doubt: float, hits: Callable[[Scores, Scores], Rates]
) -> Judged:
    """What each test would certify, with hits counted or read off a curve."""
    above = [hits(scores, thresholds) for scores in (first, second)]
    found: Judged = []
    for side in (True, False):
        alarms, powers = above if side else (len(first) - above[0], len(second) - above[1])
        low, high = lower(powers, len(second), doubt), upper(alarms, len(first), doubt)
        found += [
            (Cut(float(threshold), side), Point(power=float(power), false_alarms=float(rate)))
            for threshold, power, rate in zip(thresholds, low, high, strict=True)
        ]
    return found


def _counted(scores: Scores, thresholds: Scores) -> Rates:
    under: Rates = np.searchsorted(np.sort(scores), thresholds, side="right").astype(np.float64)
    return len(scores) - under


def _smooth(scores: Scores, thresholds: Scores) -> Rates:
    held, marks = np.clip(scores, -_HUGE, _HUGE), np.clip(thresholds, -_HUGE, _HUGE)
    spread = max(float(held.std()), 1e-12 * float(np.abs(held).max()), 1e-100)
    share: Rates = ndtr((held.mean() - marks) / spread)
    return len(scores) * share
