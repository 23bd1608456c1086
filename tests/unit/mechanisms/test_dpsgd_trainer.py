"""The trainer: per-sample gradients through every framework, and nothing but clipped sums in the encoder."""

import copy
import dataclasses
from functools import partial

import pytest
import torch

from tests.unit.mechanisms.dpsgd_cases import (
    NoNoise,
    client_and_broadcast,
    encoder_parameters,
    private,
    seeded,
    with_train,
)
from vpdr.client import Samples
from vpdr.frameworks import FRAMEWORKS
from vpdr.mechanisms.dpsgd import per_sample_gradients
from vpdr.privacy import Adjacency, Ledger
from vpdr.types import TrainBatch

SHARING = [name for name in FRAMEWORKS if name != "local"]


def summed(client, broadcast, samples=None) -> torch.Tensor:
    """The clipped sum of all gradients of a client, as one vector."""
    losses = partial(client.framework.losses, broadcast=broadcast)
    samples = samples or client.shard.train
    with per_sample_gradients(client.dpsgd_trainer.model) as gradients:
        parts = client.dpsgd_trainer.clipped_gradient_sum(samples.frozen_features, samples.labels, losses, gradients)
    return client.dpsgd_trainer.config.grid.to_real(torch.cat([part.flatten() for part in parts]))


def one_by_one(client, broadcast) -> torch.Tensor:
    """The same by a loop over samples, each a batch of its own, without Opacus."""
    model, train, total = client.dpsgd_trainer.model, client.shard.train, 0.0
    for row in range(len(train.labels)):
        public, labels = train.frozen_features[row : row + 1], train.labels[row : row + 1]
        features, logits = model(public)
        step = TrainBatch(features, logits, labels, public, torch.ones(1))
        loss = sum(client.framework.losses(step, broadcast).values()) + 0 * logits.sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        own = torch.cat([part.flatten() for part in gradients]).double()
        total = total + own * min(1.0, client.dpsgd_trainer.config.clip_norm / max(float(own.norm()), 1e-12))
    return total


def perturb_parameters(client) -> None:
    """Leave the start, where one layer is zero and hides the other."""
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for each in client.dpsgd_trainer.model.parameters():
            each.add_(0.2 * torch.randn(each.shape, generator=rng))


@pytest.mark.parametrize("framework", SHARING)
def test_gradients_agree_with_a_loop_over_samples(framework) -> None:
    client, broadcast = client_and_broadcast(private(f"framework.kind={framework}", "model.dropout=0.5"))
    perturb_parameters(client)
    torch.testing.assert_close(summed(client, broadcast), one_by_one(client, broadcast), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_neighbours_move_the_sum_by_no_more_than_stated(adjacency) -> None:
    settings = (f"budget.adjacency={adjacency}", "release.summariser=sums", "train.gradient_clip=0.3")
    client, broadcast = client_and_broadcast(private(*settings))
    perturb_parameters(client)
    train = client.shard.train
    public, labels = train.frozen_features.clone(), train.labels.clone()
    public[0] = 100 * torch.ones(public.shape[1])
    if adjacency is Adjacency.REPLACE_ONE:
        labels[0] = (labels[0] + 1) % 4
    other = Samples(public, labels)
    if adjacency is Adjacency.ADD_REMOVE:
        other = Samples(train.frozen_features[1:], train.labels[1:])
    reach = 0.3 * (1 if adjacency is Adjacency.ADD_REMOVE else 2)
    apart = float((summed(client, broadcast) - summed(client, broadcast, other)).norm())
    assert 0.1 * reach < apart <= reach


def test_rounding_in_a_hostile_teacher_does_not_depend_on_the_position_of_a_sample() -> None:
    """Under add-remove the others move up: hidden units that cancel must not make their gradients another."""
    settings = ("framework.kind=mpft", "budget.adjacency=add-remove", "release.summariser=sums")
    client, broadcast = client_and_broadcast(
        private(*settings, "train.gradient_clip=1e-6", "framework.mpft.weight=1.0")
    )
    dim, classes = client.shard.train.frozen_features.shape[1], client.train_config.classes
    rng = torch.Generator().manual_seed(0)
    public, labels = torch.randn(200, dim, generator=rng), torch.arange(200) % classes
    each = torch.randn(36, dim, generator=rng)
    out = torch.zeros(classes, 37)
    out[0] = 1e7 * torch.tensor([1.0] * 36 + [-1.0])
    hostile = dataclasses.replace(
        broadcast,
        parameters={
            **broadcast.parameters,
            "hidden.weight": torch.cat([each, each.sum(0)[None]]),
            "hidden.bias": torch.tensor([30.0] * 36 + [30.0 * 36]),
            "out.weight": out,
            "out.bias": torch.zeros(classes),
        },
    )
    whole = summed(client, hostile, Samples(public, labels))
    less = summed(client, hostile, Samples(public[1:], labels[1:]))
    assert float((whole - less).norm()) <= 1e-6


def test_a_sample_that_overflows_changes_no_sum_of_gradients() -> None:
    client, broadcast = client_and_broadcast(private())
    train = client.shard.train
    wild = train.frozen_features.clone()
    wild[0] = 3e38
    rest = Samples(train.frozen_features[1:], train.labels[1:])
    total = summed(client, broadcast, Samples(wild, train.labels))
    assert bool(torch.isfinite(total).all())
    assert float((total - summed(client, broadcast, rest)).norm()) <= 1.0


def test_the_same_sums_and_noise_give_the_same_encoder() -> None:
    """With the sum of the one dataset put in the place of the other's, nothing else tells them apart."""
    client, broadcast = client_and_broadcast(private())
    train = client.shard.train
    other = Samples(torch.cat([-train.frozen_features[:1], train.frozen_features[1:]]), train.labels)
    twins = [with_train(client, each, model=copy.deepcopy(client.model)) for each in (train, other)]
    sums = twins[0].dpsgd_trainer.clipped_gradient_sum
    losses = partial(client.framework.losses, broadcast=broadcast)
    with per_sample_gradients(twins[0].dpsgd_trainer.model) as gradients:
        clean = sums(train.frozen_features, train.labels, losses, gradients)
    for twin in twins:
        twin.dpsgd_trainer.clipped_gradient_sum = lambda *_: clean
        twin.dpsgd_trainer.train_round(
            twin.shard.train.frozen_features, twin.shard.train.labels, losses, seeded(), twin.ledger, 1
        )
    assert torch.equal(encoder_parameters(twins[0]), encoder_parameters(twins[1]))
    alone = with_train(client, other, model=copy.deepcopy(client.model))
    alone.dpsgd_trainer.train_round(other.frozen_features, other.labels, losses, seeded(), alone.ledger, 1)
    assert not torch.equal(encoder_parameters(twins[0]), encoder_parameters(alone))


def test_the_personal_head_never_changes_the_encoder() -> None:
    client, broadcast = client_and_broadcast(private())
    start = copy.deepcopy(client.model)
    ways = []
    for lr in (1e-3, 0.5):
        ledger = Ledger.from_state_dict(client.ledger.state_dict())
        twin = dataclasses.replace(client, model=copy.deepcopy(start), ledger=ledger)
        twin.optimiser.param_groups[0]["lr"] = lr
        for t in (1, 2):
            twin.finetune(broadcast, t)
        ways.append(twin)
    assert torch.equal(encoder_parameters(ways[0]), encoder_parameters(ways[1]))
    heads = [torch.cat([p.flatten() for p in way.model.head.parameters()]) for way in ways]
    assert not torch.equal(*heads)
    fresh = torch.cat([p.flatten() for p in start.encoder.parameters()])
    assert not torch.equal(encoder_parameters(ways[0]), fresh)


def test_the_optimiser_of_the_head_has_no_part_of_the_encoder() -> None:
    client, _ = client_and_broadcast(private())
    held = {id(each) for group in client.optimiser.param_groups for each in group["params"]}
    assert held == {id(each) for each in client.model.head.parameters()}


def test_an_empty_client_trains_on_noise_where_the_size_of_the_dataset_is_private() -> None:
    settings = ("budget.adjacency=add-remove", "release.summariser=sums")
    client, broadcast = client_and_broadcast(private(*settings))
    empty = Samples(client.shard.train.frozen_features[:0], client.shard.train.labels[:0])
    alone = with_train(client, empty, model=copy.deepcopy(client.model))
    before, paid = encoder_parameters(alone), alone.ledger.training_steps
    assert alone.finetune(broadcast, 1) == {}
    assert alone.ledger.training_steps == paid + 2
    assert not torch.equal(before, encoder_parameters(alone))


def test_opacus_leaves_nothing_in_the_model() -> None:
    client, broadcast = client_and_broadcast(private())
    client.finetune(broadcast, 1)
    again = copy.deepcopy(client.model.encoder)
    assert not [name for name in vars(again.adapter.down) if "activations" in name]
    assert not again.training
    assert not list(again.adapter.down._forward_hooks.values())
    assert all(each.grad is None for each in client.dpsgd_trainer.model.parameters())


def test_training_without_noise_reduces_the_loss() -> None:
    client, broadcast = client_and_broadcast(private("train.lr=0.02"))
    losses = partial(client.framework.losses, broadcast=broadcast)
    config = dataclasses.replace(client.dpsgd_trainer.config, total_steps=1000, steps_per_round=40)
    client.dpsgd_trainer.config = config
    client.ledger.budget = None

    def loss() -> float:
        train = client.shard.train
        with torch.no_grad():
            features, logits = client.dpsgd_trainer.model(train.frozen_features)
        step = TrainBatch(features, logits, train.labels, train.frozen_features, torch.ones(len(train.labels)))
        return float(losses(step)["task"])

    before = loss()
    assert client.dpsgd_trainer.train_round(
        client.shard.train.frozen_features, client.shard.train.labels, losses, NoNoise(), client.ledger, 1
    )
    assert loss() < 0.7 * before


def test_released_features_do_not_depend_on_the_position_of_a_sample() -> None:
    client, _ = client_and_broadcast(private("budget.adjacency=add-remove", "release.summariser=sums", "model.width=6"))
    perturb_parameters(client)
    samples = Samples(torch.randn(90, client.shard.train.frozen_features.shape[1]), torch.zeros(90, dtype=torch.int64))
    whole, less = (client.released_features(samples.take(torch.arange(n, 90))) for n in (0, 1))
    assert torch.equal(whole[1:], less)
    torch.testing.assert_close(whole, client.personal_features(samples))
