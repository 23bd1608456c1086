"""What an audit found, as data and as a verdict."""

import math
from dataclasses import dataclass
from typing import Any

from vpdr.audits.claims import Claim, contradicted
from vpdr.audits.intervals import Point
from vpdr.privacy import Level
from vpdr.privacy.gaussian_curve import epsilon_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Claimed against certified.

    Guarantee: with probability at least `confidence` both points are true, and then `certified` is a lower
    bound on the ε of the audited releases at the claim's δ, whatever their distribution is. It says nothing
    about pairs, attackers or rounds that were not tried: not refuted is not proved.
    """

    claim: Claim
    points: tuple[Point, ...]
    confidence: float
    trials: int  # of each world, all of them
    judged: int  # of each world, those that certify
    pair: str
    words: str  # how the two worlds differ
    attacker: str
    replayed: bool
    heard: bool  # whether any release depends on what the server says
    seconds: float

    @property
    def certified(self) -> float:
        """The largest ε at δ that the runs rule out."""
        return max(point.epsilon(self.claim.delta) for point in self.points)

    @property
    def mu(self) -> float:
        """The largest μ that the runs rule out, if the trade-off is Gaussian."""
        return max(point.mu for point in self.points)

    @property
    def on_the_curve(self) -> float:
        """ε at δ of that μ; only a bound if the trade-off is Gaussian."""
        return epsilon_of(self.mu, self.claim.delta) if math.isfinite(self.mu) else math.inf

    @property
    def broken(self) -> tuple[float, float] | None:
        """A stated (ε, δ) that is false, if one was found."""
        curve = self.claim.curve()
        return next((found for each in self.points if (found := contradicted(curve, each))), None)

    @property
    def refuted(self) -> bool:
        """Whether the claim is false at the stated confidence."""
        return self.broken is not None

    @property
    def verdict(self) -> str:
        """One line."""
        if not self.claim.finite:
            return "not refuted: no finite epsilon is claimed"
        if self.broken is None:
            return f"not refuted: claimed epsilon {self.claim.epsilon:.4g}, certified {self.certified:.4g}"
        claimed = f'refuted: claimed "{self.claim.level}" epsilon {self.claim.epsilon:.4g}'
        if self.certified > self.claim.epsilon:
            return f"{claimed}, certified at least {self.certified:.4g} at delta {self.claim.delta:g}"
        epsilon, delta = self.broken
        return (
            f"{claimed}; its events also state ({epsilon:.4g}, {delta:.3g}), and that is false: "
            f"on a Gaussian curve epsilon is at least {self.on_the_curve:.4g}"
        )

    @property
    def caveat(self) -> str:
        """What the level of the claim already says about it."""
        return _CAVEATS[self.claim.level]

    def to_data(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "claimed": {
                "epsilon": self.claim.epsilon,
                "delta": self.claim.delta,
                "level": str(self.claim.level),
                "adjacency": str(self.claim.adjacency),
                "releases": self.claim.releases,
            },
            "certified_epsilon": self.certified,
            "gaussian_mu": self.mu,
            "gaussian_epsilon": self.on_the_curve,
            "confidence": self.confidence,
            "points": [{"power": p.power, "false_alarms": p.false_alarms} for p in self.points],
            "refuted": self.refuted,
            "verdict": self.verdict,
            "broken": self.broken,
            "trials": self.trials,
            "judged": self.judged,
            "pair": self.pair,
            "attacker": self.attacker,
            "replayed_training": self.replayed,
            "server_heard": self.heard,
            "seconds": self.seconds,
        }


_CAVEATS = {
    Level.PROVED: "the claim is meant to hold end to end",
    Level.CONDITIONAL: "the claim takes the encoder as fixed; the audit does not",
    Level.AS_PUBLISHED: "the claim rests on a published sensitivity that is not a bound",
    Level.NONE: "nothing is claimed",
}
