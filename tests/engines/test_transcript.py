"""Runs whose releases are made on a broadcast path: what they are worth, and that nobody loses the way."""

from pathlib import Path

import pytest
import torch

from tests.engines.conftest import timeless, tiny
from tests.engines.test_promises import Crash
from tests.engines.test_repeatability import StopAfter, record_of
from tests.engines.test_simulation import final
from vpdr.attacks import AttackOrder
from vpdr.attacks.base import PHI, seen_through
from vpdr.attacks.spaces import EmbeddingSpace, path_of
from vpdr.engines.build import build
from vpdr.engines.overhear import Audience
from vpdr.engines.replay import attacked
from vpdr.engines.runner import Company, run_plan
from vpdr.engines.simulate import Hearing, simulate
from vpdr.records.uploads import UploadFolder

ON_PATH = ("framework.kind=mpft", "release.encoder=transcript", "framework.mpft.server_lr=0.05")


def heard_by_round(*settings: str) -> list[dict]:
    """All uploads, round by round."""
    told: list[dict] = []
    simulate(
        build(tiny(*ON_PATH, *settings)),
        hearing=Hearing(listeners=[lambda moment: told.append(moment.uploads)]),
    )
    return told


def marks(rounds: list[dict]) -> list[dict[str, bool]]:
    return [{name: upload.on_path for name, upload in each.items()} for each in rounds]


@pytest.mark.parametrize("mechanism", ["igpp", "vpp"])
def test_the_statement_is_proved(mechanism) -> None:
    record = final(tiny(*ON_PATH, f"mechanism.kind={mechanism}", "release.noise=system"))
    privacy = record["privacy"]
    assert privacy["level"] == privacy["expected_level"] == "proved"
    assert privacy["sentence"].endswith("transcript encoder, public counts, exact accountant: proved")
    assert privacy["epsilon_spent"] <= 1
    for ledger in record["ledgers"].values():
        assert [entry["terms"]["encoder"] for entry in ledger["entries"]] == ["transcript"] * 3


def test_releases_follow_the_broadcasts_and_no_training() -> None:
    """Another learning rate gives other encoders and heads, and every upload is the same bit for bit."""
    first, second = heard_by_round(), heard_by_round("train.lr=0.1", "train.epochs=3")
    public = heard_by_round("release.encoder=public")
    for t, (one, two, frozen) in enumerate(zip(first, second, public, strict=True), start=1):
        for name in one:
            assert torch.equal(one[name].vectors, two[name].vectors)
            assert torch.equal(one[name].vectors, frozen[name].vectors) is (t == 1)
    assert marks(first) == [dict.fromkeys(each, t > 1) for t, each in enumerate(first, start=1)]


def test_who_was_away_releases_on_the_public_path_and_says_so() -> None:
    rounds = 'participation.schedule={"client-000" = [1, 2, 3, 4], "client-001" = [2, 3], "client-002" = [4]}'
    assert marks(heard_by_round("run.rounds=4", rounds)) == [
        {"client-000": False},
        {"client-000": True, "client-001": False},
        {"client-000": True, "client-001": True},
        {"client-000": True, "client-002": False},
    ]


def test_a_round_without_uploads_makes_no_path() -> None:
    rounds = 'participation.schedule={"client-000" = [2, 3], "client-001" = [2, 3]}'
    told = [each for each in marks(heard_by_round(rounds)) if each]
    assert told == [dict.fromkeys(("client-000", "client-001"), on_path) for on_path in (False, True)]


@pytest.mark.parametrize("settings", [(), ("participation.fraction=0.5",), ("release.count=2",)], ids=str)
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, settings) -> None:
    plan = tiny(*ON_PATH, "run.rounds=4", *settings)
    whole = run_plan(plan, tmp_path / "whole").record
    assert timeless(whole) == timeless(record_of(plan) | {"wall_seconds": 0})
    for done in (1, 2):
        out = tmp_path / f"stopped-{done}"
        assert run_plan(plan, out, company=Company(stop=StopAfter(done))).record is None
        assert timeless(run_plan(plan, out, resume=True).record) == timeless(whole)
        for t in (1, 2, 3, 4):
            there, here = (UploadFolder(folder).heard(t) for folder in (tmp_path / "whole", out))
            assert marks([there]) == marks([here])


def test_an_upload_that_is_sent_again_keeps_its_mark(tmp_path: Path, monkeypatch) -> None:
    """A crash has lost the second and last upload, so the first one is sent again: it is not on the path."""
    plan, out = tiny(*ON_PATH, "run.rounds=2", "release.noise=system"), tmp_path / "run"

    def crash(*_: object) -> None:
        raise Crash

    def after_round(course) -> None:
        if course.done == 1:
            monkeypatch.setattr("vpdr.engines.server.Server.generate", crash)

    with pytest.raises(Crash):
        run_plan(plan, out, company=Company(watchers=[after_round], checkpoint_seconds=0.0))
    monkeypatch.undo()
    assert run_plan(plan, out, resume=True).record["privacy"]["level"] == "proved"
    lost, again = UploadFolder(out).attempts(2)
    assert all(upload.on_path for upload in lost.values())
    assert not any(upload.on_path for upload in again.values())


@pytest.mark.parametrize("phi", PHI)
def test_an_adversary_sees_through_the_path(phi) -> None:
    federation = build(tiny(*ON_PATH))
    simulate(federation)
    client = federation.clients[0]
    test = client.shard.test
    shown = client.released_features(test)
    assert not torch.equal(shown, test.public)
    assert torch.equal(seen_through(client, test, phi), shown)
    way = path_of(client, EmbeddingSpace(12), phi, "cpu")
    inputs = test.public.clone().requires_grad_()
    torch.testing.assert_close(way(inputs), shown)
    (slopes,) = torch.autograd.grad(way(inputs).square().sum(), inputs)
    assert (slopes != 0).any()


@pytest.mark.parametrize("noise", ["seeded", "system"])
def test_a_run_on_a_path_can_be_attacked_afterwards(tmp_path: Path, noise) -> None:
    plan, order = tiny(*ON_PATH, f"release.noise={noise}"), AttackOrder(kinds=("mia", "fsh"), steps=10)
    watched = run_plan(plan, tmp_path / "run", company=Company(attacks=order)).record["attacks"]
    later = attacked(plan, tmp_path / "run", order, lambda *_: None, Audience())
    assert timeless(later) == timeless(watched)
