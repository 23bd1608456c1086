"""Rényi accounting on the published code's grid of orders, to reproduce its noise and nothing else."""

import math
from dataclasses import dataclass

from vpdr.errors import InvalidInput
from vpdr.privacy.accountants.base import check_rounds, composed, left_for_release
from vpdr.privacy.budget import Budget
from vpdr.privacy.events import Event, Repeated
from vpdr.privacy.gaussian_curve import check_delta

ORDERS: tuple[float, ...] = (*(1 + k / 10 for k in range(1, 100)), *range(11, 64), 128, 256, 512)
TOLERANCE = 1e-3  # the published bisection stops here and keeps the upper, safer end
LOWEST, HIGHEST = 1e-3, 1e4


@dataclass(frozen=True, slots=True)
class Rdp:
    """Sound but loose: at ε = 1 over 20 rounds its noise really spends 0.74."""

    name: str = "rdp"

    def epsilon(self, events: tuple[Event, ...], delta: float) -> float:
        """Σ pure ε plus the classical conversion of the Gaussians' Rényi curve."""
        return composed(events, lambda precision: converted(precision, delta))

    def multiplier(self, budget: Budget, rounds: int, beside: Repeated | None = None) -> float:
        """Bisection between fixed ends; the upper end of the last bracket."""
        check_rounds(rounds)
        release = left_for_release(budget, beside)
        self._check_reachable(release)

        def suffices(multiplier: float) -> bool:
            return converted(rounds / multiplier**2, release.delta) <= release.epsilon

        low, high = LOWEST, HIGHEST
        while not suffices(high):
            low, high = high, 2 * high
        while high - low > TOLERANCE:
            middle = (low + high) / 2
            low, high = (low, middle) if suffices(middle) else (middle, high)
        return high

    def _check_reachable(self, release: Budget) -> None:
        floor = converted(0.0, release.delta)
        if release.epsilon <= floor:
            raise InvalidInput(
                f"the rdp accountant cannot go below epsilon {floor:.4g} at delta {release.delta:g}, "
                f"asked for {release.epsilon:g}; use the exact accountant"
            )


def converted(precision: float, delta: float) -> float:
    """min over orders of α·precision/2 + ln(1/δ)/(α - 1) (Mironov 2017)."""
    check_delta(delta)
    surprise = -math.log(delta)
    return min(order * precision / 2 + surprise / (order - 1) for order in ORDERS)
