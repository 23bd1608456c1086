"""Head and shared prototypes together: the head where a client has learnt, the anchors where it has not."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.conftest import tiny
from vpdr.client import Client
from vpdr.client.fused import Evidence, combined, fused, held, likelihood
from vpdr.client.measure import predictions
from vpdr.client.parts import Samples
from vpdr.client.shared_guess import shared_guess
from vpdr.engines.build import build
from vpdr.engines.simulate import simulate
from vpdr.frameworks import FRAMEWORKS, Now
from vpdr.prototypes import ClassMeans
from vpdr.rng import Streams
from vpdr.types import Prototypes

CLASSES = 4


def test_a_class_is_held_by_its_share() -> None:
    labels = torch.tensor([0] * 6 + [1] * 3 + [2])
    # an equal share of ten samples among four classes is 2.5
    assert held(labels, CLASSES).tolist() == [1.0, 1.0, 0.4, 0.0]


def test_combined_by_hand() -> None:
    """Three classes: one that the client has, one that it has by half, one that it lacks."""
    guess = torch.tensor([[0.2, 0.4, 0.4], [0.1, 0.1, 0.8]], dtype=torch.float64)
    told = torch.tensor([[3.0, 2.0, 9.0], [3.0, 2.0, 9.0]], dtype=torch.float64).log()
    found = combined(guess, told, torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64))
    # 0.2 + 0.4/2 is divided 3 : 2/2, the other half of 0.4 stays, and so does what the client lacks
    expected = [[0.4 * 3 / 4, 0.4 * 1 / 4 + 0.2, 0.4], [0.15 * 3 / 4, 0.15 * 1 / 4 + 0.05, 0.8]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    nobody = combined(guess, told, torch.zeros(3, dtype=torch.float64).clamp(min=1e-300))
    torch.testing.assert_close(nobody, guess)


@given(seed=st.integers(0, 10**6), noise=st.floats(0.0, 100.0))
def test_where_all_classes_are_held_the_head_decides_whatever_the_anchors_say(seed, noise) -> None:
    """So that nobody is worse off than alone, however unsure its head and however noisy the anchors."""
    rng = Streams(seed).draw("x")
    logits = 0.1 * torch.randn(40, CLASSES, generator=rng, dtype=torch.float64)
    guess = (noise * torch.randn(40, CLASSES, generator=rng, dtype=torch.float64)).softmax(dim=1)
    found = combined(guess, logits, held(torch.arange(40) % CLASSES, CLASSES))
    assert torch.equal(found.argmax(dim=1), logits.argmax(dim=1))
    torch.testing.assert_close(found.sum(dim=1), torch.ones(40, dtype=torch.float64))


def test_a_head_that_is_hardly_trained_is_not_blamed_for_the_frequencies() -> None:
    """Divided by frequencies that it does not know yet, a flat head would name the rarest class always."""
    frequent = torch.tensor([0] * 900 + [1] * 99 + [2])
    flat = torch.nn.functional.one_hot(frequent, 3).double() * 0.3
    assert torch.equal(likelihood(flat, flat).argmax(dim=1), frequent)


def test_a_trained_head_forgets_how_frequent_classes_were() -> None:
    learnt = torch.tensor([[0.9, 0.1]] * 9 + [[0.1, 0.9]], dtype=torch.float64).log()
    usual = torch.tensor([0.9 * 9 + 0.1 + 1, 0.1 * 9 + 0.9 + 1]) / 12
    told = likelihood(torch.tensor([[0.7, 0.3]], dtype=torch.float64).log(), learnt)
    torch.testing.assert_close(told.exp(), torch.tensor([[0.7, 0.3]], dtype=torch.float64) / usual)
    assert told.argmax() == 1


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if name != "local"])
def test_nobody_is_worse_off_than_with_its_own_model(name: str) -> None:
    """All classes are held in equal numbers: the framework's own way to predict decides."""
    settings = ("benchmark.samples=80", "train.lr=0.01", "train.epochs=3", "run.rounds=4")
    made = build(tiny(f"framework.kind={name}", "budget.epsilon=0.1", *settings, source="strict"))
    last = simulate(made).rounds[-1]["clients"]
    for client in last.values():
        found = client["accuracy"]["all"]
        assert found["fused"] >= found["framework"] - 0.05


def test_a_server_that_sends_a_model_tells_of_classes_that_a_client_lacks() -> None:
    """MPFT's teacher takes the place of the nearest prototype."""
    plan = tiny("framework.kind=mpft", "framework.mpft.epochs=60", "mechanism.kind=none", "run.rounds=2")
    clients = build(plan).clients
    lacking = clients[0]
    train = lacking.shard.train
    lacking.shard = replace(lacking.shard, train=train.take(torch.nonzero(train.labels != 3)[:, 0]))
    lacking.heard = heard_from([client.release(1) for client in clients], lacking)
    test = lacking.shard.test.take(torch.nonzero(lacking.shard.test.labels == 3)[:, 0])
    guess = shared_guess(lacking, test)
    assert guess is not None
    assert float((guess.argmax(dim=1) == 3).double().mean()) > 0.9


def heard_from(uploads: list[Prototypes | None], client: Client) -> Any:
    told = [upload for upload in uploads if upload is not None]
    dim = client.shard.test.public.shape[1]
    weights = torch.ones(len(told), CLASSES)
    now = Now(t=1, classes=CLASSES, dim=dim, streams=Streams(0), weights=weights)
    return client.framework.generate(told, client.framework.start(now), now)[0]


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), -float("inf")], ids=str)
@torch.no_grad()
def test_one_strange_score_spoils_no_other_sample(strange: float) -> None:
    client = build(tiny("framework.kind=local")).clients[0]
    train, test = client.shard.train, client.shard.test
    scores = torch.nn.functional.one_hot(test.labels, CLASSES).double()
    learnt = torch.nn.functional.one_hot(train.labels, CLASSES).double()
    usual = fused(client, test, Evidence(scores, learnt))
    odd = learnt.clone()
    odd[0, 1] = strange
    assert torch.equal(fused(client, test, Evidence(scores, odd)), usual)
    scores[0] = strange
    assert torch.equal(fused(client, test, Evidence(scores, learnt))[1:], usual[1:])


@torch.no_grad()
def test_alone_the_same_rule_reads_its_own_means() -> None:
    """So a difference between sharing and not sharing is not one between two rules."""
    alone, sharing = (build(tiny(f"framework.kind={name}")).clients[0] for name in ("local", "fedproto"))
    train, test = alone.shard.train, alone.shard.test
    own = ClassMeans()(alone.released_features(train), train.labels)
    sharing.heard = Prototypes(own.vectors.float(), own.labels)
    told = [predictions(each, test, each.personal_features(train)) for each in (alone, sharing)]
    assert torch.equal(told[0]["fused"], told[1]["fused"])
    assert "nearest" not in told[0]


@torch.no_grad()
def test_without_samples_the_anchors_decide_and_without_both_the_head() -> None:
    client = build(tiny()).clients[0]
    test, nothing = client.shard.test, client.shard.train
    client.shard = replace(client.shard, train=Samples(nothing.public[:0], nothing.labels[:0]))
    logits = client.model.head(client.personal_features(test))
    own = Evidence(logits, logits[:0])
    assert torch.equal(fused(client, test, own), logits.argmax(dim=1))
    client.heard = Prototypes(torch.zeros(1, test.public.shape[1]), torch.tensor([2]))
    assert fused(client, test, own).unique().tolist() == [2]
