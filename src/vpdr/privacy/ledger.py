"""Every release of one client is written down here, and the total may not pass the budget."""

import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vpdr.errors import InvalidInput, VpdrError
from vpdr.privacy.accountants import Accountant, accountant_named
from vpdr.privacy.budget import Budget
from vpdr.privacy.entries import Entry, pack_entry, unpack_entry
from vpdr.privacy.events import Event
from vpdr.privacy.heading import Heading
from vpdr.privacy.terms import Adjacency, Level, Receipt, member


class BudgetExceeded(VpdrError, RuntimeError):
    """Raised before anything is handed over, so the release that would break the budget never leaves."""


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What one client has released, and what its budget still allows.

    Guarantee: after any sequence of `charge` calls that returned, the accountant's ε of all recorded
    events at the budget's δ is at most the budget's ε. A refused charge changes nothing.
    """

    client: str
    budget: Budget | None  # None: a run without privacy; releases are recorded, not limited
    accountant: str = "exact"
    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL
    entries: list[Entry] = field(default_factory=list)

    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __post_init__(self) -> None:
        accountant_named(self.accountant)
        self.adjacency = member(Adjacency, self.adjacency)

    def charge(self, receipt: Receipt, *, round: int) -> None:
        """Record the release, or refuse it; only after this returns may anything be handed over."""
        if receipt.terms.adjacency is not self.adjacency:
            raise InvalidInput(
                f"the ledger of {self.client} counts under {self.adjacency}, the release is stated under "
                f"{receipt.terms.adjacency}: costs under different adjacencies do not add up"
            )
        with self._one_at_a_time:
            self._refuse_unpaid_training(receipt)
            self._refuse_overspending(receipt, round)
            self.entries.append(Entry(round, receipt))

    def _refuse_unpaid_training(self, receipt: Receipt) -> None:
        if receipt.relies_on_training and not self.steps:
            raise InvalidInput(
                f"{self.client}: no training of the encoder is in this ledger; charge it before the release"
            )

    def _refuse_overspending(self, receipt: Receipt, round: int) -> None:
        if self.budget is None:
            return
        total = self._by.epsilon((*self.events, *receipt.events), self.budget.delta)
        if total > self.budget.epsilon:
            raise BudgetExceeded(
                f"{self.client}: epsilon would reach {total:.6g} in round {round}, "
                f"the budget is {self.budget.epsilon:g}; nothing was released"
            )

    @property
    def heading(self) -> Heading:
        """What this ledger is about."""
        return Heading(self.client, self.budget, self.accountant, self.adjacency)

    @property
    def events(self) -> tuple[Event, ...]:
        """All that was released, in order."""
        return tuple(event for entry in self.entries for event in entry.receipt.events)

    @property
    def releases(self) -> list[Entry]:
        """The entries for which something left the client."""
        return [entry for entry in self.entries if entry.released]

    @property
    def steps(self) -> int:
        """How many steps of private training are paid for."""
        return sum(len(each.receipt.events) for each in self.entries if not each.released)

    @property
    def spent(self) -> float:
        """ε so far, at the budget's δ."""
        return self._epsilon(self.events)

    @property
    def left(self) -> float:
        """ε of the budget that is not spent; without a budget there is no limit."""
        return math.inf if self.budget is None else self.budget.epsilon - self.spent

    @property
    def level(self) -> Level:
        """The weakest guarantee of any recorded release."""
        order = list(Level)
        return max((entry.receipt.level for entry in self.entries), key=order.index, default=Level.PROVED)

    def history(self) -> Iterator[tuple[Entry, float]]:
        """Each release with the ε spent up to and including it."""
        events: tuple[Event, ...] = ()
        for entry in self.entries:
            events = (*events, *entry.receipt.events)
            yield entry, self._epsilon(events)

    def releases_left(self, limit: int = 10_000) -> int | None:
        """How many more releases like the last one fit; None where nothing limits them."""
        if self.budget is None or not self.releases or not self.releases[-1].receipt.events:
            return None
        last, delta = self.releases[-1].receipt.events, self.budget.delta
        low, high = 0, 1
        while high <= limit and self._by.epsilon((*self.events, *last * high), delta) <= self.budget.epsilon:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._by.epsilon((*self.events, *last * middle), delta) <= self.budget.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low

    def state_dict(self) -> dict[str, Any]:
        """The ledger as plain data."""
        budget = self.budget and {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        return {
            "client": self.client,
            "budget": budget,
            "accountant": self.accountant,
            "adjacency": str(self.adjacency),
            "entries": [pack_entry(entry) for entry in self.entries],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; a state that would make the ledger forget a release is refused."""
        saved = Ledger.from_state(state)
        if saved.heading != self.heading:
            raise InvalidInput(
                f"the saved ledger belongs to client {saved.client} with {saved.heading.terms}, "
                f"this one to {self.client} with {self.heading.terms}: budgets cannot be exchanged"
            )
        if saved.entries[: len(self.entries)] != self.entries:
            raise InvalidInput(
                f"the saved ledger of {self.client} lacks releases that were already made "
                f"({len(saved.entries)} saved, {len(self.entries)} made): a ledger never forgets"
            )
        self.entries = saved.entries

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Ledger":
        """The inverse of `state_dict`; anything that does not fit is refused."""
        try:
            return cls(
                client=str(state["client"]),
                budget=None if state["budget"] is None else Budget(**state["budget"]),
                accountant=state["accountant"],
                adjacency=Adjacency(state["adjacency"]),
                entries=[unpack_entry(entry) for entry in state["entries"]],
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InvalidInput(f"not the contents of a ledger: {error}") from error

    @property
    def _by(self) -> Accountant:
        return accountant_named(self.accountant)

    def _epsilon(self, events: tuple[Event, ...]) -> float:
        if self.budget is None:
            return math.inf if events else 0.0  # without a δ there is nothing to count at
        return self._by.epsilon(events, self.budget.delta)
