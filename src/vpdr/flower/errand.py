"""What a server asks of a client in one message, and what the client answers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.flower.refusals import Code, Refused
from vpdr.plan.plan import Plan
from vpdr.types import Prototypes

_TOKEN = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Errand:
    """One message to one client: first learn from the last round's broadcast, then release for this round.

    Message `hop` closes round hop - 1 and opens round hop, so a run of T rounds is T + 1 messages.
    """

    run: str  # a run's name, the same after a server was restarted
    hop: int
    plan: Plan
    learn: bool = False
    release: bool = False
    known: int = 0  # releases that the server has receipts of
    broadcast: Mapping[str, Tensor] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """All but the arrays, as plain data."""
        return {
            "run": self.run,
            "hop": self.hop,
            "plan": self.plan.to_data(),
            "learn": self.learn,
            "release": self.release,
            "known": self.known,
        }

    @classmethod
    def from_data(cls, data: Any, broadcast: Mapping[str, Tensor]) -> "Errand":
        """What a server sent, if it makes sense; a client trusts none of it."""
        try:
            plan = Plan.from_data(data["plan"])
            run, hop, known = data["run"], data["hop"], data["known"]
            learn, release = data["learn"], data["release"]
        except (InvalidInput, KeyError, TypeError, ValueError) as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from error
        numbers = type(hop) is int and type(known) is int and known >= 0
        if not numbers or not isinstance(run, str) or not _TOKEN.fullmatch(run):
            raise Refused(Code.BAD_REQUEST, f"run {run!r}, hop {hop!r}, known {known!r}")
        errand = cls(
            run=run, hop=hop, plan=plan, learn=learn is True, release=release is True,
            known=known, broadcast=broadcast,
        )  # fmt: skip
        if not errand.possible:
            raise Refused(Code.BAD_REQUEST, f"hop {hop} of {plan.run.rounds} rounds")
        return errand

    @property
    def possible(self) -> bool:
        """Whether the plan has such a message: nothing to learn in the first, nothing to send in the last."""
        last = self.plan.run.rounds + 1
        return (1 + self.learn) <= self.hop <= (last - self.release)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What goes back: an upload that was paid for, and facts from a list of names that may be told."""

    upload: Prototypes | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
