"""From a wish or a run's folder to what is audited, and what it claims."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.audits.claims import Claim
from vpdr.audits.costs import costs, same_events
from vpdr.audits.subject import Subject
from vpdr.errors import InvalidInput
from vpdr.plan.plan import Plan
from vpdr.plan.sources import read_builtin, read_source
from vpdr.plan.values import merged, wished
from vpdr.privacy import Adjacency, EncoderKind, Ledger, LedgerFile

LARGEST_DIM = 64  # an audit of a run is made in at most so many dimensions, unless it is told otherwise

# The data are planted, so a small model and few classes are enough; training needs more samples to be felt.
_SMALL: dict[str, Any] = {
    "benchmark": {"kind": "synthetic", "clients": 1, "per_domain": 1, "skew": "domain"},
    "participation": {"fraction": 1.0, "dropout": 0.0, "schedule": {}},
    "run": {"name": "audit", "threads": 1},
}
_SIZES = {"classes": 2, "samples": 80}
_SIZES_TO_LEARN_FROM = {"classes": 2, "samples": 768}
_RULES = {True: ("means", "sums"), False: ("sums",)}  # by whether counts are public
_TINY = {"dim": 16, "width": 8, "hidden": 8, "dropout": 0.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What the command line can say about a mechanism."""

    mechanism: str = "igpp"
    epsilon: float = 1.0
    delta: float = 1e-5
    rounds: int = 20
    summariser: str | None = None  # class means, or sums where counts are private
    encoder: str = EncoderKind.PUBLIC
    adjacency: str = Adjacency.REPLACE_SAME_LABEL
    settings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A subject, and its claim where it was made before."""

    subject: Subject
    claim: Claim | None = None


def from_wish(wish: Wish) -> Request:
    """A client that releases as the options say; without a rule, by the first that its mechanism takes."""
    rules = [wish.summariser] if wish.summariser else _RULES[wish.adjacency == Adjacency.REPLACE_SAME_LABEL]
    refusals: list[InvalidInput] = []
    for rule in rules:
        try:
            return Request(Subject.of(_plan(wish, rule)))
        except InvalidInput as refusal:
            refusals.append(refusal)
    raise refusals[0]


def _plan(wish: Wish, rule: str) -> Plan:
    asked = {
        "mechanism": {"kind": wish.mechanism},
        "budget": {"epsilon": wish.epsilon, "delta": wish.delta, "adjacency": wish.adjacency},
        "run": {"rounds": wish.rounds},
        "release": {"encoder": wish.encoder, "summariser": rule},
        "model": _TINY,
    }
    data = merged(merged(read_builtin("presets", "paper"), _small(wish.encoder)), asked)
    return Plan.from_data(merged(data, wished(wish.settings)))


def from_run(folder: Path, settings: Sequence[str] = ()) -> Request:
    """The client of a finished run, on planted data, with the claim of the ledger that spent the most."""
    source = folder / "plan.toml"
    if not source.is_file():
        raise InvalidInput(f"{folder} holds no run: expected a plan.toml; give the folder of a finished run")
    plan = read_source(str(source))
    ledgers = [LedgerFile(path).read() for path in sorted((folder / "ledgers").glob("*.json"))]
    if not any(ledger.releases for ledger in ledgers):
        raise InvalidInput(f"the ledgers in {folder} hold no release: there is nothing to audit")
    worst = max(ledgers, key=_weight)
    encoder = str(worst.releases[-1].receipt.terms.encoder)
    dim = min(int(plan["model"]["dim"]), LARGEST_DIM)
    data = merged(merged(plan, _small(encoder)), {"model": {"dim": dim}})
    made = Plan.from_data(merged(data, wished(settings)))
    subject = Subject.of(made, len(worst.releases))
    charged = [event for entry in worst.releases for event in entry.receipt.events]
    if not same_events(costs(subject), charged):
        raise InvalidInput(
            f"{folder} cannot be audited: a replay of its plan would not be charged what the ledger of "
            f"{worst.client} was (a crash makes clients begin again; --set changes plans); audit another run"
        )
    return Request(subject, Claim.of(worst, made.budget.delta))


def _weight(ledger: Ledger) -> tuple[float, int]:
    spent = ledger.spent if ledger.entries else 0.0
    return (spent if math.isfinite(spent) else math.inf), len(ledger.entries)


def _small(encoder: str) -> dict[str, Any]:
    sizes = _SIZES_TO_LEARN_FROM if EncoderKind(encoder).trained else _SIZES
    return merged(_SMALL, {"benchmark": sizes})


def described(subject: Subject) -> dict[str, Any]:
    """What was audited, in names."""
    plan, promise = subject.plan, subject.client.promise
    return {
        "mechanism": plan.mechanism.kind,
        "summariser": type(promise.summarise).__name__,
        "framework": plan.framework.kind,
        "encoder": str(promise.encoder),
        "adjacency": str(subject.adjacency),
        "releases": subject.releases,
        "dim": subject.dim,
        "classes": subject.classes,
        "samples": plan.benchmark.samples,
        "settings": dataclasses.asdict(plan.mechanism),
    }
