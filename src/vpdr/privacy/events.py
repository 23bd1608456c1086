"""What a mechanism did, in the few numbers an accountant needs."""

import math
from dataclasses import dataclass
from typing import TypeAlias

from vpdr.errors import InvalidInput

LEAST, MOST = 1e-6, 1e15  # beyond these, squares lose digits and nothing is either private or useful


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Noise of standard deviation `multiplier` times the l2 sensitivity (not times the clip norm).

    The adjacency is inside the sensitivity, so two such events compose whatever the relation is.
    """

    multiplier: float

    def __post_init__(self) -> None:
        if not LEAST <= self.multiplier <= MOST:
            raise InvalidInput(
                f"a noise multiplier must lie between {LEAST:g} and {MOST:g}, got {self.multiplier:g}"
            )


@dataclass(frozen=True, slots=True)
class Pure:
    """Any mechanism that is (epsilon, 0)-DP."""

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1 / LEAST:
            raise InvalidInput(
                f"the epsilon of a pure event must lie in [0, {1 / LEAST:g}], got {self.epsilon:g}"
            )


@dataclass(frozen=True, slots=True)
class NotPrivate:
    """The data went out as they were."""


Event: TypeAlias = Gaussian | Pure | NotPrivate


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same pure event several times over, such as one selection in every round."""

    event: Pure
    times: int

    @property
    def epsilon(self) -> float:
        """What all of them spend together by basic composition."""
        return self.times * self.event.epsilon


def pack(event: Event) -> dict[str, str | float]:
    """The event as plain data, for files and for the wire."""
    match event:
        case Gaussian(multiplier):
            return {"kind": "gaussian", "multiplier": float(multiplier)}
        case Pure(epsilon):
            return {"kind": "pure", "epsilon": float(epsilon)}
        case NotPrivate():
            return {"kind": "not private"}


def unpack(data: object) -> Event:
    """The inverse of `pack`; anything else is refused."""
    match data:
        case {"kind": "gaussian", "multiplier": float() as multiplier}:
            return Gaussian(multiplier)
        case {"kind": "pure", "epsilon": float() as epsilon}:
            return Pure(epsilon)
        case {"kind": "not private"}:
            return NotPrivate()
        case _:
            raise InvalidInput(f"expected a gaussian, pure or not private event, got {data!r}")


def gaussian_precision(events: tuple[Event, ...]) -> float:
    """Σ 1/multiplier²: what all Gaussian events together reveal, as one Gaussian of unit sensitivity."""
    return math.fsum(e.multiplier**-2 for e in events if isinstance(e, Gaussian))


def pure_epsilons(events: tuple[Event, ...]) -> list[float]:
    """The epsilons of the pure events, in order."""
    return [e.epsilon for e in events if isinstance(e, Pure)]


def leaks_everything(events: tuple[Event, ...]) -> bool:
    """Whether any event had no protection at all."""
    return any(isinstance(e, NotPrivate) for e in events)
