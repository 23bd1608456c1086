"""Training is paid for before it happens, out of its own share, and nothing claims more than was paid."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest

from tests.dpsgd.private_cases import answered, encoder_of, private, seeded
from tests.engines.test_repeatability import record_of
from vpdr.client import Promise
from vpdr.engines.build import build
from vpdr.engines.runner import run_plan
from vpdr.engines.simulate import simulate
from vpdr.errors import InvalidInput
from vpdr.mechanisms.gradients import PrivateSteps
from vpdr.privacy import (
    ACCOUNTANTS,
    Adjacency,
    Basis,
    Budget,
    Counts,
    EncoderKind,
    Gaussian,
    Ledger,
    LedgerFile,
    Level,
    Purpose,
    Receipt,
    Terms,
)
from vpdr.privacy.entries import pack_entry, unpack_entry

TERMS = Terms(
    adjacency=Adjacency.REPLACE_SAME_LABEL,
    encoder=EncoderKind.ACCOUNTED,
    counts=Counts.PUBLIC,
    basis=Basis.PROVED,
)
RELEASE = Receipt(events=(Gaussian(10.0),), terms=TERMS)
TRAINING = PrivateSteps(clip_norm=1, multiplier=10.0, per_round=2, planned=4, divisor=1).receipt(seeded())


def book(epsilon: float = 8.0) -> Ledger:
    return Ledger(client="a", budget=Budget(epsilon, 1e-5))


def test_a_release_cannot_rely_on_training_that_is_not_in_its_ledger() -> None:
    ledger = book()
    with pytest.raises(InvalidInput, match="no training of the encoder is in this ledger"):
        ledger.charge(RELEASE, round=1)
    assert not ledger.entries
    ledger.charge(TRAINING, round=1)
    ledger.charge(RELEASE, round=2)
    assert (len(ledger.releases), ledger.steps, ledger.level) == (1, 2, Level.PROVED)


def test_purposes_survive_files_and_older_ledgers_hold_releases(tmp_path: Path) -> None:
    ledger = book()
    ledger.charge(TRAINING, round=1)
    ledger.charge(RELEASE, round=2)
    file = LedgerFile.create(tmp_path / "a.json", ledger)
    assert file.read() == ledger
    old = pack_entry(ledger.entries[1])
    old.pop("purpose")
    assert unpack_entry(old).receipt.purpose is Purpose.RELEASE
    with pytest.raises(InvalidInput):
        unpack_entry({**old, "purpose": "gift"})


@pytest.mark.parametrize("encoder", list(EncoderKind))
def test_an_accounted_encoder_and_private_training_go_together(encoder) -> None:
    promise = build(private()).clients[0].promise
    fields = {each.name: getattr(promise, each.name) for each in dataclasses.fields(Promise)}
    training = None if encoder is EncoderKind.ACCOUNTED else promise.training
    with pytest.raises(InvalidInput, match="accounted"):
        Promise(**{**fields, "encoder": encoder, "training": training})


def test_training_is_charged_before_the_first_step() -> None:
    client, broadcast = answered(private())
    seen = []

    def watched(*given, original=client.trainer.summed):
        seen.append(client.ledger.steps)
        return original(*given)

    client.trainer.summed = watched
    client.finetune(broadcast, 1)
    assert seen == [2, 2]


def test_a_crash_in_training_gives_nothing_back() -> None:
    client, broadcast = answered(private())
    client.trainer.summed = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        client.finetune(broadcast, 1)
    assert client.ledger.steps == 2
    assert client.trainer.steps == 0


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("mechanism", ["igpp", "vpp"])
def test_everything_planned_fits_into_the_budget(accountant, mechanism) -> None:
    plan = private(
        f"budget.accountant={accountant}", f"mechanism.kind={mechanism}", "budget.epsilon=2", "run.rounds=4"
    )
    record = record_of(plan)
    for ledger in record["ledgers"].values():
        kinds = [entry["purpose"] for entry in ledger["entries"]]
        assert kinds == ["release", "training"] * 4
    assert 1.9 < record["privacy"]["epsilon_spent"] <= 2
    assert record["privacy"]["level"] == "proved"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_is_one_of_precision(share) -> None:
    client = build(private(f"train.private_share={share}", "run.rounds=5")).clients[0]
    training = 10 / client.promise.training.multiplier**2
    release = 5 / client.promise.mechanism.noise_multiplier**2
    assert training / (training + release) == pytest.approx(share)


def test_a_spent_budget_stops_the_encoder_and_nothing_else() -> None:
    client, broadcast = answered(private())
    client.ledger.budget = Budget(client.ledger.spent * 1.0001, 1e-5)
    before, head = encoder_of(client), client.model.head[0].weight.clone()
    client.finetune(broadcast, 1)
    assert bool((encoder_of(client) == before).all())
    assert not bool((client.model.head[0].weight == head).all())
    assert client.ledger.steps == 0
    assert client.release(2) is client.sent


def test_steps_that_were_lost_are_not_paid_from_the_share_of_releases() -> None:
    plan = private("run.rounds=4")
    federation = build(plan)
    lost = federation.clients[0]
    lost.ledger.charge(lost.promise.training.receipt(seeded()), round=1)  # paid, and then the power went
    simulate(federation)
    assert (lost.ledger.steps, lost.trainer.steps) == (8, 6)
    assert len(lost.ledger.releases) == 4
    assert lost.ledger.level is Level.PROVED


def test_a_step_that_was_not_paid_costs_the_proof() -> None:
    client, broadcast = answered(private())
    losses = partial(client.framework.losses, broadcast=broadcast)
    elsewhere = Ledger(client="elsewhere", budget=None)
    client.trainer.learn(client.shard.train, losses, seeded(), elsewhere, 1)
    client.release(2)
    assert client.ledger.releases[-1].receipt.terms.encoder is EncoderKind.PERSONAL
    assert client.ledger.level is Level.CONDITIONAL


def test_real_noise_is_paid_on_disk(tmp_path: Path) -> None:
    plan = private("release.noise=system")
    run_plan(plan, tmp_path)
    ledger = LedgerFile(tmp_path / "ledgers" / "client-000.json").read()
    assert (len(ledger.releases), ledger.steps) == (3, 6)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["privacy"]["level"] == "proved"
    assert "simulated" not in record["privacy"]["sentence"]
    assert "its private training is part of the epsilon" in record["privacy"]["sentence"]
    assert record["privacy"]["training_steps"] == {f"client-00{n}": 6 for n in range(3)}
