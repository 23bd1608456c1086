"""Head and shared prototypes together: the head where a client has learnt, the anchors where it has not."""

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.conftest import tiny
from vpdr.client.fused import class_distances, combined, fitted_width, fused, held, likelihood
from vpdr.client.measure import predictions
from vpdr.client.parts import Samples
from vpdr.engines.build import build
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


def test_noisy_anchors_leave_the_decision_to_the_head() -> None:
    """The width of anchors that say nothing is large, so that they prefer no class."""
    rng = Streams(2).draw("x")
    features, labels = torch.randn(300, 16, generator=rng), torch.arange(300) % 3
    clear = Prototypes(torch.eye(3, 16) * 8, torch.arange(3))
    vague = Prototypes(torch.randn(3, 16, generator=rng) * 8, torch.arange(3))
    shifted = features + clear.vectors[labels]
    widths = [fitted_width(class_distances(shifted, known, 3), labels) for known in (clear, vague)]
    sure, unsure = (
        (-class_distances(shifted, known, 3) / width).softmax(1).max(1).values.mean()
        for known, width in zip((clear, vague), widths, strict=True)
    )
    assert sure > 0.95
    assert unsure < 0.5


def test_distances_are_to_the_nearest_anchor_of_a_class() -> None:
    anchors = Prototypes(torch.tensor([[0.0], [4.0], [9.0]]), torch.tensor([0, 0, 2]))
    apart = class_distances(torch.tensor([[3.0]]), anchors, 3)
    assert apart.tolist() == [[1.0, float("inf"), 36.0]]


@torch.no_grad()
def test_alone_the_same_rule_reads_its_own_means() -> None:
    """So a difference between sharing and not sharing is not one between two rules."""
    client = build(tiny("framework.kind=local")).clients[0]
    train, test = client.shard.train, client.shard.test
    own = ClassMeans()(client.released_features(train), train.labels)
    logits = client.model.head(client.personal_features(test))
    as_if_shared = fused(client, test, logits, Prototypes(own.vectors, own.labels))
    found = predictions(client, test, client.personal_features(train))
    assert torch.equal(found["fused"], as_if_shared)
    assert "nearest" not in found


@torch.no_grad()
def test_without_samples_the_anchors_decide_and_without_both_the_head() -> None:
    client = build(tiny()).clients[0]
    test, nothing = client.shard.test, client.shard.train
    client.shard = replace(client.shard, train=Samples(nothing.public[:0], nothing.labels[:0]))
    logits = client.model.head(client.personal_features(test))
    assert torch.equal(fused(client, test, logits, None), logits.argmax(dim=1))
    one = Prototypes(torch.zeros(1, test.public.shape[1]), torch.tensor([2]))
    assert fused(client, test, logits, one).unique().tolist() == [2]
