"""Training is paid for before it happens, out of its own share, and nothing claims more than was paid."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest

from tests.unit.federation.test_run_repeatability import record_of
from tests.unit.mechanisms.dpsgd_cases import client_and_broadcast, encoder_parameters, private, seeded
from vpdr.client import ReleaseConfig
from vpdr.federation import build, run_federation, simulate
from vpdr.mechanisms.dpsgd import DpSgdConfig
from vpdr.privacy import (
    ACCOUNTANTS,
    Adjacency,
    Budget,
    ChargePurpose,
    EncoderKind,
    GaussianEvent,
    GuaranteeLevel,
    Ledger,
    LedgerFile,
    Receipt,
)
from vpdr.privacy.guarantee import Arithmetic, CountVisibility, GuaranteeTerms, SensitivityBasis
from vpdr.privacy.ledger import entry_from_dict, entry_to_dict
from vpdr.validation import InvalidInput

TERMS = GuaranteeTerms(
    adjacency=Adjacency.REPLACE_SAME_LABEL,
    encoder=EncoderKind.DP_TRAINED,
    counts=CountVisibility.PUBLIC,
    basis=SensitivityBasis.PROVED,
    arithmetic=Arithmetic.INTEGER,
)
RELEASE = Receipt(events=(GaussianEvent(10.0),), terms=TERMS)
TRAINING = DpSgdConfig(
    clip_norm=1, noise_multiplier=10.0, steps_per_round=2, total_steps=4, expected_batch_size=1
).round_receipt(seeded())


def make_ledger(epsilon: float = 8.0) -> Ledger:
    return Ledger(client="a", budget=Budget(epsilon, 1e-5))


def test_a_release_cannot_rely_on_training_that_is_not_in_its_ledger() -> None:
    ledger = make_ledger()
    with pytest.raises(InvalidInput, match="no training of the encoder is in this ledger"):
        ledger.charge(RELEASE, round=1)
    assert not ledger.entries
    ledger.charge(TRAINING, round=1)
    ledger.charge(RELEASE, round=2)
    assert (len(ledger.releases), ledger.training_steps, ledger.level) == (1, 2, GuaranteeLevel.PROVED)


def test_purposes_survive_files_and_older_ledgers_hold_releases(tmp_path: Path) -> None:
    ledger = make_ledger()
    ledger.charge(TRAINING, round=1)
    ledger.charge(RELEASE, round=2)
    file = LedgerFile.create(tmp_path / "a.json", ledger)
    assert file.read() == ledger
    old = entry_to_dict(ledger.entries[1])
    old.pop("purpose")
    assert entry_from_dict(old).receipt.purpose is ChargePurpose.RELEASE
    with pytest.raises(InvalidInput):
        entry_from_dict({**old, "purpose": "gift"})


@pytest.mark.parametrize("encoder", list(EncoderKind))
def test_a_dp_trained_encoder_requires_private_training_and_the_reverse(encoder) -> None:
    release_config = build(private()).clients[0].release_config
    fields = {each.name: getattr(release_config, each.name) for each in dataclasses.fields(ReleaseConfig)}
    training = None if encoder is EncoderKind.DP_TRAINED else release_config.dpsgd_config
    with pytest.raises(InvalidInput, match="accounted"):
        ReleaseConfig(**{**fields, "encoder_kind": encoder, "dpsgd_config": training})


def test_training_is_charged_before_the_first_step() -> None:
    client, broadcast = client_and_broadcast(private())
    charged = []

    def watched(*arguments, original=client.dpsgd_trainer.clipped_gradient_sum):
        charged.append(client.ledger.training_steps)
        return original(*arguments)

    client.dpsgd_trainer.clipped_gradient_sum = watched
    client.finetune(broadcast, 1)
    assert charged == [2, 2]


def test_a_crash_in_training_returns_no_budget() -> None:
    client, broadcast = client_and_broadcast(private())
    client.dpsgd_trainer.clipped_gradient_sum = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        client.finetune(broadcast, 1)
    assert client.ledger.training_steps == 2
    assert client.dpsgd_trainer.steps_taken == 0


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("mechanism", ["igpp", "vpp"])
def test_everything_planned_fits_into_the_budget(accountant, mechanism) -> None:
    config = private(
        f"budget.accountant={accountant}", f"mechanism.kind={mechanism}", "budget.epsilon=2", "run.rounds=4"
    )
    record = record_of(config)
    for ledger in record.ledgers.values():
        kinds = [entry["purpose"] for entry in ledger["entries"]]
        assert kinds == [*["release", "training"] * 3, "release"]
    assert 1.9 < record.privacy.epsilon_spent <= 2
    assert record.privacy.level == "proved"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_training_share_is_a_share_of_the_precision(share) -> None:
    client = build(private(f"train.private_share={share}", "run.rounds=5")).clients[0]
    training = 8 / client.release_config.dpsgd_config.noise_multiplier**2  # a release follows in four of five rounds
    release = 5 / client.release_config.mechanism.noise_multiplier**2
    assert training / (training + release) == pytest.approx(share)


def test_a_spent_budget_stops_the_training_of_the_encoder_only() -> None:
    client, broadcast = client_and_broadcast(private())
    client.ledger.budget = Budget(client.ledger.epsilon_spent * 1.0001, 1e-5)
    before, head = encoder_parameters(client), client.model.head[0].weight.clone()
    client.finetune(broadcast, 1)
    assert bool((encoder_parameters(client) == before).all())
    assert not bool((client.model.head[0].weight == head).all())
    assert client.ledger.training_steps == 0
    assert client.release(2) is client.last_upload


def test_lost_steps_are_not_charged_to_the_share_of_releases() -> None:
    config = private("run.rounds=4")
    federation = build(config)
    lost = federation.clients[0]
    lost.ledger.charge(
        lost.release_config.dpsgd_config.round_receipt(seeded()), round=1
    )  # paid, and then the power went
    simulate(federation)
    assert (lost.ledger.training_steps, lost.dpsgd_trainer.steps_taken) == (6, 4)
    assert len(lost.ledger.releases) == 4
    assert lost.ledger.level is GuaranteeLevel.PROVED


def test_a_step_that_was_not_charged_makes_the_level_conditional() -> None:
    client, broadcast = client_and_broadcast(private())
    losses = partial(client.framework.losses, broadcast=broadcast)
    elsewhere = Ledger(client="elsewhere", budget=None)
    client.dpsgd_trainer.train_round(
        client.shard.train.frozen_features, client.shard.train.labels, losses, seeded(), elsewhere, 1
    )
    client.release(2)
    assert client.ledger.releases[-1].receipt.terms.encoder is EncoderKind.PERSONAL
    assert client.ledger.level is GuaranteeLevel.CONDITIONAL


def test_training_with_system_noise_is_charged_on_disk(tmp_path: Path) -> None:
    config = private("release.noise=system")
    run_federation(config, tmp_path)
    ledger = LedgerFile(tmp_path / "ledgers" / "client-000.json").read()
    assert (len(ledger.releases), ledger.training_steps) == (3, 4)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["privacy"]["level"] == "proved"
    assert "simulated" not in record["privacy"]["sentence"]
    assert "its private training is part of the epsilon" in record["privacy"]["sentence"]
    assert record["privacy"]["training_steps"] == {f"client-00{n}": 4 for n in range(3)}


@pytest.mark.parametrize(
    "settings",
    [("run.rounds=3",), ("run.rounds=6", "release.count=3"), ("run.rounds=6", "release.count=2", "train.epochs=3")],
)
def test_nothing_is_spent_after_the_last_release(settings) -> None:
    """40 % of the precision was once spent on steps that no release follows: five releases in twenty rounds."""
    config = private(*settings)
    federation = build(config)
    simulate(federation)
    for client in federation.clients:
        entries = client.ledger.entries
        assert [entry.is_release for entry in entries] == [*[True, False] * (config.releases - 1), True]
        assert client.ledger.epsilon_spent > 0.99 * config.budget.epsilon


def test_a_client_that_was_away_trains_as_long_as_a_release_follows() -> None:
    config = private("run.rounds=6", "release.count=3", "participation.schedule={client-001=[2,4,5,6]}")
    federation = build(config)
    simulate(federation)
    away = next(client for client in federation.clients if client.id == "client-001")
    assert [entry.round for entry in away.ledger.entries] == [2, 2, 4, 4, 5]


def test_one_release_is_not_worth_private_training() -> None:
    with pytest.raises(InvalidInput, match="at least two releases"):
        private("release.count=1")
