"""On a broadcast path a released feature depends on the sample's public one and on the broadcast alone."""

import dataclasses
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.conftest import tiny
from vpdr.client import Client, Samples, Shard
from vpdr.client.paths import through
from vpdr.client.usual import MOST
from vpdr.engines.build import build
from vpdr.frameworks.teacher import Teacher, adapted
from vpdr.rng import Streams

DIM, CLASSES, HIDDEN = 12, 4, 8
seeds = st.integers(0, 10**6)


def client_of(*changes: str) -> Client:
    return build(tiny("framework.kind=mpft", "release.encoder=transcript", *changes)).clients[0]


CLIENT = client_of()


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=Streams(seed).draw(f"drawn {shape}"))


def teacher(seed: int) -> Teacher:
    shapes = {"down": (3, DIM), "up": (DIM, 3), "hidden.weight": (HIDDEN, DIM), "hidden.bias": (HIDDEN,)}
    shapes |= {"out.weight": (CLASSES, HIDDEN), "out.bias": (CLASSES,)}
    return Teacher({name: drawn(seed, *shape) for name, shape in shapes.items()})


def shown(samples: Samples, heard: Teacher | None, client: Client = CLIENT) -> torch.Tensor:
    changed = dataclasses.replace(client, shard=Shard(samples, samples), heard=heard)
    return changed.released_features(samples)


def samples_of(seed: int, count: int) -> Samples:
    return Samples(3 * drawn(seed, count, DIM), torch.arange(count) % CLASSES)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 100), st.data())
def test_no_other_sample_is_felt(seed, count, data) -> None:
    """Bit for bit: one sample goes or is replaced, and every other one stays where it was."""
    samples, heard = samples_of(seed, count), teacher(seed)
    row = data.draw(st.integers(0, count - 1))
    others = torch.arange(count) != row
    before = shown(samples, heard)
    assert torch.equal(shown(samples.take(others.nonzero()[:, 0]), heard), before[others])
    replaced = samples.public.clone()
    replaced[row] = data.draw(st.sampled_from([0.0, -1.0, 1e4, 1e30])) * drawn(seed + 1, DIM)
    assert torch.equal(shown(Samples(replaced, samples.labels), heard)[others], before[others])


@pytest.mark.parametrize("dim", [50, 64, 301])
@pytest.mark.parametrize("narrow", [2, 6])
def test_a_path_of_nothing_but_rounding_feels_no_other_sample(dim: int, narrow: int) -> None:
    """Weights that cancel leave rounding errors, and a steep way up makes them as long as the clip norm."""
    weight = drawn(dim, dim)
    half = torch.where(torch.arange(dim) % 2 == 0, weight, 0.0)
    down = torch.stack([weight, -weight, half, -half, weight - half, half - weight])[:narrow]
    up = torch.zeros(dim, narrow)
    up[0] = 1e15 * torch.tensor([1.0, -1, -1, 1, -1, 1])[:narrow]
    path, x = partial(adapted, {"down": down, "up": up}), drawn(dim + 1, 120, dim)
    assert torch.equal(through(path, x)[1:], through(path, x[1:]))


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_neither_the_personal_model_nor_labels_are_felt(seed) -> None:
    samples, heard = samples_of(seed, 20), teacher(seed)
    before = shown(samples, heard)
    other = client_of("train.lr=0.1")
    with torch.no_grad():
        for part in (other.model.encoder, other.model.head):
            for parameter in part.parameters():
                parameter.copy_(drawn(seed, *parameter.shape))
    assert not torch.equal(other.personal_features(samples), samples.public)
    assert torch.equal(shown(samples, heard, other), before)
    assert torch.equal(shown(Samples(samples.public, samples.labels.flip(0)), heard), before)
    assert not torch.equal(shown(samples, teacher(seed + 1)), before)  # the broadcast is
    for unheard in (None, Teacher({})):
        assert shown(samples, unheard) is samples.public


def test_training_moves_nothing_but_the_personal_model() -> None:
    client, heard = client_of(), teacher(1)
    before = shown(client.shard.train, heard)
    client.finetune(heard, 1)
    assert torch.equal(client.released_features(client.shard.train), before)
    assert not torch.equal(client.personal_features(client.shard.train), client.shard.train.public)


@pytest.mark.parametrize("worst", [torch.nan, torch.inf, -torch.inf, 1e38])
def test_whatever_the_path_makes_can_be_released(worst) -> None:
    found = through(lambda rows: torch.full_like(rows, worst), torch.ones(3, DIM))
    assert found.isfinite().all()
    assert found.abs().max() <= MOST
