"""From scores in two worlds to bounds that hold at a stated confidence, whatever their distribution."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import betaincinv, ndtr, ndtri

ScoreArray = Float[np.ndarray, " n"]
RateArray = Float[np.ndarray, " k"]

_MAX_ABS_SCORE = 1e100  # scores without noise are unbounded, but their squares must be finite
_FIT_TOLERANCE = 0.4  # relative loss against the empirical optimum at which a fitted threshold is preferred


@dataclass(frozen=True, slots=True)
class ThresholdTest:
    """A test that decides for the second world above (or below) a threshold."""

    threshold: float
    above: bool

    def count_hits(self, scores: ScoreArray) -> int:
        """How often the test decides for the second world."""
        return int(((scores > self.threshold) == self.above).sum())


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatingPoint:
    """Bounds on the power and false positive rate of a test; both hold with probability 1 - 2 alpha."""

    power: float  # lower bound on the true positive rate
    fpr: float  # upper bound on the false positive rate

    def epsilon(self, delta: float) -> float:
        """The largest ε that this point rules out at δ, in either direction; 0 if none."""
        return max(0.0, self.log_ratio(delta))

    def log_ratio(self, delta: float) -> float:
        """`epsilon` before the cut at 0, to compare tests that certify nothing yet."""
        directions = ((self.power, self.fpr), (1 - self.fpr, 1 - self.power))
        return max(_log_ratio(more - delta, less) for more, less in directions)

    @property
    def mu(self) -> float:
        """The largest μ whose Gaussian trade-off curve this point rules out; 0 if none."""
        return max(0.0, self.signed_mu)

    @property
    def signed_mu(self) -> float:
        """`mu` before the cut at 0."""
        return float(ndtri(self.power) - ndtri(self.fpr))


def _log_ratio(more: float, less: float) -> float:
    if more <= 0:
        return -math.inf
    return math.log(more / less) if less > 0 else math.inf


def clopper_pearson_lower(hits: RateArray, trials: int, alpha: float) -> RateArray:
    """Clopper and Pearson's lower bound on a rate, wrong with probability at most `alpha`."""
    bound: RateArray = np.where(hits > 1e-9, betaincinv(np.maximum(hits, 1e-9), trials - hits + 1, alpha), 0.0)
    return bound


def clopper_pearson_upper(hits: RateArray, trials: int, alpha: float) -> RateArray:
    """Clopper and Pearson's upper bound on a rate, wrong with probability at most `alpha`."""
    return 1 - clopper_pearson_lower(trials - hits, trials, alpha)


def operating_point(test: ThresholdTest, first: ScoreArray, second: ScoreArray, alpha: float) -> OperatingPoint:
    """What the scores of fresh runs certify about a test that was fixed before."""
    power = clopper_pearson_lower(np.array([float(test.count_hits(second))]), len(second), alpha)
    fpr = clopper_pearson_upper(np.array([float(test.count_hits(first))]), len(first), alpha)
    return OperatingPoint(power=float(power[0]), fpr=float(fpr[0]))


def best_tests(
    first: ScoreArray, second: ScoreArray, delta: float, alpha: float
) -> tuple[ThresholdTest, ThresholdTest]:
    """The tests that would certify the most on these runs: for ε at δ, and for μ.

    Few runs favour some threshold by chance. Rates are therefore read off a Gaussian fitted to the scores,
    unless the empirical rates clearly disagree.
    """
    values = np.unique(np.concatenate([first, second]))
    thresholds = (values[1:] + values[:-1]) / 2 if len(values) > 1 else values
    empirical = _operating_points(first, second, thresholds, alpha, _empirical_hits)
    fitted = _operating_points(first, second, thresholds, alpha, _gaussian_hits)
    return (
        _best_test(empirical, fitted, lambda point: point.log_ratio(delta)),
        _best_test(empirical, fitted, lambda point: point.signed_mu),
    )


TestsWithPoints = list[tuple[ThresholdTest, OperatingPoint]]


def _best_test(
    empirical: TestsWithPoints, fitted: TestsWithPoints, criterion: Callable[[OperatingPoint], float]
) -> ThresholdTest:
    values = {test: criterion(point) for test, point in empirical}
    best = max(values, key=lambda test: values[test])
    best_fitted = max(fitted, key=lambda entry: criterion(entry[1]))[0]
    is_close = values[best_fitted] >= values[best] - _FIT_TOLERANCE * abs(values[best])
    return best_fitted if is_close else best


def _operating_points(
    first: ScoreArray,
    second: ScoreArray,
    thresholds: ScoreArray,
    alpha: float,
    count_above: Callable[[ScoreArray, ScoreArray], RateArray],
) -> TestsWithPoints:
    """What each test would certify, with hits counted or read off a fitted curve."""
    first_above, second_above = (count_above(scores, thresholds) for scores in (first, second))
    tests: TestsWithPoints = []
    for above in (True, False):
        false_alarms = first_above if above else len(first) - first_above
        hits = second_above if above else len(second) - second_above
        powers = clopper_pearson_lower(hits, len(second), alpha)
        rates = clopper_pearson_upper(false_alarms, len(first), alpha)
        tests += [
            (ThresholdTest(float(threshold), above), OperatingPoint(power=float(power), fpr=float(rate)))
            for threshold, power, rate in zip(thresholds, powers, rates, strict=True)
        ]
    return tests


def _empirical_hits(scores: ScoreArray, thresholds: ScoreArray) -> RateArray:
    below: RateArray = np.searchsorted(np.sort(scores), thresholds, side="right").astype(np.float64)
    return len(scores) - below


def _gaussian_hits(scores: ScoreArray, thresholds: ScoreArray) -> RateArray:
    scores = np.clip(scores, -_MAX_ABS_SCORE, _MAX_ABS_SCORE)
    thresholds = np.clip(thresholds, -_MAX_ABS_SCORE, _MAX_ABS_SCORE)
    std = max(float(scores.std()), 1e-12 * float(np.abs(scores).max()), 1e-100)
    above: RateArray = ndtr((scores.mean() - thresholds) / std)
    return len(scores) * above
