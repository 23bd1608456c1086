"""Accountants against closed forms."""

import math

from scipy.special import ndtr

from vpdr.audits.checkup.base import must
from vpdr.privacy import ACCOUNTANTS, Budget, Event, Gaussian, Pure
from vpdr.privacy.events import Repeated
from vpdr.privacy.gaussian_curve import epsilon_of

DELTA, ROUNDS = 1e-5, 20


def accountants() -> str:
    """Noise never spends more than its budget, and exact accounting meets the formula of the Gaussian."""
    for epsilon in (0.5, 1.0, 8.0):
        mu = math.sqrt(ROUNDS) / ACCOUNTANTS["exact"].multiplier(Budget(epsilon, DELTA), ROUNDS)
        told = float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))
        must(abs(told / DELTA - 1) < 1e-4, f"delta of epsilon {epsilon:g} is {told:.8g}, not {DELTA:g}")
        must(abs(epsilon_of(mu, DELTA) - epsilon) < 1e-5, f"epsilon {epsilon:g} does not come back")
    for name, by in ACCOUNTANTS.items():
        _within(name, by.multiplier(Budget(1.0, DELTA), ROUNDS), ())
        selection = Repeated(Pure(0.1 / ROUNDS), ROUNDS)
        _within(name, by.multiplier(Budget(1.0, DELTA), ROUNDS, selection), (selection.event,) * ROUNDS)
    pure = ACCOUNTANTS["exact"].epsilon((Pure(0.25), Pure(0.5)), DELTA)
    must(abs(pure - 0.75) < 1e-12, f"0.25 and 0.5 of pure epsilon add up to {pure:g}")
    return f"{', '.join(ACCOUNTANTS)}: closed forms met, no budget overspent over {ROUNDS} releases"


def _within(name: str, multiplier: float, selections: tuple[Pure, ...]) -> None:
    events: tuple[Event, ...] = (*selections, *(Gaussian(multiplier),) * ROUNDS)
    spent = ACCOUNTANTS[name].epsilon(events, DELTA)
    must(spent <= 1, f"the {name} accountant spends {spent:.8g} of epsilon 1")
    must(ACCOUNTANTS["joint"].epsilon(events, DELTA) <= spent, f"joint is looser than {name}")
