"""What a ledger claims, and whether an observed point contradicts it."""

import math
from dataclasses import dataclass
from functools import lru_cache

from vpdr.audits.intervals import Point
from vpdr.privacy import ACCOUNTANTS, Adjacency, Event, Ledger, Level

_DELTAS = tuple(10 ** (-7 + 0.1 * step) for step in range(70))  # where the claimed curve is looked at
_EXACT = ACCOUNTANTS["joint"]  # the tightest reading of what the events state


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """An (ε, δ) with the events behind it, as a client's ledger has them.

    The events claim more than one pair: each of them bounds the whole trade-off between hits and false
    alarms, and all of that can be tested.
    """

    epsilon: float
    delta: float
    level: Level
    adjacency: Adjacency
    releases: int
    events: tuple[Event, ...]

    @classmethod
    def of(cls, ledger: Ledger, delta: float) -> "Claim":
        """All that the ledger says; without a budget its ε is infinite, and δ is the caller's."""
        return cls(
            epsilon=ledger.spent if ledger.entries else 0.0,
            delta=ledger.budget.delta if ledger.budget else delta,
            level=ledger.level,
            adjacency=ledger.adjacency,
            releases=len(ledger.releases),
            events=ledger.events,
        )

    @property
    def finite(self) -> bool:
        """Whether there is anything to refute."""
        return math.isfinite(self.epsilon)

    def curve(self) -> tuple[tuple[float, float], ...]:
        """Pairs (ε, δ) that the claim states, beginning with its own."""
        stated = ((self.epsilon, self.delta), *_stated(self.events))
        return tuple(pair for pair in stated if math.isfinite(pair[0]))


@lru_cache(maxsize=16)
def _stated(events: tuple[Event, ...]) -> tuple[tuple[float, float], ...]:
    return tuple((_EXACT.epsilon(events, delta), delta) for delta in _DELTAS) if events else ()


def contradicted(curve: tuple[tuple[float, float], ...], seen: Point) -> tuple[float, float] | None:
    """The first stated (ε, δ) that the point rules out, if there is one."""
    for epsilon, delta in curve:
        if seen.epsilon(delta) > epsilon:
            return epsilon, delta
    return None
