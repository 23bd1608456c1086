"""Selections and releases composed together: the privacy loss distribution of the pair, in closed form.

A pure ε₀ event is dominated by randomised response (Kairouz, Oh & Viswanath 2015), so T of them have a
privacy loss of ε₀(2K - T) with K binomial, and against a Gaussian of total μ

    δ(ε) = Σₖ P[K = k] · δ_Gauss(ε - ε₀(2k - T); μ).

This is the composition of the two privacy loss distributions without any discretisation; it holds for
adaptive composition because each side is a dominating pair (Zhu, Dong & Wang 2022).
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from vpdr.privacy.accountants.base import HAIR, check_rounds, confirmed
from vpdr.privacy.accountants.exact import Exact
from vpdr.privacy.budget import Budget
from vpdr.privacy.events import Event, Repeated, gaussian_precision, leaks_everything, pure_epsilons
from vpdr.privacy.gaussian_curve import log_delta, smallest_sufficient

Atoms = tuple[tuple[float, float], ...]  # (privacy loss, probability)
NEGLIGIBLE = 1e-12  # share of δ that may be charged for outcomes left out of the sum


@dataclass(frozen=True, slots=True)
class Joint:
    """Tight for many equal selections beside Gaussian releases: the selection is then nearly free."""

    name: str = "joint"

    def epsilon(self, events: tuple[Event, ...], delta: float) -> float:
        """Equal pure events are composed with the Gaussians; any odd ones are added on top."""
        precision = gaussian_precision(events)
        if leaks_everything(events) or not precision or not pure_epsilons(events):
            return Exact().epsilon(events, delta)
        step, count, apart = _grouped(pure_epsilons(events))
        joint = _epsilon(step, count, math.sqrt(precision), delta)
        return min(joint + apart, Exact().epsilon(events, delta))

    def multiplier(self, budget: Budget, rounds: int, beside: Repeated | None = None) -> float:
        """Bisection on the exact δ."""
        check_rounds(rounds)
        enough = Exact().multiplier(budget, rounds, beside)
        if beside is None:
            return enough
        root, allowed = math.sqrt(rounds), budget.epsilon * (1 - HAIR)
        each, times = beside.event.epsilon, beside.times

        def fits(multiplier: float) -> bool:
            return _delta(allowed, each, times, root / multiplier, budget.delta) <= budget.delta

        def spends(multiplier: float) -> float:
            return _epsilon(each, times, root / multiplier, budget.delta)

        low = enough / 2
        while fits(low):
            low, enough = low / 2, low
        return confirmed(smallest_sufficient(low, enough, fits), spends, allowed)


def _grouped(epsilons: list[float]) -> tuple[float, int, float]:
    """The most frequent ε₀ and how often it occurs, and the sum of all the others."""
    (step, count), *odd = Counter(epsilons).most_common()
    return step, count, math.fsum(epsilon * times for epsilon, times in odd)


@lru_cache(maxsize=4096)  # every client of a run asks the same questions
def _epsilon(step: float, count: int, mu: float, delta: float) -> float:
    """The smallest ε whose joint δ is allowed, rounded up."""
    high = 1.0
    while _delta(high, step, count, mu, delta) > delta:
        high *= 2
    if _delta(0.0, step, count, mu, delta) <= delta:
        return 0.0
    return smallest_sufficient(0.0, high, lambda epsilon: _delta(epsilon, step, count, mu, delta) <= delta)


def _delta(epsilon: float, step: float, count: int, mu: float, allowed: float) -> float:
    """δ(ε) of `count` randomised responses and a Gaussian, the outcomes left out charged in full."""
    atoms, left_out = _losses(step, count, allowed * NEGLIGIBLE)
    parts = (share * math.exp(log_delta(epsilon - loss, mu)) for loss, share in atoms)
    return math.fsum(parts) + left_out


@lru_cache(maxsize=256)
def _losses(step: float, count: int, negligible: float) -> tuple[Atoms, float]:
    """Privacy losses of `count` randomised responses with their probabilities, and the mass left out."""
    log_up = -math.log1p(math.exp(-step))
    log_down = log_up - step
    atoms, left_out = [], 0.0
    for up in range(count + 1):
        ways = math.lgamma(count + 1) - math.lgamma(up + 1) - math.lgamma(count - up + 1)
        share = math.exp(ways + up * log_up + (count - up) * log_down)
        if share < negligible / (count + 1):
            left_out += share
        else:
            atoms.append((step * (2 * up - count), share))
    return tuple(atoms), left_out
