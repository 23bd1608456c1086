"""A client answers: policy first, then its lock, its data, its work, its ledger, and only then a reply."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from vpdr.client import Client
from vpdr.engines.build import Pattern
from vpdr.engines.simulate import Clock
from vpdr.flower.broadcasts import checked
from vpdr.flower.errand import Answer, Errand
from vpdr.flower.home import Home
from vpdr.flower.judgement import judge
from vpdr.flower.learning import learnt, measured
from vpdr.flower.policy import Policy
from vpdr.flower.purse import paid_from
from vpdr.flower.refusals import Code, Refused
from vpdr.flower.samples import at_home, fingerprint, seat_of
from vpdr.plan.plan import Plan
from vpdr.privacy import BudgetExceeded
from vpdr.privacy.entries import pack_entry
from vpdr.types import Prototypes


def greet(home: Home, plan: Plan) -> str:
    """The client's name, if it would take part in such a run; no data are touched."""
    policy = home.policy()
    judge(policy, plan)
    return policy.name


def answer(home: Home, errand: Errand) -> Answer:
    """Do one errand.

    Guarantee: whatever the server sends, what is answered was allowed by the owner's policy and paid to the
    owner's ledger before; a refusal leaves the personal model as it was. A refusal by the policy, the order
    of messages or the broadcast costs nothing; a disk that fails after the charge loses the upload only.
    """
    policy = home.policy()
    judge(policy, errand.plan)
    with home.alone():
        saved = home.load(errand.run)
        _check_order(saved, errand)
        if saved is not None and saved["hop"] == errand.hop:  # asked again after a lost reply or a restart
            return _repeated(saved["answer"], policy.allow.metrics)
        seal = fingerprint(policy.name, policy.data)
        home.purse(policy)  # first: a folder that is bound and has no ledger has lost it
        home.bind(seal)
        given, state = _work(home, policy, errand, saved)
        packed = {
            "upload": None if given.upload is None else given.upload.arrays(),
            "facts": dict(given.facts),
        }
        told = state.pop("told")
        home.save(errand.run, {**state, "identity": errand.plan.identity, "answer": packed})
        home.keep({"run": errand.run, "round": errand.hop - 1, **told})
        return given


def _check_order(saved: Mapping[str, Any] | None, errand: Errand) -> None:
    """A run goes forward, with the plan it began with."""
    if saved is None:
        return
    if saved["identity"] != errand.plan.identity:
        raise Refused(Code.OTHER_PLAN, f"run {errand.run} began with plan {saved['identity']}")
    if errand.hop < saved["hop"]:
        raise Refused(Code.ROUND_ORDER, f"message {errand.hop} after message {saved['hop']}")


@lru_cache(maxsize=1)  # calibration takes seconds for some accountants
def _pattern(plan: str, classes: int) -> Pattern:
    return Pattern.of(Plan.from_data(json.loads(plan)), classes)


def _awake(home: Home, policy: Policy, plan: Plan, saved: Mapping[str, Any] | None) -> Client:
    """The client as it went to sleep, with the owner's ledger behind its own."""
    torch.set_num_threads(plan.run.threads)
    seat, classes = seat_of(policy, plan)
    client = _pattern(json.dumps(at_home(policy, plan).to_data()), classes).client(policy.name, seat)
    client.ledger = paid_from(home.purse(policy), client.ledger)
    if saved is not None:
        client.resume(saved["client"])
    return client


def _work(
    home: Home, policy: Policy, errand: Errand, saved: Mapping[str, Any] | None
) -> tuple[Answer, dict[str, Any]]:
    """Close the last round, open this one; the state to be saved comes with the answer."""

    def awake() -> Client:
        return _awake(home, policy, errand.plan, saved)

    client, clock = awake(), Clock()
    losses: dict[str, float] = {}
    if errand.learn:
        heard = checked(client, errand.broadcast)
        with clock.phase("finetune"):
            client, losses = learnt(client, heard, errand.hop - 1, awake, home.note)
    tested = errand.plan.run.measured(errand.hop - 1)
    told = {"losses": losses, **measured(client, tested, home.note), "seconds": dict(clock.seconds)}
    upload, why = None, ""
    if errand.release:
        with clock.phase("prototypes"):
            try:
                upload = client.release(errand.hop)
            except BudgetExceeded:
                why = str(Code.BUDGET)
    facts = {
        "classes": client.habits.classes,
        "why": why,
        "entries": [pack_entry(entry) for entry in client.ledger.entries[errand.known :]],
        "measured": told,
        "seconds": clock.seconds.get("prototypes", 0.0),
    }
    state = {"hop": errand.hop, "client": client.state(), "told": told}
    return Answer(upload=upload, facts=_allowed(facts, policy.allow.metrics)), state


# what of the measurements may be told, by the owner's choice; they are computed from private data
_TOLD = {
    "nothing": {"epsilon"},
    "accuracy": {"losses", "accuracy", "epsilon", "seconds"},
    "everything": {"losses", "accuracy", "features", "release", "epsilon", "seconds"},
}


def _allowed(facts: Mapping[str, Any], metrics: str) -> dict[str, Any]:
    """The facts without what the owner keeps."""
    names = _TOLD[metrics]
    kept = {name: value for name, value in facts["measured"].items() if name in names}
    return {**facts, "measured": kept, "seconds": facts["seconds"] if "seconds" in names else 0.0}


def _repeated(packed: Mapping[str, Any], metrics: str) -> Answer:
    """The same answer once more, less what the owner has decided to keep since."""
    upload = packed["upload"]
    return Answer(
        upload=None if upload is None else Prototypes.from_arrays(upload),
        facts=_allowed(packed["facts"], metrics),
    )
