"""What clients promise must survive crashes, empty datasets and a curious server."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.federation.conftest import tiny
from vpdr.client import Samples, Shard
from vpdr.data.benchmark import Benchmark, ImageDomain
from vpdr.federation import builder
from vpdr.federation.builder import build
from vpdr.federation.run import RunOptions, run_federation
from vpdr.privacy import ACCOUNTANTS, Adjacency, BudgetExceeded, LedgerFile
from vpdr.rng import Streams
from vpdr.types import no_progress
from vpdr.validation import InvalidInput


class Crash(Exception):
    pass


def test_a_crash_does_not_undo_a_charge(tmp_path: Path) -> None:
    config = tiny("release.noise=system", "run.rounds=6")
    out = tmp_path / "run"

    def crash_after_four(state) -> None:
        if state.rounds_done == 4:
            raise Crash

    saving = RunOptions(on_round_end=[crash_after_four], checkpoint_seconds=0.0)
    with pytest.raises(Crash):
        run_federation(config, out, options=saving)
    paid = len(LedgerFile(out / "ledgers" / "client-000.json").read().entries)
    assert paid == 4
    record = run_federation(config, out, resume=True).record
    entries = record.ledgers["client-000"]["entries"]
    assert len(entries) == 6
    assert [entry["round"] for entry in entries][:4] == [1, 2, 3, 4]
    events = LedgerFile(out / "ledgers" / "client-000.json").read().events
    assert ACCOUNTANTS["exact"].epsilon(events, 1e-5) <= 1


class FailingMechanism:
    """A mechanism that fails after it has seen the data, for reasons that lie in the data."""

    def __init__(self, inner) -> None:
        self.inner, self.looks = inner, 0

    adjacency = property(lambda self: self.inner.adjacency)
    traits = property(lambda self: self.inner.traits)

    @classmethod
    def from_config(cls, config):
        raise NotImplementedError

    def receipt_for(self, context):
        return self.inner.receipt_for(context)

    def bounds(self, *about):
        return self.inner.bounds(*about)

    def release(self, *_):
        self.looks += 1
        raise ZeroDivisionError


def watched(*settings: str):
    client = build(tiny(*settings)).clients[0]
    failing = FailingMechanism(client.release_config.mechanism)
    client.release_config = dataclasses.replace(client.release_config, mechanism=failing)
    return client, failing


@pytest.mark.parametrize("kind", ["igpp", "vpp", "rapp"])
def test_a_release_that_fails_is_charged(kind) -> None:
    rules = ("release.summariser=sums", "release.encoder=public") if kind == "rapp" else ()
    client, failing = watched(f"mechanism.kind={kind}", *rules)
    with pytest.raises(ZeroDivisionError):
        client.release(1)
    assert failing.looks == 1
    assert [entry.receipt for entry in client.ledger.entries] == [failing.receipt_for(client._release_context(1))]
    assert client.last_upload is None


def test_without_budget_the_samples_are_not_read() -> None:
    client, failing = watched("run.rounds=1")
    client.release_config = dataclasses.replace(client.release_config, max_releases=99)
    with pytest.raises(ZeroDivisionError):
        client.release(1)
    client.feature_cache.encode_all = None  # nor are they encoded
    for t in (2, 3):
        with pytest.raises(BudgetExceeded):
            client.release(t)
    assert failing.looks == 1


def test_a_client_without_samples_uploads_nothing_only_where_counts_are_public() -> None:
    def emptied(*settings: str):
        client = build(tiny(*settings)).clients[0]
        train = client.shard.train
        client.shard = Shard(Samples(train.frozen_features[:0], train.labels[:0]), client.shard.test)
        return client

    assert emptied().release(1) is None
    private = ("release.summariser=sums", "release.encoder=public", "budget.adjacency=add-remove")
    client = emptied(*private)
    upload = client.release(1)
    assert upload is not None
    assert upload.vectors.shape == (4, 12)
    assert len(client.ledger.entries) == 1


def test_the_server_cannot_repeat_a_clients_noise() -> None:
    federation = build(tiny(source="strict"))
    server = federation.server.context(1, [client.id for client in federation.clients]).streams
    theirs = federation.streams.generator("release", client="client-000", round=1)
    guess = server.generator("release", client="client-000", round=1)
    assert not torch.equal(torch.randn(8, generator=theirs), torch.randn(8, generator=guess))


def test_public_counts_are_a_caveat_with_every_summariser() -> None:
    from tests.unit.federation.test_rounds import final

    open_counts = final(tiny("release.summariser=sums")).privacy
    assert open_counts.counts == "public"
    assert any("treated as public" in words for words in open_counts.not_covered)
    hidden = final(tiny(source="strict")).privacy
    assert not any("treated as public" in words for words in hidden.not_covered)
    assert "simulated" in hidden.sentence
    real = final(tiny("release.noise=system", source="strict")).privacy
    assert "simulated" not in real.sentence


def test_streams_have_more_than_32_bits() -> None:
    streams = Streams(0)
    drawn = {
        torch.randint(2**62, (2,), generator=streams.generator("release", client=f"client-{c:03d}", round=t))
        .numpy()
        .tobytes()
        for c in range(60)
        for t in range(1000)
    }
    assert len(drawn) == 60_000  # with 32 bits one of two draws in half of all tries would be repeated here
    twice = [torch.randn(4, generator=Streams(3).generator("x", round=1)) for _ in range(2)]
    assert torch.equal(*twice)
    big = [torch.rand(3, generator=Streams(seed).generator("x")) for seed in (123, 123 + (7 << 32))]
    assert not torch.equal(*big)


def test_generators_of_streams_have_the_right_moments() -> None:
    drawn = torch.rand(100_000, generator=Streams(9).generator("x"), dtype=torch.float64)
    assert abs(float(drawn.mean()) - 0.5) < 5e-3
    assert abs(float(drawn.var()) - 1 / 12) < 2e-3
    normal = torch.randn(100_000, generator=Streams(9).generator("y"), dtype=torch.float64)
    assert abs(float(normal.mean())) < 0.02
    assert abs(float(normal.std()) - 1) < 0.01


def test_seeds_may_be_large() -> None:
    config = tiny()
    big = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=2**70))
    assert build(big).clients


def test_the_text_of_a_federation_holds_no_private_values() -> None:
    """A notebook or a log prints it."""
    federation = build(tiny())
    text = repr(federation)
    first = federation.clients[0].shard.train.frozen_features[0, 0]
    assert f"{float(first):.4f}" not in text
    assert "frozen_features=" not in text
    assert "labels=" not in text


@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_class_without_samples_is_an_error_only_where_labels_are_public(monkeypatch, adjacency) -> None:
    rng = np.random.default_rng(0)
    domain = ImageDomain(
        name="d", labels=np.arange(60) % 3, images=rng.integers(256, size=(60, 8, 8, 3), dtype=np.uint8)
    )
    benchmark = Benchmark(name="toy", classes=4, class_names=("a", "b", "c", "d"), domains=(domain,))
    monkeypatch.setattr(builder, "pooled_features", lambda key: (benchmark, torch.ones(60, 1280), None))
    settings = ("benchmark.kind=quickstart", "release.summariser=sums", "model.adapters=last", "model.dim=12")
    config = tiny(*settings, f"budget.adjacency={adjacency}", "benchmark.assignment=sample_hash")
    if adjacency is Adjacency.REPLACE_SAME_LABEL:
        with pytest.raises(InvalidInput, match="class d has no samples"):
            builder.load_clients(config, Streams(0), no_progress)
        return
    (setup,) = builder.load_clients(config, Streams(0), no_progress).clients.values()
    assert len(setup.shard.train.labels) > len(setup.shard.test.labels) > 0
