"""Runs whose releases are made on a broadcast path: what they are worth, and that nobody loses the way."""

from pathlib import Path

import pytest
import torch

from tests.unit.federation.conftest import timeless, tiny
from tests.unit.federation.test_builder import Crash
from tests.unit.federation.test_rounds import final
from tests.unit.federation.test_run_repeatability import StopAfter, record_of
from tests.unit.records.upload_cases import load_attempts
from vpdr.attacks import AttackCallbacks, AttackConfig, AttackFactory, attack_finished_run
from vpdr.attacks.base import ADVERSARY_ENCODERS, EmbeddingSpace, adversary_feature_map
from vpdr.attacks.membership import adversary_features
from vpdr.federation.builder import build
from vpdr.federation.rounds import Callbacks, simulate
from vpdr.federation.run import RunOptions, run_federation
from vpdr.records import UploadStore

ON_PATH = ("framework.kind=mpft", "release.encoder=broadcast", "framework.mpft.server_lr=0.05")


def simulate_uploads(*settings: str) -> list[dict]:
    """All uploads, round by round."""
    uploads_by_round: list[dict] = []
    simulate(
        build(tiny(*ON_PATH, *settings)),
        callbacks=Callbacks(on_uploads=[lambda round_uploads: uploads_by_round.append(round_uploads.uploads)]),
    )
    return uploads_by_round


def broadcast_marks(rounds: list[dict]) -> list[dict[str, bool]]:
    return [{name: upload.in_broadcast_space for name, upload in each.items()} for each in rounds]


@pytest.mark.parametrize("mechanism", ["igpp", "vpp"])
def test_the_statement_is_proved(mechanism) -> None:
    record = final(tiny(*ON_PATH, f"mechanism.kind={mechanism}", "release.noise=system"))
    privacy = record.privacy
    assert privacy.level == privacy.expected_level == "proved"
    assert privacy.sentence.endswith("transcript encoder, public counts, exact accountant: proved")
    assert privacy.epsilon_spent <= 1
    for ledger in record.ledgers.values():
        assert [entry["terms"]["encoder"] for entry in ledger["entries"]] == ["transcript"] * 3


def test_releases_depend_on_broadcasts_and_not_on_training() -> None:
    """Another learning rate gives other encoders and heads, and every upload is the same bit for bit."""
    first, second = simulate_uploads(), simulate_uploads("train.lr=0.1", "train.epochs=3")
    public = simulate_uploads("release.encoder=public")
    for t, (one, two, frozen) in enumerate(zip(first, second, public, strict=True), start=1):
        for name in one:
            assert torch.equal(one[name].vectors, two[name].vectors)
            assert torch.equal(one[name].vectors, frozen[name].vectors) is (t == 1)
    assert broadcast_marks(first) == [dict.fromkeys(each, t > 1) for t, each in enumerate(first, start=1)]


def test_a_client_without_a_broadcast_releases_frozen_features_and_marks_them() -> None:
    rounds = 'participation.schedule={"client-000" = [1, 2, 3, 4], "client-001" = [2, 3], "client-002" = [4]}'
    assert broadcast_marks(simulate_uploads("run.rounds=4", rounds)) == [
        {"client-000": False},
        {"client-000": True, "client-001": False},
        {"client-000": True, "client-001": True},
        {"client-000": True, "client-002": False},
    ]


def test_a_round_without_uploads_broadcasts_no_feature_map() -> None:
    rounds = 'participation.schedule={"client-000" = [2, 3], "client-001" = [2, 3]}'
    uploads_by_round = [each for each in broadcast_marks(simulate_uploads(rounds)) if each]
    assert uploads_by_round == [dict.fromkeys(("client-000", "client-001"), on_path) for on_path in (False, True)]


@pytest.mark.parametrize("settings", [(), ("participation.fraction=0.5",), ("release.count=2",)], ids=str)
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, settings) -> None:
    config = tiny(*ON_PATH, "run.rounds=4", *settings)
    whole = run_federation(config, tmp_path / "whole").record
    assert timeless(whole) == timeless(record_of(config))
    for done in (1, 2):
        out = tmp_path / f"stopped-{done}"
        assert run_federation(config, out, options=RunOptions(stop=StopAfter(done))).record is None
        assert timeless(run_federation(config, out, resume=True).record) == timeless(whole)
        for t in (1, 2, 3, 4):
            there, here = (UploadStore(folder).load(t) for folder in (tmp_path / "whole", out))
            assert broadcast_marks([there]) == broadcast_marks([here])


def test_an_upload_that_is_sent_again_is_marked_as_before(tmp_path: Path, monkeypatch) -> None:
    """A crash has lost the second and last upload, so the first one is sent again: it is not on the path."""
    config, out = tiny(*ON_PATH, "run.rounds=2", "release.noise=system"), tmp_path / "run"

    def crash(*_: object) -> None:
        raise Crash

    def after_round(state) -> None:
        if state.rounds_done == 1:
            monkeypatch.setattr("vpdr.federation.builder.Server.aggregate", crash)

    with pytest.raises(Crash):
        run_federation(config, out, options=RunOptions(on_round_end=[after_round], checkpoint_seconds=0.0))
    monkeypatch.undo()
    assert run_federation(config, out, resume=True).record.privacy.level == "proved"
    lost, again = load_attempts(UploadStore(out), 2)
    assert all(upload.in_broadcast_space for upload in lost.values())
    assert not any(upload.in_broadcast_space for upload in again.values())


@pytest.mark.parametrize("phi", ADVERSARY_ENCODERS)
def test_an_adversary_uses_the_broadcast_feature_map(phi) -> None:
    federation = build(tiny(*ON_PATH))
    simulate(federation)
    client = federation.clients[0]
    test = client.shard.test
    shown = client.released_features(test)
    assert not torch.equal(shown, test.frozen_features)
    assert torch.equal(adversary_features(client, test, phi), shown)
    way = adversary_feature_map(client, EmbeddingSpace(12), phi, "cpu")
    inputs = test.frozen_features.clone().requires_grad_()
    torch.testing.assert_close(way(inputs), shown)
    (slopes,) = torch.autograd.grad(way(inputs).square().sum(), inputs)
    assert (slopes != 0).any()


@pytest.mark.parametrize("noise", ["seeded", "system"])
def test_a_run_with_broadcast_features_can_be_attacked_afterwards(tmp_path: Path, noise) -> None:
    config, order = tiny(*ON_PATH, f"release.noise={noise}"), AttackConfig(kinds=("mia", "fsh"), steps=10)
    options = RunOptions(observers=[AttackFactory(order)])
    watched = run_federation(config, tmp_path / "run", options=options).record.attacks
    later = attack_finished_run(config, tmp_path / "run", order, lambda *_: None, AttackCallbacks())
    assert timeless(later) == timeless(watched)
