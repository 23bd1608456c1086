"""What a ledger is about: whose it is, what it may spend, and how that is counted."""

from typing import Any, NamedTuple

from vpdr.privacy.budget import Budget
from vpdr.privacy.terms import Adjacency


class Heading(NamedTuple):
    """It never changes: ledgers with another heading are not the same ledger."""

    client: str
    budget: Budget | None
    accountant: str
    adjacency: Adjacency

    @property
    def terms(self) -> str:
        """All but the name, in a few words."""
        budget = self.budget
        amount = "no budget" if budget is None else f"epsilon {budget.epsilon:g}, delta {budget.delta:g}"
        return f"{amount}, {self.accountant} accountant, {self.adjacency}"

    def fields(self) -> dict[str, Any]:
        """The same heading for another kind of ledger."""
        return self._asdict()
