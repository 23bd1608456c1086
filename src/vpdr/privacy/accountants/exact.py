"""Gaussian events compose exactly as one Gaussian; pure events are added by basic composition."""

import math
from dataclasses import dataclass

from vpdr.privacy.accountants.base import check_rounds, composed, confirmed, left_for_release
from vpdr.privacy.budget import Budget
from vpdr.privacy.events import Event, Repeated
from vpdr.privacy.gaussian_curve import epsilon_of, mu_of


@dataclass(frozen=True, slots=True)
class Exact:
    """The default: no conversion loss for Gaussians (the paper's split, with the tight curve)."""

    name: str = "exact"

    def epsilon(self, events: tuple[Event, ...], delta: float) -> float:
        """Σ pure ε plus the exact ε of all Gaussians together."""
        return composed(events, lambda precision: epsilon_of(math.sqrt(precision), delta))

    def multiplier(self, budget: Budget, rounds: int, beside: Repeated | None = None) -> float:
        """√T / μ(ε - Σ pure ε, δ)."""
        check_rounds(rounds)
        release, root = left_for_release(budget, beside), math.sqrt(rounds)

        def spends(multiplier: float) -> float:
            return epsilon_of(root / multiplier, release.delta)

        return confirmed(root / mu_of(release.epsilon, release.delta), spends, release.epsilon)
