"""What every accountant can do, and the check that all of them share."""

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from vpdr.errors import InvalidInput
from vpdr.privacy.budget import Budget
from vpdr.privacy.events import Event, Repeated, gaussian_precision, leaks_everything, pure_epsilons

HAIR = 1e-9  # share never spent, so that no order of summation can push T releases over the budget

MOST_ROUNDS = 10**9


@runtime_checkable
class Accountant(Protocol):
    """Adds events up, and finds the noise that a budget allows.

    Guarantee: `epsilon` is an upper bound for adaptive composition in any order, and `multiplier`,
    checked back through `epsilon`, never spends more than the budget.
    """

    @property
    def name(self) -> str:
        """How plans, ledgers and reports call it."""
        ...

    def epsilon(self, events: tuple[Event, ...], delta: float) -> float:
        """The ε that all events together have spent at this δ."""
        ...

    def multiplier(self, budget: Budget, rounds: int, beside: Repeated | None = None) -> float:
        """The noise of each of `rounds` Gaussian releases that fit into the budget beside pure events."""
        ...


def check_rounds(rounds: int) -> None:
    """A budget is spread over at least one release."""
    if not isinstance(rounds, int) or isinstance(rounds, bool) or not 1 <= rounds <= MOST_ROUNDS:
        raise InvalidInput(f"rounds must be a whole number of at least 1, got {rounds}")


def left_for_release(budget: Budget, beside: Repeated | None) -> Budget:
    """What basic composition leaves to the Gaussians once the pure events are paid."""
    pure = beside.epsilon if beside else 0.0
    if pure >= budget.epsilon:
        raise InvalidInput(
            f"the selection alone spends epsilon {pure:g} of {budget.epsilon:g}: "
            "nothing is left for the release, lower its share"
        )
    left = budget.epsilon * (1 - HAIR) - pure
    if left <= 0:
        raise InvalidInput(f"the selection leaves {left:g} of epsilon {budget.epsilon:g}: lower its share")
    return Budget(left, budget.delta)


def composed(events: tuple[Event, ...], gaussian: Callable[[float], float]) -> float:
    """Basic composition: Σ pure ε, plus what `gaussian` says of the precision of all Gaussians together."""
    if leaks_everything(events):
        return math.inf
    precision = gaussian_precision(events)
    return math.fsum([*pure_epsilons(events), gaussian(precision) if precision else 0.0])


def confirmed(multiplier: float, spends: Callable[[float], float], allowed: float) -> float:
    """The multiplier with a hair to spare, raised until the accountant itself finds it within the budget."""
    multiplier *= 1 + HAIR
    step = HAIR
    while spends(multiplier) > allowed:
        multiplier *= 1 + step
        step *= 4
    return multiplier
