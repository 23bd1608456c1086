"""A run's ledger that is paid out of the owner's: the one may end, the other never forgets."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.flower.policy import Policy
from vpdr.flower.refusals import Code, Refused
from vpdr.privacy import Adjacency, Ledger, LedgerFile, Receipt


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


def purse_of(policy: Policy, path: Path) -> LedgerFile:
    """The dataset's ledger, started or continued; another budget than it was started with is refused."""
    return LedgerFile.open_or_create(
        path,
        Ledger(
            client=policy.name,
            budget=policy.limit,
            accountant=policy.budget.accountant,
            adjacency=Adjacency(policy.budget.adjacency),
        ),
    )


def paid_from(purse: LedgerFile, ledger: Ledger) -> RunLedger:
    """The same ledger of a run, with the owner's behind it."""
    client, budget, accountant, adjacency = ledger.heading
    return RunLedger(
        client=client,
        budget=budget,
        accountant=accountant,
        adjacency=adjacency,
        entries=list(ledger.entries),
        purse=purse,
    )
