"""From scores in two worlds to numbers that hold with a stated confidence, whatever the distribution."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaincinv, ndtri

Scores = Float[np.ndarray, " n"]
Hits = Int[np.ndarray, " k"]
Rates = Float[np.ndarray, " k"]


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
        ways = ((self.power, self.false_alarms), (1 - self.false_alarms, 1 - self.power))
        return max(_log_ratio(more - delta, less) for more, less in ways)

    @property
    def mu(self) -> float:
        """The largest μ whose Gaussian curve this point rules out; 0 if none."""
        return max(0.0, float(ndtri(self.power) - ndtri(self.false_alarms)))


def _log_ratio(more: float, less: float) -> float:
    if more <= 0 or more <= less:
        return 0.0
    return math.log(more / less) if less > 0 else math.inf


def lower(hits: Hits, runs: int, doubt: float) -> Rates:
    """Clopper and Pearson's lower bound on a rate; wrong with a chance of at most `doubt`."""
    found: Rates = np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1, doubt), 0.0)
    return found


def upper(hits: Hits, runs: int, doubt: float) -> Rates:
    """Clopper and Pearson's upper bound on a rate."""
    return 1 - lower(runs - hits, runs, doubt)


def point(cut: Cut, first: Scores, second: Scores, doubt: float) -> Point:
    """What fresh runs of both worlds certify about a test that was fixed before they were seen."""
    power = lower(np.array([cut.hits(second)]), len(second), doubt)
    alarms = upper(np.array([cut.hits(first)]), len(first), doubt)
    return Point(power=float(power[0]), false_alarms=float(alarms[0]))


def best_cuts(first: Scores, second: Scores, delta: float, doubt: float) -> tuple[Cut, Cut]:
    """The tests that would certify the most on these runs: for ε at δ, and for μ."""
    best_epsilon, best_mu = (-1.0, Cut(0.0, True)), (-1.0, Cut(0.0, True))
    values = np.unique(np.concatenate([first, second]))
    thresholds = (values[1:] + values[:-1]) / 2 if len(values) > 1 else values
    for above in (True, False):
        alarms, hits = (_beyond(scores, thresholds, above) for scores in (first, second))
        powers, rates = lower(hits, len(second), doubt), upper(alarms, len(first), doubt)
        points = [Point(power=float(p), false_alarms=float(r)) for p, r in zip(powers, rates, strict=True)]
        for threshold, each in zip(thresholds.tolist(), points, strict=True):
            best_epsilon = max(best_epsilon, (each.epsilon(delta), Cut(threshold, above)), key=_worth)
            best_mu = max(best_mu, (each.mu, Cut(threshold, above)), key=_worth)
    return best_epsilon[1], best_mu[1]


def _worth(found: tuple[float, Cut]) -> float:
    return found[0]


def _beyond(scores: Scores, thresholds: Scores, above: bool) -> Hits:
    under = np.searchsorted(np.sort(scores), thresholds, side="right")
    return len(scores) - under if above else under
