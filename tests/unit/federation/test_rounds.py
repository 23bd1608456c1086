"""Whole runs on tiny data: every framework, every mechanism, every odd client."""

import dataclasses

import pytest
import torch

from tests.unit.federation.conftest import tiny
from vpdr.client import Shard
from vpdr.config import RunConfig
from vpdr.federation.builder import ClientSetups, build, load_clients
from vpdr.federation.rounds import simulate
from vpdr.frameworks import FRAMEWORKS
from vpdr.privacy import GuaranteeLevel
from vpdr.records import finished_record
from vpdr.types import Prototypes


def final(config: RunConfig, federation=None) -> dict:
    federation = federation or build(config)
    state = simulate(federation)
    return finished_record(config, state.round_records, [client.ledger for client in federation.clients], 0.0)


@pytest.mark.parametrize("regulariser", ["none", "dcr"])
@pytest.mark.parametrize("mechanism", ["none", "igpp", "vpp"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_combination_of_plug_ins_runs(framework, mechanism, regulariser) -> None:
    config = tiny(f"framework.kind={framework}", f"mechanism.kind={mechanism}", f"regulariser.kind={regulariser}")
    record = final(config)
    assert len(record.rounds) == 3
    for each in record.rounds:
        for client in each.clients.values():
            assert all(torch.isfinite(torch.tensor(value)) for value in client.losses.values())
            assert 0 <= client.accuracy["all"]["framework"] <= 1
            assert client.features.keys() >= {"norm_q50", "share_above_clip_norm", "teacher_gap"}
    released = FRAMEWORKS[framework]().has_uploads
    assert all(len(ledger["entries"]) == 3 * released for ledger in record.ledgers.values())
    if released:
        spent = record.rounds[-1].clients["client-000"].epsilon
        assert spent is None if mechanism == "none" else 0.999 < spent <= 1


def test_without_privacy_training_reaches_high_accuracy() -> None:
    config = tiny("mechanism.kind=none", "run.rounds=8", "benchmark.samples=80", "train.lr=0.01")
    accuracy = final(config).final["all"]
    assert accuracy["framework"].average > 0.9
    assert accuracy["nearest"].average > 0.9


def test_evaluating_less_often_changes_no_other_result() -> None:
    often, seldom = (final(tiny("run.rounds=5", f"run.measure_every={k}")) for k in (1, 3))
    tested = [each.round for each in seldom.rounds if each.clients["client-000"].accuracy["all"]]
    assert tested == [1, 3, 5]
    for one, other in zip(often.rounds, seldom.rounds, strict=True):
        for name, client in other.clients.items():
            same = one.clients[name]
            assert (client.losses, client.release) == (same.losses, same.release)
            assert client.epsilon == same.epsilon
            if other.round in tested:
                assert (client.accuracy, client.features) == (same.accuracy, same.features)
    assert often.final == seldom.final


def odd_clients(*args, **kwargs) -> ClientSetups:
    """One client with one class, one with one sample, one without any."""
    setups = load_clients(*args, **kwargs)
    names = list(setups.clients)

    def cut(name: str, rows: torch.Tensor):
        setup = setups.clients[name]
        return dataclasses.replace(setup, shard=Shard(setup.shard.train.take(rows), setup.shard.test))

    first = setups.clients[names[0]].shard.train.labels
    clients = {
        names[0]: cut(names[0], (first == 1).nonzero()[:, 0]),
        names[1]: cut(names[1], torch.tensor([0])),
        names[2]: cut(names[2], torch.zeros(0, dtype=torch.int64)),
    }
    return dataclasses.replace(setups, clients=clients)


@pytest.mark.parametrize("release", ["framework", "sums"])
@pytest.mark.parametrize("mechanism", ["none", "igpp", "vpp"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_odd_clients_work_in_all_frameworks(framework, mechanism, release, monkeypatch) -> None:
    config = tiny(
        f"framework.kind={framework}",
        f"mechanism.kind={mechanism}",
        f"release.summariser={release}",
        "regulariser.kind=dcr",
        "run.rounds=2",
    )
    monkeypatch.setattr("vpdr.federation.builder.load_clients", odd_clients)
    record = final(config)
    for client in record.rounds[-1].clients.values():
        assert 0 <= client.accuracy["all"]["framework"] <= 1


def test_an_absent_client_neither_releases_nor_is_charged() -> None:
    config = tiny("run.rounds=6", "participation.fraction=0.5", "participation.dropout=0.2")
    federation = build(config)
    present = {t: set(federation.server.sample_participants(t)) for t in range(1, 7)}
    record = final(config, federation)
    for name, ledger in record.ledgers.items():
        assert [entry["round"] for entry in ledger["entries"]] == [t for t in present if name in present[t]]
    assert {len(ids) for ids in present.values()} <= {0, 1, 2}
    for each in record.rounds:
        for name, client in each.clients.items():
            assert client.present is (name in present[each.round])


def test_a_schedule_decides_who_takes_part() -> None:
    config = tiny('participation.schedule={"client-000" = [1, 3], "client-002" = [2]}')
    record = final(config)
    rounds = {name: [e["round"] for e in ledger["entries"]] for name, ledger in record.ledgers.items()}
    assert rounds == {"client-000": [1, 3], "client-001": [], "client-002": [2]}


def test_the_whole_budget_can_go_into_few_releases() -> None:
    record = final(tiny("release.count=2"))
    for ledger in record.ledgers.values():
        assert [entry["round"] for entry in ledger["entries"]] == [1, 2]
    first, second, third = (each.clients["client-000"].epsilon for each in record.rounds)
    assert first < second == third <= 1


def uploads_of(*settings: str) -> tuple[dict, list[Prototypes]]:
    """The record of a strict run, and all that its clients sent."""
    config = tiny(*settings, source="strict")
    federation = build(config)
    sent = []
    for client in federation.clients:
        original = client.release

        def watched(t: int, original=original) -> Prototypes:
            sent.append(original(t))
            return sent[-1]

        client.release = watched
    return final(config, federation), sent


@pytest.mark.parametrize("framework", ["fedproto", "fedpcl", "fpl", "fedplvm", "fedtgp", "mpft"])
def test_strict_is_proved_and_independent_of_training(framework) -> None:
    kind = f"framework.kind={framework}"
    record, sent = uploads_of(kind)
    assert record.privacy.level == GuaranteeLevel.PROVED
    assert record.privacy.counts == "private"
    assert all(upload.labels.tolist() == [0, 1, 2, 3] for upload in sent)
    _, other = uploads_of(kind, "train.lr=0.1", "train.epochs=3")  # another encoder and head altogether
    for one, two in zip(sent, other, strict=True):
        assert torch.equal(one.vectors, two.vectors)
        assert torch.equal(one.variances, two.variances)


def test_after_the_last_release_the_same_upload_is_sent_again() -> None:
    record, sent = uploads_of("release.count=1")
    for client in range(3):  # the very same object in every round
        assert all(upload is sent[client] for upload in sent[client::3])
    assert all(len(ledger["entries"]) == 1 for ledger in record.ledgers.values())
    assert all(len(entry["events"]) == 10 for led in record.ledgers.values() for entry in led["entries"])


def test_releases_of_the_personal_encoder_are_conditional() -> None:
    privacy = final(tiny()).privacy
    assert privacy.level == "conditional"
    assert any("trained on the private samples" in words for words in privacy.not_covered)
    assert any("reproducible from the seed" in words for words in privacy.not_covered)
    assert privacy.epsilon_spent <= 1


def test_system_noise_is_not_reproducible() -> None:
    config = tiny("release.noise=system")
    first, second = final(config), final(config)
    assert first.final != second.final or first.rounds != second.rounds
    assert not any("reproducible" in words for words in first.privacy.not_covered)


@pytest.mark.parametrize("kind", ["uniform", "client_size", "class_count"])
def test_weights_come_from_the_config(kind) -> None:
    federation = build(tiny(f"weights.kind={kind}", "benchmark.skew=label"))
    counts = torch.stack([torch.bincount(c.shard.train.labels, minlength=4) for c in federation.clients])
    expected = {
        "uniform": torch.ones(3, 4),
        "client_size": counts.sum(1, keepdim=True).expand(3, 4).float(),
        "class_count": counts.float(),
    }[kind]
    assert torch.equal(federation.server.weights, expected)


def test_a_client_without_budget_sends_its_last_upload_again() -> None:
    config = tiny("run.rounds=3")
    federation = build(config)
    spender = federation.clients[0]
    for t in (1, 2, 3):
        spender.release(t)
    last = spender.last_upload
    spender.release_config = dataclasses.replace(spender.release_config, max_releases=99)
    assert spender.release(4) is last
    assert len(spender.ledger.entries) == 3
