"""The exact trade-off of the Gaussian mechanism: δ as a function of ε and of μ = sensitivity / noise.

μ-GDP composes exactly (μ² adds up, also adaptively), so T releases with multiplier σ are one Gaussian
with μ = √T/σ and nothing is lost (Dong, Roth & Su 2022; Balle & Wang 2018, Theorem 8).
"""

import math
import sys
from collections.abc import Callable

from scipy.special import log_ndtr

from vpdr.errors import InvalidInput

_HALVINGS = 200  # enough to reach neighbouring floats from any bracket
_ULPS = 8  # of each logarithm, what scipy and the two divisions may be off


def log_delta(epsilon: float, mu: float) -> float:
    """log δ(ε; μ) = log(Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)), also for negative ε, rounded up.

    The two terms nearly cancel where ε or μ is tiny; their rounding errors are charged to δ.
    """
    if mu <= 0:
        # two equal distributions: δ is what a negative ε asks for, and 0 otherwise
        return math.log(-math.expm1(epsilon)) if epsilon < 0 else -math.inf
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = float(log_ndtr(-mu / 2 - epsilon / mu)) + epsilon
    rounding = _ULPS * sys.float_info.epsilon * (1 + abs(upper) + abs(lower))
    return upper + math.log(-math.expm1(min(lower - upper, 0.0) - rounding))


def covers(epsilon: float, delta: float, mu: float) -> bool:
    """Whether a Gaussian of this μ is (ε, δ)-DP, without loss of digits for δ near 0 or near 1."""
    if delta < 0.5:
        return log_delta(epsilon, mu) <= math.log(delta)
    missed = float(log_ndtr(epsilon / mu - mu / 2)) if mu > 0 else 0.0
    doubled = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)) if mu > 0 else -math.inf
    larger, smaller = max(missed, doubled), min(missed, doubled)
    return larger + math.log1p(math.exp(smaller - larger)) >= math.log1p(-delta)


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest ε ≥ 0 that μ and δ allow, rounded up."""
    check_delta(delta)
    if covers(0.0, delta, mu):
        return 0.0
    low, high = 0.0, 1.0
    while not covers(high, delta, mu):
        low, high = high, 2 * high
    return smallest_sufficient(low, high, lambda epsilon: covers(epsilon, delta, mu))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest μ that is (ε, δ)-DP, rounded down."""
    check_delta(delta)
    # on the noise 1/μ instead of μ, so that rounding errs to more noise
    low, high = 0.5, 1.0
    while covers(epsilon, delta, 1 / low):
        low, high = low / 2, low
    while not covers(epsilon, delta, 1 / high):
        low, high = high, 2 * high
    return 1 / smallest_sufficient(low, high, lambda noise: covers(epsilon, delta, 1 / noise))


def check_delta(delta: float) -> None:
    """A Gaussian is never (ε, 0)-DP."""
    if not 0 < delta < 1:
        raise InvalidInput(
            f"a Gaussian release needs delta in (0, 1), got {delta:g}; give it a small positive one"
        )


def smallest_sufficient(low: float, high: float, suffices: Callable[[float], bool]) -> float:
    """The smallest float in (low, high] that suffices, when everything above it does too."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if suffices(middle):
            high = middle
        else:
            low = middle
    return high
