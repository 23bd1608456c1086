"""Clients whose encoder runs on the samples themselves."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engines.conftest import tiny
from vpdr.client import Model, Samples, Shard
from vpdr.encoder import Frames, Shape, Trunk, Vectors, load_backbone, make_encoder, make_head, path_of
from vpdr.engines.build import build
from vpdr.errors import InvalidInput
from vpdr.frameworks.local import Silence
from vpdr.rng import Streams

DIM, CLASSES, STREAMS = 12, 4, Streams(0)


class Shifting(Frames):
    """Pictures whose augmentation is a random brightness, and which count how often they are read."""

    reads: list[int] = []  # noqa: RUF012

    def batch(self, rows, rng=None):
        self.reads.append(len(rows))
        made = super().batch(rows)
        if rng is None:
            return made
        return (made.float() * torch.empty(len(rows), 1, 1, 1).uniform_(0.5, 1.0, generator=rng)).byte()


@pytest.fixture(scope="module")
def trunk():
    backbone = load_backbone("efficientnet_lite0", pixels=32)
    return Trunk(backbone, path_of(backbone, "random", DIM, rng=STREAMS.draw("projection")))


def samples(trunk, n, kind=Shifting):
    images = np.random.default_rng(n).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
    return Samples(trunk.path(trunk.backbone.pooled(images)), torch.arange(n) % CLASSES, kind(images))


@pytest.fixture
def make(trunk):
    """A client of a tiny federation, with pictures and adapters after each block."""
    shard = Shard(samples(trunk, 10), samples(trunk, 6))
    base = build(tiny("release.encoder=personal")).clients[0]

    def client(**changes):
        encoder = make_encoder(
            Shape(adapters="blocks", width=8), DIM, trunk, rng=STREAMS.draw("adapter")
        ).eval()
        head = make_head(DIM, CLASSES, rng=STREAMS.draw("head"), hidden=(8,)).eval()
        return replace(base, **{"shard": shard, "model": Model(encoder, head), **changes})

    Shifting.reads.clear()
    return client


def learn(client, t=1):
    """One round of fine-tuning by the local loss alone."""
    return client.finetune(Silence(), t)


@pytest.fixture
def alone(make):
    """The same, training by itself: its loss needs no broadcast."""
    base = build(tiny("framework.kind=local")).clients[0]

    def client(**changes):
        return make(framework=base.framework, **changes)

    return client


def test_before_it_learns_its_features_are_the_public_ones(make):
    client = make()
    train = client.shard.train
    torch.testing.assert_close(client.personal_features(train), train.public, rtol=1e-4, atol=1e-5)


def test_between_two_rounds_every_sample_is_encoded_once(alone):
    client = alone()
    train, test = client.shard.train, client.shard.test
    first = client.personal_features(train)
    assert client.personal_features(train) is first
    client.personal_features(test)
    assert Shifting.reads == [10, 6]
    learn(client)
    seen = len(Shifting.reads)
    assert not torch.equal(client.personal_features(train), first)
    assert len(Shifting.reads) == seen + 1


def test_training_learns_inside_the_backbone_and_repeats_bit_for_bit(alone):
    first, second, other = alone(), alone(), alone(streams=Streams(1))
    for t in (1, 2):
        for client in (first, second, other):
            learn(client, t)
    mine, yours = first.model.encoder.state_dict(), second.model.encoder.state_dict()
    assert all(torch.equal(mine[name], yours[name]) for name in mine)
    assert any(not torch.equal(mine[name], value) for name, value in other.model.encoder.state_dict().items())
    assert all(adapter.up.weight.abs().max() > 0 for adapter in first.model.encoder.adapters.values())


def test_augmentation_is_for_training_alone(alone):
    plain = alone(shard=Shard(*(replace(s, inputs=Frames(s.inputs.images)) for s in both(alone()))))
    moved = alone()
    torch.testing.assert_close(
        plain.personal_features(plain.shard.train), moved.personal_features(moved.shard.train)
    )
    for client in (plain, moved):
        learn(client)
    mine, yours = plain.model.encoder.state_dict(), moved.model.encoder.state_dict()
    assert any(not torch.equal(mine[name], yours[name]) for name in mine)


def both(client):
    return client.shard.train, client.shard.test


def test_a_saved_state_holds_nothing_frozen_and_goes_on_where_it_was(alone):
    client, twin = alone(), alone()
    learn(client)
    state = copy.deepcopy(client.state())  # as through a file
    assert sum(value.numel() for value in state["encoder"].values()) < 30_000
    twin.personal_features(twin.shard.train)
    twin.resume(state)
    assert torch.equal(twin.personal_features(twin.shard.train), client.personal_features(client.shard.train))
    for each in (client, twin):
        learn(each, 2)
    mine, yours = client.model.encoder.state_dict(), twin.model.encoder.state_dict()
    assert all(torch.equal(mine[name], yours[name]) for name in mine)


def test_a_trained_projection_learns_from_pooled_features(alone, trunk):
    path = path_of(trunk.backbone, "train", DIM, rng=STREAMS.draw("projection"))
    encoder = make_encoder(
        Shape(width=4), DIM, Trunk(trunk.backbone, path), rng=STREAMS.draw("adapter")
    ).eval()
    base = alone()
    parts = [replace(s, inputs=Vectors(trunk.backbone.pooled(s.inputs.images))) for s in (both(base))]
    client = alone(shard=Shard(*parts), model=Model(encoder, base.model.head))
    torch.testing.assert_close(client.personal_features(parts[0]), parts[0].public)
    learn(client)
    assert not torch.equal(client.model.encoder.projection.weight, path.projection.weight)


def test_a_client_without_samples_has_no_features(make):
    client = make()
    assert client.personal_features(client.shard.train.take(torch.arange(0))).shape == (0, DIM)


def test_samples_without_inputs_are_one_line(make):
    client = make()
    bare = replace(client.shard.train, inputs=None)
    with pytest.raises(InvalidInput, match="give Samples with inputs"):
        client.personal_features(bare)


def test_a_cheap_encoder_remembers_only_while_it_is_measured(monkeypatch) -> None:
    client = build(tiny("release.encoder=personal")).clients[0]
    seen: list[int] = []
    forward = client.model.encoder.forward
    monkeypatch.setattr(client.model.encoder, "forward", lambda *given: seen.append(1) or forward(*given))
    with client.encoding.remembering():
        first = client.personal_features(client.shard.test)
        assert client.personal_features(client.shard.test) is first
    assert len(seen) == 1
    again = client.personal_features(client.shard.test)
    assert len(seen) == 2
    assert again is not first
    assert torch.equal(again, first)
