"""Budgets, events, and the accountants that compute what events cost and how much noise a budget requires."""

import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias

from scipy.special import log_ndtr

from vpdr.validation import InvalidInput

# beyond these, squares lose digits, and no release would be either private or useful
MIN_MULTIPLIER, MAX_MULTIPLIER = 1e-6, 1e15


@dataclass(frozen=True, slots=True)
class Budget:
    """The (ε, δ) that one client may spend over all rounds.

    Args:
        epsilon: ε, positive and finite.
        delta: δ, in [0, 1).

    Raises:
        InvalidInput: a value is out of range.

    Guarantee: what the two parts of `split` spend adds up to at most the budget (basic composition).

    >>> Budget(1.0, 1e-5).split(0.1)
    (Budget(epsilon=0.1, delta=0.0), Budget(epsilon=0.9, delta=1e-05))
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise InvalidInput(f"epsilon must be a positive number, got {self.epsilon:g}")
        if not 0 <= self.delta < 1:
            raise InvalidInput(f"delta must lie in [0, 1), got {self.delta:g}")

    def split(self, share: float) -> tuple["Budget", "Budget"]:
        """(ε₁, 0) for the selection and (ε₂, δ) for the release (Sec. 4.2); the share is ε₁/ε, in (0, 1)."""
        if not 0 < share < 1:
            raise InvalidInput(f"share must lie in (0, 1), got {share:g}: one part would be empty")
        selection = share * self.epsilon
        return Budget(selection, 0.0), Budget(self.epsilon - selection, self.delta)


@dataclass(frozen=True, slots=True)
class GaussianEvent:
    """A Gaussian mechanism with noise of `noise_multiplier` times the l2 sensitivity (not the clip norm).

    The adjacency is inside the sensitivity, so two such events compose whatever the relation is.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        if not MIN_MULTIPLIER <= self.noise_multiplier <= MAX_MULTIPLIER:
            raise InvalidInput(
                f"a noise multiplier must lie between {MIN_MULTIPLIER:g} and {MAX_MULTIPLIER:g}, "
                f"got {self.noise_multiplier:g}"
            )


@dataclass(frozen=True, slots=True)
class PureEvent:
    """Any mechanism that is (epsilon, 0)-DP."""

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1 / MIN_MULTIPLIER:
            raise InvalidInput(
                f"the epsilon of a pure event must lie in [0, {1 / MIN_MULTIPLIER:g}], got {self.epsilon:g}"
            )


@dataclass(frozen=True, slots=True)
class NotPrivateEvent:
    """A release of the data without any protection."""


Event: TypeAlias = GaussianEvent | PureEvent | NotPrivateEvent


@dataclass(frozen=True, slots=True)
class RepeatedEvent:
    """The same pure event several times, such as one selection in every round."""

    event: PureEvent
    times: int

    @property
    def epsilon(self) -> float:
        """The sum of all ε (basic composition)."""
        return self.times * self.event.epsilon


def event_to_dict(event: Event) -> dict[str, str | float]:
    """The event as plain data, for files and messages."""
    match event:
        case GaussianEvent(noise_multiplier):
            return {"kind": "gaussian", "multiplier": float(noise_multiplier)}
        case PureEvent(epsilon):
            return {"kind": "pure", "epsilon": float(epsilon)}
        case NotPrivateEvent():
            return {"kind": "not private"}


def event_from_dict(data: object) -> Event:
    """The inverse of `event_to_dict`; anything else is refused."""
    match data:
        case {"kind": "gaussian", "multiplier": float() as noise_multiplier}:
            return GaussianEvent(noise_multiplier)
        case {"kind": "pure", "epsilon": float() as epsilon}:
            return PureEvent(epsilon)
        case {"kind": "not private"}:
            return NotPrivateEvent()
        case _:
            raise InvalidInput(f"expected a gaussian, pure or not private event, got {data!r}")


def check_events(events: tuple[Event, ...]) -> None:
    """Refuse an event of an unknown type, which would otherwise be added up as if it cost nothing."""
    for event in events:
        if not isinstance(event, GaussianEvent | PureEvent | NotPrivateEvent):
            raise InvalidInput(
                f"no accountant knows the event {type(event).__name__}; "
                "state the cost as GaussianEvent, PureEvent or NotPrivateEvent"
            )


def gaussian_precision(events: tuple[Event, ...]) -> float:
    """μ² of all Gaussian events together, as one Gaussian of unit sensitivity: Σ 1/noise_multiplier²."""
    check_events(events)
    return math.fsum(e.noise_multiplier**-2 for e in events if isinstance(e, GaussianEvent))


def pure_epsilons(events: tuple[Event, ...]) -> list[float]:
    """The epsilons of the pure events, in order."""
    check_events(events)
    return [e.epsilon for e in events if isinstance(e, PureEvent)]


def has_not_private_event(events: tuple[Event, ...]) -> bool:
    """Whether any event is without protection, by whatever subclass."""
    return any(isinstance(e, NotPrivateEvent) for e in events)


# The exact trade-off of the Gaussian mechanism: δ as a function of ε and of μ = sensitivity / noise.

_MAX_BISECTIONS = 200  # enough to reach neighbouring floats from any bracket
_ROUNDING_ULPS = 8  # rounding error of each logarithm, by scipy and the two divisions


def log_delta(epsilon: float, mu: float) -> float:
    """log δ(ε; μ) = log(Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)), also for negative ε, rounded up.

    The two terms nearly cancel where ε or μ is tiny; their rounding errors are charged to δ.
    """
    if mu <= 0:
        # two equal distributions: δ is 1 - e^ε for a negative ε, and 0 otherwise
        return math.log(-math.expm1(epsilon)) if epsilon < 0 else -math.inf
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = float(log_ndtr(-mu / 2 - epsilon / mu)) + epsilon
    rounding = _ROUNDING_ULPS * sys.float_info.epsilon * (1 + abs(upper) + abs(lower))
    return upper + math.log(-math.expm1(min(lower - upper, 0.0) - rounding))


def satisfies_dp(epsilon: float, delta: float, mu: float) -> bool:
    """Whether a Gaussian of this μ is (ε, δ)-DP, without loss of digits for δ near 0 or near 1."""
    if delta < 0.5:
        return log_delta(epsilon, mu) <= math.log(delta)
    complement = float(log_ndtr(epsilon / mu - mu / 2)) if mu > 0 else 0.0
    scaled = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)) if mu > 0 else -math.inf
    larger, smaller = max(complement, scaled), min(complement, scaled)
    return larger + math.log1p(math.exp(smaller - larger)) >= math.log1p(-delta)


def epsilon_from_mu(mu: float, delta: float) -> float:
    """The smallest ε ≥ 0 that μ and δ allow, rounded up."""
    check_delta(delta)
    if satisfies_dp(0.0, delta, mu):
        return 0.0
    low, high = 0.0, 1.0
    while not satisfies_dp(high, delta, mu):
        low, high = high, 2 * high
    return bisect_smallest(low, high, lambda epsilon: satisfies_dp(epsilon, delta, mu))


def mu_from_epsilon(epsilon: float, delta: float) -> float:
    """The largest μ that is (ε, δ)-DP, rounded down."""
    check_delta(delta)
    # bisection on the noise 1/μ instead of μ, so that rounding errs towards more noise
    low, high = 0.5, 1.0
    while satisfies_dp(epsilon, delta, 1 / low):
        low, high = low / 2, low
    while not satisfies_dp(epsilon, delta, 1 / high):
        low, high = high, 2 * high
    return 1 / bisect_smallest(low, high, lambda noise: satisfies_dp(epsilon, delta, 1 / noise))


def check_delta(delta: float) -> None:
    """Refuse a δ outside (0, 1): a Gaussian is never (ε, 0)-DP."""
    if not 0 < delta < 1:
        raise InvalidInput(f"a Gaussian release needs delta in (0, 1), got {delta:g}; give it a small positive one")


def bisect_smallest(low: float, high: float, suffices: Callable[[float], bool]) -> float:
    """The smallest float in (low, high] that suffices, when everything above it does too."""
    for _ in range(_MAX_BISECTIONS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if suffices(middle):
            high = middle
        else:
            low = middle
    return high


REL_SLACK = 1e-9  # share of ε never spent, so that no order of summation exceeds the budget
MAX_ROUNDS = 10**9

RDP_ORDERS: tuple[float, ...] = (*(1 + k / 10 for k in range(1, 100)), *range(11, 64), 128, 256, 512)
BISECTION_TOLERANCE = 1e-3  # the published bisection stops here and returns the upper, safer end
BRACKET_LOW, BRACKET_HIGH = 1e-3, 1e4

TRUNCATED_DELTA_SHARE = 1e-12  # share of δ that may be charged for truncated outcomes


class Accountant(Protocol):
    """Adds events up, and finds the noise that a budget allows.

    Guarantee: `epsilon` is an upper bound for adaptive composition in any order, and `noise_multiplier`,
    verified through `epsilon`, never spends more than the budget.
    """

    def epsilon(self, events: tuple[Event, ...], delta: float) -> float:
        """The ε that all events together spend at this δ."""

    def noise_multiplier(self, budget: Budget, rounds: int, pure_events: RepeatedEvent | None = None) -> float:
        """The least noise at which `rounds` Gaussian releases, besides the pure events, fit the budget."""


def check_rounds(rounds: int) -> None:
    """Refuse a number of releases that is not a whole number of at least 1."""
    if not isinstance(rounds, int) or isinstance(rounds, bool) or not 1 <= rounds <= MAX_ROUNDS:
        raise InvalidInput(f"rounds must be a whole number of at least 1, got {rounds}")


def budget_for_gaussian(budget: Budget, pure_events: RepeatedEvent | None) -> Budget:
    """What basic composition leaves for the Gaussian events after the pure events."""
    pure = pure_events.epsilon if pure_events else 0.0
    if pure >= budget.epsilon:
        raise InvalidInput(
            f"the selection alone spends epsilon {pure:g} of {budget.epsilon:g}: "
            "nothing is left for the release, lower its share"
        )
    left = budget.epsilon * (1 - REL_SLACK) - pure
    if left <= 0:
        raise InvalidInput(f"the selection leaves {left:g} of epsilon {budget.epsilon:g}: lower its share")
    return Budget(left, budget.delta)


def basic_composition(events: tuple[Event, ...], gaussian_epsilon: Callable[[float], float]) -> float:
    """Σ pure ε, plus `gaussian_epsilon` of the precision of all Gaussian events together."""
    if has_not_private_event(events):
        return math.inf
    precision = gaussian_precision(events)
    return math.fsum([*pure_epsilons(events), gaussian_epsilon(precision) if precision else 0.0])


def verify_multiplier(multiplier: float, epsilon_at: Callable[[float], float], max_epsilon: float) -> float:
    """The multiplier with some slack, raised until the accountant itself finds it within the budget."""
    multiplier *= 1 + REL_SLACK
    step = REL_SLACK
    while epsilon_at(multiplier) > max_epsilon:
        multiplier *= 1 + step
        step *= 4
    return multiplier


class GdpAccountant:
    """The default, `exact`: Gaussian events compose exactly as one Gaussian (μ-GDP), pure events are added.

    Guarantee: that of `Accountant`; tight for Gaussian events.
    """

    def epsilon(self, events: tuple[Event, ...], delta: float) -> float:
        return basic_composition(events, lambda precision: epsilon_from_mu(math.sqrt(precision), delta))

    def noise_multiplier(self, budget: Budget, rounds: int, pure_events: RepeatedEvent | None = None) -> float:
        """√T / μ(ε - Σ pure ε, δ)."""
        check_rounds(rounds)
        release, root = budget_for_gaussian(budget, pure_events), math.sqrt(rounds)
        multiplier = root / mu_from_epsilon(release.epsilon, release.delta)
        return verify_multiplier(multiplier, lambda m: epsilon_from_mu(root / m, release.delta), release.epsilon)


class RdpAccountant:
    """`rdp`: Rényi accounting on the published code's grid of orders, to reproduce its noise.

    Guarantee: that of `Accountant`; sound but loose: at ε = 1 over 20 rounds its noise really spends 0.74.
    """

    def epsilon(self, events: tuple[Event, ...], delta: float) -> float:
        return basic_composition(events, lambda precision: rdp_to_epsilon(precision, delta))

    def noise_multiplier(self, budget: Budget, rounds: int, pure_events: RepeatedEvent | None = None) -> float:
        """Bisection from a fixed bracket; the upper end of the last bracket, which `epsilon` has accepted."""
        check_rounds(rounds)
        release, root = budget_for_gaussian(budget, pure_events), math.sqrt(rounds)
        floor = rdp_to_epsilon(0.0, release.delta)
        if release.epsilon <= floor:
            raise InvalidInput(
                f"the rdp accountant cannot go below epsilon {floor:.4g} at delta {release.delta:g}, "
                f"asked for {release.epsilon:g}; use the exact accountant"
            )

        def suffices(multiplier: float) -> bool:
            return self.epsilon((GaussianEvent(multiplier / root),), release.delta) <= release.epsilon

        low, high = BRACKET_LOW, BRACKET_HIGH
        while not suffices(high):
            low, high = high, 2 * high
        while high - low > BISECTION_TOLERANCE:
            middle = (low + high) / 2
            low, high = (low, middle) if suffices(middle) else (middle, high)
        return high


def rdp_to_epsilon(precision: float, delta: float) -> float:
    """min over orders of α·precision/2 + ln(1/δ)/(α - 1) (Mironov 2017)."""
    check_delta(delta)
    log_inverse_delta = -math.log(delta)
    return min(order * precision / 2 + log_inverse_delta / (order - 1) for order in RDP_ORDERS)


class JointPldAccountant:
    """`joint`: the privacy loss distribution of equal selections and Gaussian releases, in closed form.

    Guarantee: that of `Accountant`; tight for many equal pure events besides Gaussians, where the selection
    is then nearly free.
    """

    def epsilon(self, events: tuple[Event, ...], delta: float) -> float:
        """Equal pure events are composed with the Gaussians; any others are added on top."""
        precision, pure = gaussian_precision(events), pure_epsilons(events)
        if has_not_private_event(events) or not precision or not pure:
            return GdpAccountant().epsilon(events, delta)
        (step, count), *others = Counter(pure).most_common()
        joint = _joint_epsilon(step, count, math.sqrt(precision), delta)
        rest = math.fsum(epsilon * times for epsilon, times in others)
        return min(joint + rest, GdpAccountant().epsilon(events, delta))

    def noise_multiplier(self, budget: Budget, rounds: int, pure_events: RepeatedEvent | None = None) -> float:
        """Bisection on the exact δ."""
        check_rounds(rounds)
        high = GdpAccountant().noise_multiplier(budget, rounds, pure_events)
        if pure_events is None:
            return high
        root, max_epsilon = math.sqrt(rounds), budget.epsilon * (1 - REL_SLACK)
        each, times = pure_events.event.epsilon, pure_events.times

        def suffices(multiplier: float) -> bool:
            return _joint_delta(max_epsilon, each, times, root / multiplier, budget.delta) <= budget.delta

        low = high / 2
        while suffices(low):
            low, high = low / 2, low
        multiplier = bisect_smallest(low, high, suffices)
        return verify_multiplier(multiplier, lambda m: _joint_epsilon(each, times, root / m, budget.delta), max_epsilon)


@lru_cache(maxsize=4096)  # all clients of a run have the same arguments
def _joint_epsilon(pure_epsilon: float, count: int, mu: float, delta: float) -> float:
    """The smallest ε whose joint δ is allowed, rounded up."""
    high = 1.0
    while _joint_delta(high, pure_epsilon, count, mu, delta) > delta:
        high *= 2
    if _joint_delta(0.0, pure_epsilon, count, mu, delta) <= delta:
        return 0.0
    return bisect_smallest(0.0, high, lambda epsilon: _joint_delta(epsilon, pure_epsilon, count, mu, delta) <= delta)


def _joint_delta(epsilon: float, pure_epsilon: float, count: int, mu: float, max_delta: float) -> float:
    """δ(ε) of `count` randomised responses and a Gaussian, truncated outcomes charged in full."""
    atoms, truncated = _randomised_response_losses(pure_epsilon, count, max_delta * TRUNCATED_DELTA_SHARE)
    parts = (probability * math.exp(log_delta(epsilon - loss, mu)) for loss, probability in atoms)
    return math.fsum(parts) + truncated


@lru_cache(maxsize=256)
def _randomised_response_losses(
    pure_epsilon: float, count: int, max_truncated: float
) -> tuple[tuple[tuple[float, float], ...], float]:
    """Pairs of a privacy loss of `count` randomised responses and its probability, and the truncated mass."""
    log_up = -math.log1p(math.exp(-pure_epsilon))
    log_down = log_up - pure_epsilon
    atoms, truncated = [], 0.0
    for up in range(count + 1):
        log_ways = math.lgamma(count + 1) - math.lgamma(up + 1) - math.lgamma(count - up + 1)
        probability = math.exp(log_ways + up * log_up + (count - up) * log_down)
        if probability < max_truncated / (count + 1):
            truncated += probability
        else:
            atoms.append((pure_epsilon * (2 * up - count), probability))
    return tuple(atoms), truncated


ACCOUNTANTS: dict[str, Accountant] = {"exact": GdpAccountant(), "rdp": RdpAccountant(), "joint": JointPldAccountant()}


def get_accountant(name: str) -> Accountant:
    """The accountant of this name; InvalidInput where there is none.

    >>> round(get_accountant("exact").noise_multiplier(Budget(1.0, 1e-5), rounds=20), 2)
    16.68
    """
    if name not in ACCOUNTANTS:
        raise InvalidInput(f"unknown accountant {name!r}; choose one of {', '.join(ACCOUNTANTS)}")
    return ACCOUNTANTS[name]
