"""Strict runs: in stages, through every framework, stopped anywhere, and on after the budget is spent."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.federation.conftest import timeless, tiny
from tests.unit.federation.test_run_repeatability import StopAfter, record_of
from vpdr.client import Samples, Shard
from vpdr.federation.builder import build
from vpdr.federation.rounds import simulate
from vpdr.federation.run import RunOptions, run_federation
from vpdr.frameworks import FRAMEWORKS
from vpdr.validation import InvalidInput

SHARING = [name for name in FRAMEWORKS if name != "local"]


@pytest.mark.parametrize("framework", SHARING)
def test_a_run_continues_after_the_last_release(framework) -> None:
    config = tiny(f"framework.kind={framework}", "run.rounds=7", source="strict")
    record = record_of(config)
    for ledger in record.ledgers.values():
        assert [entry["round"] for entry in ledger["entries"]] == [1, 2, 3, 4, 5]
    spent = [round_.clients["client-000"].epsilon for round_ in record.rounds]
    assert spent[:5] == sorted(set(spent[:5]))
    assert spent[4] == spent[5] == spent[6] <= 1
    assert record.privacy.level == "proved"


def test_a_budget_spent_by_other_charges_ends_releases_and_not_the_run() -> None:
    """As where a crashed round was paid twice: the ledger refuses, and the last upload goes again."""
    client = build(tiny("mechanism.kind=igpp", "release.count=2", source="strict")).clients[0]
    client.release_config = replace(client.release_config, max_releases=9)
    first = client.release(1)
    assert first is not None
    client.ledger.charge(client.ledger.releases[0].receipt, round=2)
    assert client.release(3) is first
    assert [entry.round for entry in client.ledger.releases] == [1, 2]


@pytest.mark.parametrize("method", ["rapp", "igpp"])
@pytest.mark.parametrize("done", [1, 3])
def test_a_run_stopped_between_stages_goes_on_bit_for_bit(tmp_path: Path, method, done) -> None:
    kind = (f"mechanism.kind={method}", f"mechanism.accumulate={'true' if method == 'igpp' else 'false'}")
    config = tiny(*kind, "run.rounds=6", source="strict")
    whole = run_federation(config, tmp_path / "whole").record
    stopped = run_federation(config, tmp_path / "parts", options=RunOptions(stop=StopAfter(done)))
    assert stopped.record is None
    assert timeless(run_federation(config, tmp_path / "parts", resume=True).record) == timeless(whole)


def test_fewer_rounds_than_stages_hold_several_of_them() -> None:
    record = record_of(tiny("run.rounds=2", source="strict"))
    counts = [[len(e["events"]) for e in led["entries"]] for led in record.ledgers.values()]
    assert counts == [[6, 4]] * 3
    assert 0.999 < record.privacy.epsilon_spent <= 1


def test_a_client_without_a_class_uploads_the_same_labels_as_others() -> None:
    federation = build(tiny(source="strict"))
    normal = federation.clients[1].release(1)
    client = federation.clients[0]
    train = client.shard.train
    client.shard = Shard(Samples(train.frozen_features, torch.zeros_like(train.labels)), client.shard.test)
    alone = client.release(1)
    assert alone.vectors.shape == normal.vectors.shape
    assert torch.equal(alone.labels, normal.labels)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("release.encoder=personal", "release.encoder=public"),
        ("release.summariser=means", "release.summariser=sums"),
        ("mechanism.release_dim=13", "at most model.dim = 12"),
        ("mechanism.stages=5;10", "5,10,15,30,40"),
        ("mechanism.per_class=0", "at least 1"),
        ("mechanism.expected=-1", "at least 0"),
        ("mechanism.metric=projection", "mechanism.metric=projection was removed"),
    ],
)
def test_impossible_configs_are_refused(setting, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        tiny(setting, source="strict")


def test_accumulated_releases_need_a_fixed_encoder() -> None:
    with pytest.raises(InvalidInput, match=r"release\.encoder=public"):
        tiny("mechanism.accumulate=true")


@pytest.mark.parametrize("setting", ["mechanism.per_class=2", "mechanism.release_dim=5", "mechanism.stages=1,1"])
def test_every_setting_runs(setting) -> None:
    federation = build(tiny(*setting.split(), source="strict"))
    simulate(federation)
    upload = federation.clients[0].last_upload
    per_class = 2 if "per_class" in setting else 1
    assert upload.vectors.shape == (4 * per_class, 12)
    if "release_dim" in setting:
        assert torch.linalg.matrix_rank(upload.vectors, rtol=1e-4) <= 5


def test_head_nearest_prototype_and_fused_accuracy_are_measured_together() -> None:
    federation = build(tiny("budget.epsilon=8", "benchmark.samples=80", source="strict"))
    found = simulate(federation).round_records[-1].clients["client-000"].accuracy["all"]
    assert found.keys() >= {"head", "nearest", "fused"}
    assert found["fused"] >= min(found["head"], found["nearest"])
