"""On a broadcast path a released feature depends on the sample's public one and on the broadcast alone."""

import dataclasses
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.federation.conftest import tiny
from vpdr.client import MAX_ABS_COORDINATE, Client, Samples, Shard
from vpdr.client.client import apply_row_by_row
from vpdr.federation import build
from vpdr.frameworks.mpft import MpftBroadcast, apply_adapter
from vpdr.rng import Streams

DIM, CLASSES, HIDDEN = 12, 4, 8
seeds = st.integers(0, 10**6)


def client_of(*changes: str) -> Client:
    return build(tiny("framework.kind=mpft", "release.encoder=transcript", *changes)).clients[0]


CLIENT = client_of()


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=Streams(seed).generator(f"drawn {shape}"))


def teacher(seed: int) -> MpftBroadcast:
    shapes = {"down": (3, DIM), "up": (DIM, 3), "hidden.weight": (HIDDEN, DIM), "hidden.bias": (HIDDEN,)}
    shapes |= {"out.weight": (CLASSES, HIDDEN), "out.bias": (CLASSES,)}
    return MpftBroadcast({name: drawn(seed, *shape) for name, shape in shapes.items()})


def released(samples: Samples, broadcast: MpftBroadcast | None, client: Client = CLIENT) -> torch.Tensor:
    changed = dataclasses.replace(client, shard=Shard(samples, samples), last_broadcast=broadcast)
    return changed.released_features(samples)


def samples_of(seed: int, count: int) -> Samples:
    return Samples(3 * drawn(seed, count, DIM), torch.arange(count) % CLASSES)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 100), st.data())
def test_features_do_not_depend_on_other_samples(seed, count, data) -> None:
    """Bit for bit: one sample goes or is replaced, and every other one stays where it was."""
    samples, broadcast = samples_of(seed, count), teacher(seed)
    row = data.draw(st.integers(0, count - 1))
    others = torch.arange(count) != row
    before = released(samples, broadcast)
    assert torch.equal(released(samples.take(others.nonzero()[:, 0]), broadcast), before[others])
    replaced = samples.frozen_features.clone()
    replaced[row] = data.draw(st.sampled_from([0.0, -1.0, 1e4, 1e30])) * drawn(seed + 1, DIM)
    assert torch.equal(released(Samples(replaced, samples.labels), broadcast)[others], before[others])


@pytest.mark.parametrize("dim", [50, 64, 301])
@pytest.mark.parametrize("narrow", [2, 6])
def test_rounding_on_the_path_does_not_depend_on_other_samples(dim: int, narrow: int) -> None:
    """Weights that cancel leave rounding errors, and a steep way up makes them as long as the clip norm."""
    weight = drawn(dim, dim)
    half = torch.where(torch.arange(dim) % 2 == 0, weight, 0.0)
    down = torch.stack([weight, -weight, half, -half, weight - half, half - weight])[:narrow]
    up = torch.zeros(dim, narrow)
    up[0] = 1e15 * torch.tensor([1.0, -1, -1, 1, -1, 1])[:narrow]
    path, x = partial(apply_adapter, {"down": down, "up": up}), drawn(dim + 1, 120, dim)
    assert torch.equal(apply_row_by_row(path, x)[1:], apply_row_by_row(path, x[1:]))


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_features_depend_neither_on_the_personal_model_nor_on_labels(seed) -> None:
    samples, broadcast = samples_of(seed, 20), teacher(seed)
    before = released(samples, broadcast)
    other = client_of("train.lr=0.1")
    with torch.no_grad():
        for part in (other.model.encoder, other.model.head):
            for parameter in part.parameters():
                parameter.copy_(drawn(seed, *parameter.shape))
    assert not torch.equal(other.personal_features(samples), samples.frozen_features)
    assert torch.equal(released(samples, broadcast, other), before)
    assert torch.equal(released(Samples(samples.frozen_features, samples.labels.flip(0)), broadcast), before)
    assert not torch.equal(released(samples, teacher(seed + 1)), before)  # the broadcast is
    for missing in (None, MpftBroadcast({})):
        assert released(samples, missing) is samples.frozen_features


def test_training_changes_the_personal_model_only() -> None:
    client, broadcast = client_of(), teacher(1)
    before = released(client.shard.train, broadcast)
    client.finetune(broadcast, 1)
    assert torch.equal(client.released_features(client.shard.train), before)
    assert not torch.equal(client.personal_features(client.shard.train), client.shard.train.frozen_features)


@pytest.mark.parametrize("worst", [torch.nan, torch.inf, -torch.inf, 1e38])
def test_features_of_every_path_can_be_released(worst) -> None:
    features = apply_row_by_row(lambda rows: torch.full_like(rows, worst), torch.ones(3, DIM))
    assert features.isfinite().all()
    assert features.abs().max() <= MAX_ABS_COORDINATE
