"""The privacy claim of a ledger, and the result of an audit against it."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from vpdr.audits.statistics import OperatingPoint
from vpdr.privacy import ACCOUNTANTS, Adjacency, Event, GuaranteeLevel, Ledger, epsilon_from_mu

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

    Args:
        epsilon: the claimed ε; infinite without privacy.
        delta: the claimed δ.
        level: the guarantee level of the claim.
        adjacency: the adjacency relation of the claim.
        releases: number of releases.
        events: the privacy events of all releases.
    """

    epsilon: float
    delta: float
    level: GuaranteeLevel
    adjacency: Adjacency
    releases: int
    events: tuple[Event, ...]

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
        """Whether there is anything to refute."""
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
        """Whether the claim is false at the stated confidence."""
        return self.violated_claim is not None

    @property
    def verdict(self) -> str:
        """The result in one line."""
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
        """What the guarantee level says about the claim."""
        return _CAVEATS[self.claim.level]

    def to_data(self) -> dict[str, Any]:
        """As plain data for JSON."""
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
