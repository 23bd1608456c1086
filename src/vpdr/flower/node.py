"""A client answers: policy first, then its lock, its data, its work, its ledger, and only then a reply."""

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from vpdr.client import Client
from vpdr.engines.build import Pattern
from vpdr.engines.simulate import Clock, measures
from vpdr.flower.errand import Answer, Errand
from vpdr.flower.home import Home
from vpdr.flower.judgement import judge
from vpdr.flower.policy import Policy
from vpdr.flower.purse import paid_from
from vpdr.flower.refusals import Code, Refused
from vpdr.flower.samples import at_home, fingerprint, seat_of
from vpdr.plan.plan import Plan
from vpdr.privacy import BudgetExceeded
from vpdr.privacy.entries import pack_entry
from vpdr.types import Prototypes

MOST = 1e6  # of a coordinate that a client would be drawn to


def greet(home: Home, plan: Plan) -> str:
    """The client's name, if it would take part in such a run; no data are touched."""
    policy = home.policy()
    judge(policy, plan)
    return policy.name


def answer(home: Home, errand: Errand) -> Answer:
    """Do one errand.

    Guarantee: whatever the server sends, what is answered was allowed by the owner's policy and paid to the
    owner's ledger before; a refusal leaves the ledger and the personal model as they were.
    """
    policy = home.policy()
    judge(policy, errand.plan)
    with home.alone():
        saved = home.load(errand.run)
        _check_order(saved, errand)
        if saved is not None and saved["hop"] == errand.hop:  # asked again after a lost reply or a restart
            return _unpacked(saved["answer"])
        home.bind(fingerprint(policy.name, policy.data))
        client = _awake(home, policy, errand.plan, saved)
        given, state = _work(client, errand, policy)
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
    client = _pattern(json.dumps(at_home(policy.data, plan).to_data()), classes).client(policy.name, seat)
    client.ledger = paid_from(home.purse(policy), client.ledger)
    if saved is not None:
        client.resume(saved["client"])
        client.diagnosis = dict(saved["diagnosis"])
    return client


def _work(client: Client, errand: Errand, policy: Policy) -> tuple[Answer, dict[str, Any]]:
    """Close the last round, open this one; the state to be saved comes with the answer."""
    clock, losses = Clock(), {}
    if errand.learn:
        heard = _checked(client, errand.broadcast)
        with clock.phase("finetune"):
            losses = dict(client.finetune(heard, errand.hop - 1))
        _check_health(client, losses)
    told = {"losses": losses, **measures(client), "seconds": dict(clock.seconds)}
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
        "measured": _SHARED[policy.allow.metrics](told),
        "seconds": clock.seconds.get("prototypes", 0.0) if policy.allow.metrics != "nothing" else 0.0,
    }
    state = {"hop": errand.hop, "client": client.state(), "diagnosis": dict(client.diagnosis), "told": told}
    return Answer(upload=upload, facts=facts), state


def _checked(client: Client, arrays: Mapping[str, Tensor]) -> Any:
    """The broadcast, if it can be one: finite, anchors of known classes and of the right dimension."""
    try:
        if not all(bool(torch.isfinite(array).all()) for array in arrays.values()):
            raise Refused(Code.BROADCAST, "numbers that are not finite")
        heard = client.framework.unpack(arrays)
        anchors = client.framework.anchors(heard)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise Refused(Code.BROADCAST, str(error)) from error
    if anchors is not None and not _plausible(anchors, client):
        raise Refused(Code.BROADCAST, "anchors of unknown classes or of another dimension")
    return heard


def _check_health(client: Client, losses: Mapping[str, float]) -> None:
    """Finite numbers can still be so large that a model breaks on them; then it stays as it was."""
    if not all(math.isfinite(value) for value in losses.values()):
        raise Refused(Code.BROADCAST, "the losses are not finite")
    for part in (client.model.encoder, client.model.head):
        if not all(bool(torch.isfinite(values).all()) for values in part.state_dict().values()):
            raise Refused(Code.BROADCAST, "the model did not survive it")


def _plausible(anchors: Prototypes, client: Client) -> bool:
    width, labels = client.shard.train.public.shape[1], anchors.labels
    if anchors.vectors.ndim != 2 or labels.ndim != 1 or anchors.vectors.shape != (len(labels), width):
        return False
    if float(anchors.vectors.abs().max() if len(labels) else 0) > MOST:
        return False
    return not len(labels) or (int(labels.min()) >= 0 and int(labels.max()) < client.habits.classes)


def _accuracy(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in ("losses", "accuracy", "epsilon", "seconds")}


# what of the measurements may be told, by the owner's choice; they are computed from private data
_SHARED: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "nothing": lambda told: {"epsilon": told["epsilon"]},
    "accuracy": _accuracy,
    "everything": dict,
}


def _unpacked(packed: Mapping[str, Any]) -> Answer:
    upload = packed["upload"]
    return Answer(upload=None if upload is None else Prototypes.from_arrays(upload), facts=packed["facts"])
