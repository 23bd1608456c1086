"""What clients promise must survive crashes, empty datasets and a curious server."""

import dataclasses
from pathlib import Path

import pytest
import torch

from tests.engines.conftest import tiny
from vpdr.client import Samples, Shard
from vpdr.engines.build import build
from vpdr.engines.runner import Company, run_plan
from vpdr.engines.simulate import _now
from vpdr.privacy import ACCOUNTANTS, BudgetExceeded, LedgerFile
from vpdr.rng import Streams


class Crash(Exception):
    pass


def test_a_crash_cannot_give_a_charge_back(tmp_path: Path) -> None:
    plan = tiny("release.noise=system", "run.rounds=6")
    out = tmp_path / "run"

    def crash_after_four(course) -> None:
        if course.done == 4:
            raise Crash

    saving = Company(watchers=[crash_after_four], checkpoint_seconds=0.0)
    with pytest.raises(Crash):
        run_plan(plan, out, company=saving)
    paid = len(LedgerFile(out / "ledgers" / "client-000.json").read().entries)
    assert paid == 4
    record = run_plan(plan, out, resume=True).record
    entries = record["ledgers"]["client-000"]["entries"]
    assert len(entries) == 6
    assert [entry["round"] for entry in entries][:4] == [1, 2, 3, 4]
    events = LedgerFile(out / "ledgers" / "client-000.json").read().events
    assert ACCOUNTANTS["exact"].epsilon(events, 1e-5) <= 1


class Looking:
    """A mechanism that fails after it has seen the data, for reasons that lie in the data."""

    def __init__(self, inner) -> None:
        self.inner, self.looks = inner, 0

    adjacency = property(lambda self: self.inner.adjacency)
    facts = property(lambda self: self.inner.facts)

    def planned(self, occasion):
        return self.inner.planned(occasion)

    def bounds(self, *about):
        return self.inner.bounds(*about)

    def release(self, *_):
        self.looks += 1
        raise ZeroDivisionError


def watched(*settings: str):
    client = build(tiny(*settings)).clients[0]
    looking = Looking(client.promise.mechanism)
    client.promise = dataclasses.replace(client.promise, mechanism=looking)
    return client, looking


@pytest.mark.parametrize("kind", ["igpp", "vpp", "rapp"])
def test_a_look_that_fails_is_paid_for(kind) -> None:
    rules = ("release.summariser=sums", "release.encoder=public") if kind == "rapp" else ()
    client, looking = watched(f"mechanism.kind={kind}", *rules)
    with pytest.raises(ZeroDivisionError):
        client.release(1)
    assert looking.looks == 1
    assert [entry.receipt for entry in client.ledger.entries] == [looking.planned(client._occasion(1))]
    assert client.sent is None


def test_without_budget_the_data_are_not_looked_at() -> None:
    client, looking = watched("run.rounds=1")
    client.promise = dataclasses.replace(client.promise, releases=99)
    with pytest.raises(ZeroDivisionError):
        client.release(1)
    client.encoding.all = None  # nor are they encoded
    for t in (2, 3):
        with pytest.raises(BudgetExceeded):
            client.release(t)
    assert looking.looks == 1


def test_an_empty_client_is_silent_only_if_that_is_no_secret() -> None:
    def emptied(*settings: str):
        client = build(tiny(*settings)).clients[0]
        train = client.shard.train
        client.shard = Shard(Samples(train.public[:0], train.labels[:0]), client.shard.test)
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
    server = _now(federation, 1, federation.clients).streams
    theirs = federation.streams.draw("release", client="client-000", t=1)
    guess = server.draw("release", client="client-000", t=1)
    assert not torch.equal(torch.randn(8, generator=theirs), torch.randn(8, generator=guess))


def test_counts_in_the_open_are_named_whatever_the_summariser() -> None:
    from tests.engines.test_simulation import final

    open_counts = final(tiny("release.summariser=sums"))["privacy"]
    assert open_counts["counts"] == "public"
    assert any("treated as public" in words for words in open_counts["not_covered"])
    hidden = final(tiny(source="strict"))["privacy"]
    assert not any("treated as public" in words for words in hidden["not_covered"])
    assert "simulated" in hidden["sentence"]
    real = final(tiny("release.noise=system", source="strict"))["privacy"]
    assert "simulated" not in real["sentence"]


def test_streams_have_more_than_32_bits() -> None:
    streams = Streams(0)
    drawn = {
        torch.randint(2**62, (2,), generator=streams.draw("release", client=f"client-{c:03d}", t=t))
        .numpy()
        .tobytes()
        for c in range(60)
        for t in range(1000)
    }
    assert len(drawn) == 60_000  # with 32 bits one of two draws in half of all tries would be repeated here
    twice = [torch.randn(4, generator=Streams(3).draw("x", t=1)) for _ in range(2)]
    assert torch.equal(*twice)
    big = [torch.rand(3, generator=Streams(seed).draw("x")) for seed in (123, 123 + (7 << 32))]
    assert not torch.equal(*big)


def test_a_generator_draws_like_any_other() -> None:
    drawn = torch.rand(100_000, generator=Streams(9).draw("x"), dtype=torch.float64)
    assert abs(float(drawn.mean()) - 0.5) < 5e-3
    assert abs(float(drawn.var()) - 1 / 12) < 2e-3
    normal = torch.randn(100_000, generator=Streams(9).draw("y"), dtype=torch.float64)
    assert abs(float(normal.mean())) < 0.02
    assert abs(float(normal.std()) - 1) < 0.01


def test_seeds_may_be_large() -> None:
    plan = tiny()
    big = dataclasses.replace(plan, run=dataclasses.replace(plan.run, seed=2**70))
    assert build(big).clients
