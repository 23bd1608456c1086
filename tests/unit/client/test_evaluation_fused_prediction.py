"""Fused prediction: the head for classes that a client holds, the global prototypes for the others."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.federation.conftest import tiny
from vpdr.client import Client, Samples
from vpdr.client.evaluation import (
    class_coverage,
    fuse_probabilities,
    log_likelihood_ratio,
    predict_all,
    predict_fused,
    prototype_posterior,
)
from vpdr.federation import build, simulate
from vpdr.frameworks import FRAMEWORKS, ServerContext
from vpdr.prototypes import ClassMeans
from vpdr.rng import Streams
from vpdr.types import Prototypes

CLASSES = 4


def test_the_coverage_of_a_class_is_its_share_of_samples() -> None:
    labels = torch.tensor([0] * 6 + [1] * 3 + [2])
    # an equal share of ten samples among four classes is 2.5
    assert class_coverage(labels, CLASSES).tolist() == [1.0, 1.0, 0.4, 0.0]


def test_fused_probabilities_by_hand() -> None:
    """Three classes: one that the client has, one that it has by half, one that it lacks."""
    posterior = torch.tensor([[0.2, 0.4, 0.4], [0.1, 0.1, 0.8]], dtype=torch.float64)
    ratio = torch.tensor([[3.0, 2.0, 9.0], [3.0, 2.0, 9.0]], dtype=torch.float64).log()
    fused = fuse_probabilities(posterior, ratio, torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64))
    # 0.2 + 0.4/2 is divided 3 : 2/2, the other half of 0.4 stays, and so does what the client lacks
    expected = [[0.4 * 3 / 4, 0.4 * 1 / 4 + 0.2, 0.4], [0.15 * 3 / 4, 0.15 * 1 / 4 + 0.05, 0.8]]
    torch.testing.assert_close(fused, torch.tensor(expected, dtype=torch.float64))
    without_classes = fuse_probabilities(posterior, ratio, torch.zeros(3, dtype=torch.float64).clamp(min=1e-300))
    torch.testing.assert_close(without_classes, posterior)


@given(seed=st.integers(0, 10**6), noise=st.floats(0.0, 100.0))
def test_where_all_classes_are_held_the_head_alone_decides(seed, noise) -> None:
    """So no client is worse off than alone, however uncertain its head and however noisy the prototypes."""
    rng = Streams(seed).generator("x")
    logits = 0.1 * torch.randn(40, CLASSES, generator=rng, dtype=torch.float64)
    posterior = (noise * torch.randn(40, CLASSES, generator=rng, dtype=torch.float64)).softmax(dim=1)
    fused = fuse_probabilities(posterior, logits, class_coverage(torch.arange(40) % CLASSES, CLASSES))
    assert torch.equal(fused.argmax(dim=1), logits.argmax(dim=1))
    torch.testing.assert_close(fused.sum(dim=1), torch.ones(40, dtype=torch.float64))


def test_an_untrained_head_is_not_corrected_by_class_frequencies() -> None:
    """Divided by frequencies that it does not know yet, a flat head would name the rarest class always."""
    frequent = torch.tensor([0] * 900 + [1] * 99 + [2])
    flat = torch.nn.functional.one_hot(frequent, 3).double() * 0.3
    assert torch.equal(log_likelihood_ratio(flat, flat).argmax(dim=1), frequent)


def test_the_likelihood_ratio_of_a_trained_head_removes_class_frequencies() -> None:
    learnt = torch.tensor([[0.9, 0.1]] * 9 + [[0.1, 0.9]], dtype=torch.float64).log()
    mean = torch.tensor([0.9 * 9 + 0.1 + 1, 0.1 * 9 + 0.9 + 1]) / 12
    log_ratio = log_likelihood_ratio(torch.tensor([[0.7, 0.3]], dtype=torch.float64).log(), learnt)
    torch.testing.assert_close(log_ratio.exp(), torch.tensor([[0.7, 0.3]], dtype=torch.float64) / mean)
    assert log_ratio.argmax() == 1


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if name != "local"])
def test_fused_accuracy_is_at_least_that_of_the_own_model(name: str) -> None:
    """All classes are held in equal numbers: the framework's own way to predict decides."""
    settings = ("benchmark.samples=80", "train.lr=0.01", "train.epochs=3", "run.rounds=4")
    federation = build(tiny(f"framework.kind={name}", "budget.epsilon=0.1", *settings, source="strict"))
    last = simulate(federation).round_records[-1].clients
    for client in last.values():
        accuracy = client.accuracy["all"]
        assert accuracy["fused"] >= accuracy["framework"] - 0.05


def test_a_broadcast_model_predicts_classes_that_a_client_lacks() -> None:
    """MPFT's teacher takes the place of the nearest prototype."""
    config = tiny("framework.kind=mpft", "framework.mpft.epochs=60", "mechanism.kind=none", "run.rounds=2")
    clients = build(config).clients
    client = clients[0]
    train = client.shard.train
    client.shard = replace(client.shard, train=train.take(torch.nonzero(train.labels != 3)[:, 0]))
    client.last_broadcast = broadcast_of([each.release(1) for each in clients], client)
    test = client.shard.test.take(torch.nonzero(client.shard.test.labels == 3)[:, 0])
    posterior = prototype_posterior(client, test)
    assert posterior is not None
    assert float((posterior.argmax(dim=1) == 3).double().mean()) > 0.9


def broadcast_of(uploads: list[Prototypes | None], client: Client) -> Any:
    released = [upload for upload in uploads if upload is not None]
    dim = client.shard.test.frozen_features.shape[1]
    weights = torch.ones(len(released), CLASSES)
    context = ServerContext(round=1, classes=CLASSES, dim=dim, streams=Streams(0), weights=weights)
    return client.framework.aggregate(released, client.framework.init_state(context), context)[0]


@pytest.mark.parametrize("invalid", [float("nan"), float("inf"), -float("inf")], ids=str)
@torch.no_grad()
def test_one_invalid_logit_changes_no_other_sample(invalid: float) -> None:
    client = build(tiny("framework.kind=local")).clients[0]
    train, test = client.shard.train, client.shard.test
    logits = torch.nn.functional.one_hot(test.labels, CLASSES).double()
    train_logits = torch.nn.functional.one_hot(train.labels, CLASSES).double()
    expected = predict_fused(client, test, logits=logits, train_logits=train_logits)
    odd = train_logits.clone()
    odd[0, 1] = invalid
    assert torch.equal(predict_fused(client, test, logits=logits, train_logits=odd), expected)
    logits[0] = invalid
    changed = predict_fused(client, test, logits=logits, train_logits=train_logits)
    assert torch.equal(changed[1:], expected[1:])


@torch.no_grad()
def test_local_clients_use_the_same_rule_with_their_own_means() -> None:
    """So a difference between sharing and not sharing is not one between two rules."""
    local, sharing = (build(tiny(f"framework.kind={name}")).clients[0] for name in ("local", "fedproto"))
    train, test = local.shard.train, local.shard.test
    own = ClassMeans()(local.released_features(train), train.labels)
    sharing.last_broadcast = Prototypes(own.vectors.float(), own.labels)
    predictions = [predict_all(each, test, each.personal_features(train)) for each in (local, sharing)]
    assert torch.equal(predictions[0]["fused"], predictions[1]["fused"])
    assert "nearest" not in predictions[0]


@torch.no_grad()
def test_without_samples_the_prototypes_decide_and_without_both_the_head() -> None:
    client = build(tiny()).clients[0]
    test, train = client.shard.test, client.shard.train
    client.shard = replace(client.shard, train=Samples(train.frozen_features[:0], train.labels[:0]))
    logits = client.model.head(client.personal_features(test))
    own = {"logits": logits, "train_logits": logits[:0]}
    assert torch.equal(predict_fused(client, test, **own), logits.argmax(dim=1))
    client.last_broadcast = Prototypes(torch.zeros(1, test.frozen_features.shape[1]), torch.tensor([2]))
    assert predict_fused(client, test, **own).unique().tolist() == [2]
