"""What a run's guarantee covers, as data and in one sentence."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from vpdr.plan.combinations import expected_level, release_encoder
from vpdr.plan.plan import Plan
from vpdr.privacy import EncoderKind, Ledger, Level, Noise
from vpdr.privacy.entries import pack_entry
from vpdr.privacy.events import pack

NOTHING = "not released"
_ENCODERS = {str(kind): f"{kind} encoder" for kind in EncoderKind} | {
    str(EncoderKind.ACCOUNTED): "personal encoder (its private training is part of the epsilon)"
}


def privacy_statement(plan: Plan, ledgers: Sequence[Ledger]) -> dict[str, Any]:
    """Adjacency, encoder, counts, accountant, events, ε and δ spent, the level, and what is not covered."""
    order = list(Level)
    paid = [entry for ledger in ledgers for entry in ledger.entries]
    released = [entry for entry in paid if entry.released]
    level = max((ledger.level for ledger in ledgers), key=order.index, default=Level.PROVED)
    worst = max((ledger.spent for ledger in ledgers), default=0.0)
    events = Counter(pack(event)["kind"] for entry in paid for event in entry.receipt.events)
    counts = _counts(released)
    statement = {
        "level": str(level if released else Level.PROVED),
        "expected_level": str(expected_level(plan)),
        "unit": "one sample of one client, against everybody else",
        "adjacency": plan.budget.adjacency,
        "encoder": str(release_encoder(plan)),
        "counts": counts,
        "accountant": plan.budget.accountant,
        "events": dict(events),
        "epsilon_budget": plan.budget.epsilon,
        "epsilon_spent": worst,
        "delta": plan.budget.delta,
        "noise": plan.release.noise,
        "releases": {ledger.client: len(ledger.releases) for ledger in ledgers},
        "training_steps": {ledger.client: ledger.steps for ledger in ledgers},
        "not_covered": _caveats(plan, level, counts),
    }
    return {"sentence": sentence(statement, bool(released)), **statement}


def sentence(statement: dict[str, Any], released: bool) -> str:
    """The statement for people."""
    if not released:
        return "nothing was released, so nothing can be learnt from it"
    if statement["level"] == Level.NONE:
        return "not private: prototypes were released as they are"
    return (
        f"({statement['epsilon_spent']:.4g}, {statement['delta']:g})-DP per client for "
        f"{statement['adjacency']}, {_ENCODERS[statement['encoder']]}, {statement['counts']} counts, "
        f"{statement['accountant']} accountant: {statement['level']}"
        f"{'' if statement['noise'] == Noise.SYSTEM else ', simulated (the noise comes from the seed)'}"
    )


def _counts(released: Sequence[Any]) -> str:
    kinds = {pack_entry(entry)["terms"]["counts"] for entry in released}
    return " and ".join(sorted(kinds)) or NOTHING


def _caveats(plan: Plan, level: Level, counts: str) -> list[str]:
    """What the numbers do not include; where there is no claim there is nothing to qualify."""
    if counts == NOTHING or level is Level.NONE:
        return []
    found = ["settings such as the clip norm may have been chosen by looking at results"]
    if plan.release.noise == Noise.SEEDED:
        found.insert(0, "the noise is reproducible from the seed: this is a simulation, not a private run")
    if release_encoder(plan) is EncoderKind.PERSONAL or level is Level.CONDITIONAL:
        found.append("the encoder was trained on the private samples between releases, without accounting")
    if "public" in counts:
        found.append("class counts and which classes a client has are treated as public")
    if level is Level.AS_PUBLISHED:
        found.append("the sensitivity of clusters is the paper's claim; counter-examples are known")
    if plan.weights.kind != "uniform":
        found.append(f"weights by {plan.weights.kind}: the sizes are declared public")
    return found


def ledger_states(ledgers: Sequence[Ledger]) -> dict[str, Any]:
    """Every client's ledger as plain data."""
    return {ledger.client: ledger.state_dict() for ledger in ledgers}
