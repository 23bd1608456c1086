"""Clients whose encoder needs the samples themselves."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.unit.federation.conftest import tiny
from vpdr.client import Model, Samples, Shard
from vpdr.encoder.backbone import FeatureInputs, ImageArrayInputs
from vpdr.encoder.personal import AdapterConfig, FrozenEncoder, make_encoder, make_head, projection_for
from vpdr.encoder.zoo import load_backbone
from vpdr.federation import build
from vpdr.frameworks.local import EmptyBroadcast
from vpdr.rng import Streams
from vpdr.validation import InvalidInput

DIM, CLASSES, STREAMS = 12, 4, Streams(0)


class CountingImages(ImageArrayInputs):
    """Images with random brightness as augmentation, which record the sizes of the batches read."""

    reads: list[int] = []  # noqa: RUF012

    def batch(self, rows, rng=None):
        self.reads.append(len(rows))
        images = super().batch(rows)
        if rng is None:
            return images
        return (images.float() * torch.empty(len(rows), 1, 1, 1).uniform_(0.5, 1.0, generator=rng)).byte()


@pytest.fixture(scope="module")
def frozen_encoder():
    backbone = load_backbone("efficientnet_lite0", pixels=32)
    return FrozenEncoder(backbone, projection_for(backbone.info, "random", DIM, rng=STREAMS.generator("projection")))


def samples(frozen_encoder, n, kind=CountingImages):
    images = np.random.default_rng(n).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
    return Samples(
        frozen_encoder.projection(frozen_encoder.backbone.pooled_features(images)),
        torch.arange(n) % CLASSES,
        kind(images),
    )


@pytest.fixture
def make_client(frozen_encoder):
    """A client of a tiny federation, with images and adapters after each block."""
    shard = Shard(samples(frozen_encoder, 10), samples(frozen_encoder, 6))
    base = build(tiny("release.encoder=personal")).clients[0]

    def client(**changes):
        encoder = make_encoder(
            AdapterConfig(adapters="blocks", width=8), DIM, frozen_encoder, rng=STREAMS.generator("adapter")
        ).eval()
        head = make_head(DIM, CLASSES, rng=STREAMS.generator("head"), hidden=(8,)).eval()
        return replace(base, **{"shard": shard, "model": Model(encoder, head), **changes})

    CountingImages.reads.clear()
    return client


def finetune(client, round=1):
    """One round of fine-tuning by the local loss make_local."""
    return client.finetune(EmptyBroadcast(), round)


@pytest.fixture
def make_local(make_client):
    """The same with the framework `local`, whose loss needs no broadcast."""
    base = build(tiny("framework.kind=local")).clients[0]

    def client(**changes):
        return make_client(framework=base.framework, **changes)

    return client


def test_before_training_personal_features_equal_the_frozen_ones(make_client):
    client = make_client()
    train = client.shard.train
    torch.testing.assert_close(client.personal_features(train), train.frozen_features, rtol=1e-4, atol=1e-5)


def test_between_two_rounds_every_sample_is_encoded_once(make_local):
    client = make_local()
    train, test = client.shard.train, client.shard.test
    first = client.personal_features(train)
    assert client.personal_features(train) is first
    client.personal_features(test)
    assert CountingImages.reads == [10, 6]
    finetune(client)
    reads = len(CountingImages.reads)
    assert not torch.equal(client.personal_features(train), first)
    assert len(CountingImages.reads) == reads + 1


def test_training_learns_inside_the_backbone_and_repeats_bit_for_bit(make_local):
    first, second, other = make_local(), make_local(), make_local(streams=Streams(1))
    for round in (1, 2):
        for client in (first, second, other):
            finetune(client, round)
    mine, yours = first.model.encoder.state_dict(), second.model.encoder.state_dict()
    assert all(torch.equal(mine[name], yours[name]) for name in mine)
    assert any(not torch.equal(mine[name], value) for name, value in other.model.encoder.state_dict().items())
    assert all(adapter.up.weight.abs().max() > 0 for adapter in first.model.encoder.adapters.values())


def test_samples_are_augmented_in_training_only(make_local):
    plain = make_local(shard=Shard(*(replace(s, inputs=ImageArrayInputs(s.inputs.images)) for s in both(make_local()))))
    augmented = make_local()
    torch.testing.assert_close(
        plain.personal_features(plain.shard.train), augmented.personal_features(augmented.shard.train)
    )
    for client in (plain, augmented):
        finetune(client)
    mine, yours = plain.model.encoder.state_dict(), augmented.model.encoder.state_dict()
    assert any(not torch.equal(mine[name], yours[name]) for name in mine)


def both(client):
    return client.shard.train, client.shard.test


def test_a_saved_state_holds_no_frozen_weights_and_resumes_bit_for_bit(make_local):
    client, twin = make_local(), make_local()
    finetune(client)
    state = copy.deepcopy(client.state_dict())  # as through a file
    assert sum(value.numel() for value in state["encoder"].values()) < 30_000
    twin.personal_features(twin.shard.train)
    twin.load_state_dict(state)
    assert torch.equal(twin.personal_features(twin.shard.train), client.personal_features(client.shard.train))
    for each in (client, twin):
        finetune(each, 2)
    mine, yours = client.model.encoder.state_dict(), twin.model.encoder.state_dict()
    assert all(torch.equal(mine[name], yours[name]) for name in mine)


def test_a_trained_projection_learns_from_pooled_features(make_local, frozen_encoder):
    projection = projection_for(frozen_encoder.backbone.info, "train", DIM, rng=STREAMS.generator("projection"))
    encoder = make_encoder(
        AdapterConfig(width=4),
        DIM,
        FrozenEncoder(frozen_encoder.backbone, projection),
        rng=STREAMS.generator("adapter"),
    ).eval()
    base = make_local()
    parts = [
        replace(s, inputs=FeatureInputs(frozen_encoder.backbone.pooled_features(s.inputs.images))) for s in (both(base))
    ]
    client = make_local(shard=Shard(*parts), model=Model(encoder, base.model.head))
    torch.testing.assert_close(client.personal_features(parts[0]), parts[0].frozen_features)
    finetune(client)
    assert not torch.equal(client.model.encoder.projection.weight, projection.linear.weight)


def test_a_client_without_samples_has_no_features(make_client):
    client = make_client()
    assert client.personal_features(client.shard.train.take(torch.arange(0))).shape == (0, DIM)


def test_samples_without_inputs_are_refused_in_one_line(make_client):
    client = make_client()
    bare = replace(client.shard.train, inputs=None)
    with pytest.raises(InvalidInput, match="give Samples with inputs"):
        client.personal_features(bare)


def test_an_encoder_on_frozen_features_is_cached_inside_caching_only(monkeypatch) -> None:
    client = build(tiny("release.encoder=personal")).clients[0]
    calls: list[int] = []
    forward = client.model.encoder.forward
    monkeypatch.setattr(client.model.encoder, "forward", lambda *args: calls.append(1) or forward(*args))
    with client.feature_cache.caching():
        first = client.personal_features(client.shard.test)
        assert client.personal_features(client.shard.test) is first
    assert len(calls) == 1
    again = client.personal_features(client.shard.test)
    assert len(calls) == 2
    assert again is not first
    assert torch.equal(again, first)
