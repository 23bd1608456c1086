"""How far a run has come on the server: all of it is saved after every round."""

import secrets
from dataclasses import dataclass, field
from typing import Any

from vpdr.engines.promises import ledger_of
from vpdr.flower.uploads import Facts
from vpdr.plan.plan import Plan
from vpdr.privacy import Ledger

SILENT: dict[str, Any] = {
    "losses": {},
    "accuracy": {"own": {}, "all": {}},
    "features": {},
    "release": {},
    "epsilon": None,
    "seconds": {},
}
"""What a record says of a client that tells nothing."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """Everything that a server needs to go on at the next message."""

    run: str = field(default_factory=lambda: secrets.token_hex(8))
    hop: int = 0  # the last message that everybody was asked
    names: tuple[str, ...] = ()
    classes: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    broadcast: dict[str, Any] = field(default_factory=dict)  # packed
    learners: list[str] = field(default_factory=list)  # who opened the last round and should close it
    rounds: list[dict[str, Any]] = field(default_factory=list)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)  # the last measurements of each client
    seconds: dict[str, float] = field(default_factory=dict)  # of each client's last release
    diary: list[dict[str, Any]] = field(default_factory=list)
    ledgers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def ledger(self, plan: Plan, name: str) -> Ledger:
        """What is known here of a client's releases."""
        if name in self.ledgers:
            return Ledger.from_state(self.ledgers[name])
        return ledger_of(plan, name)

    def hear(self, plan: Plan, name: str, facts: Facts) -> None:
        """Write down what a client told."""
        ledger = self.ledger(plan, name)
        most = plan.run.rounds * (2 if plan.train.private else 1)  # a release, and its encoder's training
        ledger.entries.extend(facts.entries[: most - len(ledger.entries)])
        self.ledgers[name] = ledger.state_dict()
        took = {"prototypes": self.seconds.get(name, 0.0), **facts.measured.get("seconds", {})}
        self.told[name] = {**SILENT, **facts.measured, "seconds": took}
        self.seconds[name] = facts.seconds  # of the round that is opened now

    def closed_round(self, heard: set[str], server_seconds: float) -> dict[str, Any]:
        """The record of the round that the last message closed."""
        clients = {name: self._client(name, name in heard) for name in self.names}
        return {"round": self.hop - 1, "clients": clients, "seconds": {"server": server_seconds}}

    def _client(self, name: str, heard: bool) -> dict[str, Any]:
        """What is said of one client; one that did nothing in this round is as it was."""
        told = self.told.get(name, SILENT)
        present = heard and name in self.learners
        losses = told["losses"] if present else {}
        return {"present": present, **told, "losses": losses}
