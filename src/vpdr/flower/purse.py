"""A run's ledger that is paid out of the owner's: the one may end, the other never forgets."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.flower.policy import Policy
from vpdr.flower.refusals import Code, Refused
from vpdr.privacy import (
    Adjacency,
    Budget,
    BudgetExceeded,
    Event,
    Gaussian,
    Ledger,
    LedgerFile,
    Receipt,
)
from vpdr.privacy.accountants import Exact
from vpdr.privacy.events import pure_epsilons

HAIR = 1e-12  # of the part for selections, for the rounding of their sum


class Purse(LedgerFile):
    """The dataset's ledger, with a limit that holds against servers who choose each run's noise anew.

    Guarantee: where ε is divided, selections (pure events) together stay within the part that was set apart
    for them and Gaussian noise within the rest. Then the whole is (ε, δ)-DP for any choice of later noise
    by earlier releases: a Gaussian filter holds for the one part, and the other costs at most its factor.
    """

    def __init__(self, path: Path, parts: Budget | None = None, share: float = 0.0) -> None:
        super().__init__(path)
        self.parts, self.share = parts, share  # None: not divided

    def charge(self, receipt: Receipt, *, round: int) -> None:
        """Record the release on disk, if both parts and their sum allow it."""
        if self.parts is not None:
            self._refuse_shifting(self.parts, (*self.read().events, *receipt.events))
        super().charge(receipt, round=round)

    def _refuse_shifting(self, budget: Budget, events: tuple[Event, ...]) -> None:
        """What one part has left must not be spent on the other."""
        apart = self.share * budget.epsilon * (1 + HAIR)
        gaussian = tuple(event for event in events if isinstance(event, Gaussian))
        if math.fsum(pure_epsilons(events)) > apart:
            raise BudgetExceeded(f"{self.path}: selections have no more than epsilon {apart:g} for them")
        if Exact().epsilon(gaussian, budget.delta) > budget.epsilon - apart:
            raise BudgetExceeded(f"{self.path}: epsilon {apart:g} of the budget is for selections only")


@dataclass(slots=True, kw_only=True)
class RunLedger(Ledger):
    """What one run has released, each release also charged to the dataset's own ledger.

    Guarantee: nothing is handed over before it is in the owner's file, and the file's total never passes
    the policy's (ε, δ), however many runs there are and whatever becomes of their state.
    """

    purse: LedgerFile

    def charge(self, receipt: Receipt, *, round: int) -> None:
        """Ask the run's budget, pay from the owner's, and only then write it down."""
        self._refuse_overspending(receipt, round)
        self.purse.charge(receipt, round=round)
        Ledger.charge(self, receipt, round=round)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a run; the owner's file must know all of its releases."""
        Ledger.load_state_dict(self, state)
        if Counter(self.entries) - Counter(self.purse.read().entries):
            raise older(self.purse)


def older(purse: LedgerFile) -> Refused:
    """The refusal of a ledger that lacks what was paid."""
    return Refused(Code.LEDGER, f"{purse.path} lacks releases that were made: it is an older copy")


def purse_of(policy: Policy, path: Path) -> Purse:
    """The dataset's ledger, started or continued; another budget than it was started with is refused."""
    LedgerFile.open_or_create(
        path,
        Ledger(
            client=policy.name,
            budget=policy.limit,
            accountant=policy.budget.accountant,
            adjacency=Adjacency(policy.budget.adjacency),
        ),
    )
    return Purse(path, policy.limit if policy.budget.divided else None, policy.budget.selection)


def paid_from(purse: LedgerFile, ledger: Ledger) -> RunLedger:
    """The same ledger of a run, with the owner's behind it."""
    return RunLedger(**ledger.heading.fields(), entries=list(ledger.entries), purse=purse)
