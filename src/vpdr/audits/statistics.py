"""From scores in two worlds to bounds that hold at a stated confidence, and to the result of an audit."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import betaincinv, ndtr, ndtri

from vpdr.privacy import ACCOUNTANTS, Adjacency, Event, GuaranteeLevel, Ledger
from vpdr.privacy.accountants import epsilon_from_mu

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

    def best_test(criterion: Callable[[OperatingPoint], float]) -> ThresholdTest:
        scores = {test: criterion(point) for test, point in empirical}
        best = max(scores, key=lambda test: scores[test])
        best_fitted = max(fitted, key=lambda entry: criterion(entry[1]))[0]
        is_close = scores[best_fitted] >= scores[best] - _FIT_TOLERANCE * abs(scores[best])
        return best_fitted if is_close else best

    return best_test(lambda point: point.log_ratio(delta)), best_test(lambda point: point.signed_mu)


def _operating_points(
    first: ScoreArray,
    second: ScoreArray,
    thresholds: ScoreArray,
    alpha: float,
    count_above: Callable[[ScoreArray, ScoreArray], RateArray],
) -> list[tuple[ThresholdTest, OperatingPoint]]:
    """What each test would certify, with hits counted or read off a fitted curve."""
    first_above, second_above = (count_above(scores, thresholds) for scores in (first, second))
    tests = []
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


# The privacy claim of a ledger, and the result of an audit against it.

_DELTAS = tuple(10 ** (-7 + 0.1 * step) for step in range(70))  # grid of the claimed curve
_TIGHTEST = "joint"  # the accountant with the smallest ε for given events
_CAVEATS = {
    GuaranteeLevel.PROVED: "the claim is meant to hold end to end",
    GuaranteeLevel.CONDITIONAL: "the claim takes the encoder as fixed; the audit does not",
    GuaranteeLevel.AS_PUBLISHED: "the claim rests on a published sensitivity that is not a bound",
    GuaranteeLevel.NONE: "nothing is claimed",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """An (ε, δ) with the events behind it, as a client's ledger states them.

    The events state more than one pair (ε, δ): each of them bounds the whole trade-off between power and
    false positive rate, and all of that can be tested.
    """

    epsilon: float  # infinite without privacy
    delta: float
    level: GuaranteeLevel
    adjacency: Adjacency
    releases: int
    events: tuple[Event, ...]  # of all releases

    @classmethod
    def from_ledger(cls, ledger: Ledger, delta: float) -> "Claim":
        """The claim of a ledger; without a budget, δ is the argument."""
        return cls(
            epsilon=ledger.epsilon_spent if ledger.entries else 0.0,
            delta=ledger.budget.delta if ledger.budget else delta,
            level=ledger.level,
            adjacency=ledger.adjacency,
            releases=len(ledger.releases),
            events=ledger.events,
        )

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.epsilon)

    def curve(self) -> tuple[tuple[float, float], ...]:
        """The finite pairs (ε, δ) that the claim states, its own first."""
        stated = ((self.epsilon, self.delta), *_curve_from_events(self.events))
        return tuple(pair for pair in stated if math.isfinite(pair[0]))


@lru_cache(maxsize=16)
def _curve_from_events(events: tuple[Event, ...]) -> tuple[tuple[float, float], ...]:
    accountant = ACCOUNTANTS[_TIGHTEST]
    return tuple((accountant.epsilon(events, delta), delta) for delta in _DELTAS) if events else ()


def violated_point(curve: tuple[tuple[float, float], ...], point: OperatingPoint) -> tuple[float, float] | None:
    """The first stated (ε, δ) that the point rules out, or None."""
    for epsilon, delta in curve:
        if point.epsilon(delta) > epsilon:
            return epsilon, delta
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditResult:
    """The claimed ε against the certified ε.

    Guarantee: with probability at least `confidence` both points are true, and then `certified_epsilon` is a
    lower bound on the ε of the audited releases at the claim's δ, whatever their distribution is. It says
    nothing about pairs, attackers or rounds that were not tried: not refuted is not proved.
    """

    claim: Claim
    points: tuple[OperatingPoint, ...]
    confidence: float
    trials: int  # runs of each world
    certifying_trials: int  # runs of each world that certify; the others fit attackers and select tests
    pair: str
    pair_description: str
    attacker: str
    training_replayed: bool
    depends_on_server: bool  # whether a release depends on the broadcasts
    seconds: float

    @property
    def certified_epsilon(self) -> float:
        """The largest ε at the claim's δ that the runs rule out."""
        return max(point.epsilon(self.claim.delta) for point in self.points)

    @property
    def mu(self) -> float:
        """The largest μ that the runs rule out, if the trade-off is Gaussian."""
        return max(point.mu for point in self.points)

    @property
    def epsilon_if_gaussian(self) -> float:
        """ε of `mu` at the claim's δ; a bound only if the trade-off is Gaussian."""
        return epsilon_from_mu(self.mu, self.claim.delta) if math.isfinite(self.mu) else math.inf

    @property
    def violated_claim(self) -> tuple[float, float] | None:
        """A stated (ε, δ) that is false, or None."""
        curve = self.claim.curve()
        return next((pair for point in self.points if (pair := violated_point(curve, point))), None)

    @property
    def refuted(self) -> bool:
        return self.violated_claim is not None

    @property
    def verdict(self) -> str:
        if not self.claim.is_finite:
            return "not refuted: no finite epsilon is claimed"
        epsilon, certified = self.claim.epsilon, self.certified_epsilon
        if self.violated_claim is None:
            return f"not refuted: claimed epsilon {epsilon:.4g}, certified {certified:.4g}"
        claimed = f'refuted: claimed "{self.claim.level}" epsilon {epsilon:.4g}'
        if certified > epsilon:
            return f"{claimed}, certified at least {certified:.4g} at delta {self.claim.delta:g}"
        epsilon, delta = self.violated_claim
        return (
            f"{claimed}; its events also state ({epsilon:.4g}, {delta:.3g}), and that is false: "
            f"on a Gaussian curve epsilon is at least {self.epsilon_if_gaussian:.4g}"
        )

    @property
    def caveat(self) -> str:
        return _CAVEATS[self.claim.level]

    def to_data(self) -> dict[str, Any]:
        return {
            "claimed": {
                "epsilon": self.claim.epsilon,
                "delta": self.claim.delta,
                "level": str(self.claim.level),
                "adjacency": str(self.claim.adjacency),
                "releases": self.claim.releases,
            },
            "certified_epsilon": self.certified_epsilon,
            "gaussian_mu": self.mu,
            "gaussian_epsilon": self.epsilon_if_gaussian,
            "confidence": self.confidence,
            "points": [{"power": point.power, "false_alarms": point.fpr} for point in self.points],
            "refuted": self.refuted,
            "verdict": self.verdict,
            "broken": self.violated_claim,
            "trials": self.trials,
            "judged": self.certifying_trials,
            "pair": self.pair,
            "attacker": self.attacker,
            "replayed_training": self.training_replayed,
            "server_heard": self.depends_on_server,
            "seconds": self.seconds,
        }
