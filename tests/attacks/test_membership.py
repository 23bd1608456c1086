"""Membership inference where the truth is known."""

import pytest
import torch

from tests.attacks.attack_cases import gaussian_shard
from vpdr.attacks.candidates import CAP, candidates_of
from vpdr.attacks.likelihood import Seen, log_ratios, shapes_of
from vpdr.attacks.mia import nearness
from vpdr.attacks.mia_result import Scores, result_of
from vpdr.client import Samples, Shard
from vpdr.prototypes import ClassMeans
from vpdr.rng import Streams
from vpdr.types import Prototypes

# A spectrum with an effective dimension of about 40: what the study's features have.
SPECTRUM = torch.cat([torch.full((28,), 1.0), torch.full((100,), 0.05)])


def told_by(shard: Shard, noise: float, seed: int = 1) -> Prototypes:
    means = ClassMeans()(shard.train.public, shard.train.labels)
    rng = Streams(seed).draw("noise")
    return Prototypes(means.vectors + noise * torch.randn(means.vectors.shape, generator=rng), means.labels)


def attacked(shard: Shard, uploads: list[Prototypes]) -> dict:
    """All three adversaries on one client."""
    who = candidates_of(shard, "client", Streams(0))
    assert who is not None
    shapes = shapes_of(who, shard.test.public[who.others])
    features = torch.cat([shard.train.public[who.members], shard.test.public[who.others]])
    labels = who.classes[who.owner]
    seen = Seen(features, torch.ones(len(features)), features.square().sum(1))
    values = [
        torch.stack([nearness(features, labels, told), log_ratios(who, shapes, seen, told).double()])
        for told in uploads
    ]
    count = len(uploads)
    present = torch.ones(count, len(who.classes), dtype=torch.bool)
    scores = Scores(who, list(range(1, count + 1)), torch.stack(values), present, [True] * count)
    return result_of({"client": scores})


def test_without_a_leak_every_interval_covers_chance() -> None:
    whole = gaussian_shard(40, 40, 10, SPECTRUM)
    asked, used = (whole.train.take(torch.arange(start, 400, 2)) for start in range(2))
    found = attacked(Shard(asked, whole.test), [told_by(Shard(used, whole.test), 0.0)])
    for reading in (found, *found["stronger"].values()):
        auc, advantage = reading["summary"]["auc"], reading["summary"]["advantage"]
        assert auc["mean"] == pytest.approx(0.5, abs=0.05)
        assert auc["low"] <= 0 <= auc["high"]
        assert advantage["low"] <= 0 <= advantage["high"]
        assert advantage["null"] > 0.13


def test_the_interval_covers_chance_as_often_as_it_says() -> None:
    covered = []
    for seed in range(40):
        shard = gaussian_shard(12, 12, 4, torch.ones(16), seed=seed)
        found = attacked(shard, [told_by(shard, 50.0, seed)])["summary"]["advantage"]
        covered.append(found["low"] <= 0 <= found["high"])
    assert sum(covered) >= 34


def test_separated_members_are_told_apart() -> None:
    shard = gaussian_shard(30, 30, 5, SPECTRUM, shift=9.0)
    found = attacked(shard, [told_by(shard, 0.0)])
    for metric in ("auc", "tpr_at_1fpr", "advantage", "f1"):
        assert found["summary"][metric]["mean"] == 1
        assert found["pooled"][metric]["mean"] == 1
    assert found["summary"]["advantage"]["low"] > 0.5


def test_the_likelihood_ratio_beats_the_distance_without_privacy() -> None:
    aucs = []
    for seed in range(4):
        shard = gaussian_shard(20, 150, 10, SPECTRUM, seed=seed)
        found = attacked(shard, [told_by(shard, 0.0)])
        aucs.append(
            [found["summary"]["auc"]["mean"], found["stronger"]["likelihood"]["summary"]["auc"]["mean"]]
        )
    distance, likelihood = torch.tensor(aucs).mean(0).tolist()
    assert distance == pytest.approx(0.62, abs=0.03)
    assert likelihood == pytest.approx(0.80, abs=0.03)


def test_who_keeps_every_upload_learns_more_than_from_one() -> None:
    shard = gaussian_shard(20, 60, 10, SPECTRUM)
    found = attacked(shard, [told_by(shard, 0.3, seed) for seed in range(20)])
    once = found["stronger"]["likelihood"]["summary"]["auc"]["mean"]
    assert found["stronger"]["accumulated"]["summary"]["auc"]["mean"] > once + 0.05


def test_too_few_non_members_are_told() -> None:
    few = gaussian_shard(10, 10, 3, torch.ones(8))
    summary = attacked(few, [told_by(few, 0.0)])["summary"]
    assert "3 of 3 classes" in summary["tpr_at_1fpr"]["note"]
    assert "note" not in summary["auc"]
    many = gaussian_shard(10, 100, 3, torch.ones(8))
    assert "note" not in attacked(many, [told_by(many, 0.0)])["summary"]["tpr_at_1fpr"]


def test_the_nearest_of_several_prototypes_counts() -> None:
    features, labels = torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 1])
    told = Prototypes(torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), torch.tensor([0, 0, 2]))
    assert nearness(features, labels, told).tolist() == [-1.0, -torch.inf]


def test_candidates_are_capped_the_same_every_time_and_only_of_shared_classes() -> None:
    labels = torch.cat([torch.zeros(CAP + 50), torch.ones(5), torch.full((4,), 2)]).long()
    train = Samples(torch.arange(len(labels)).float()[:, None].repeat(1, 2), labels)
    test = Samples(torch.zeros(12, 2), torch.tensor([0] * 6 + [1] * 4 + [3] * 2))
    first, again = (candidates_of(Shard(train, test), "client", Streams(3)) for _ in range(2))
    assert first is not None
    assert again is not None
    assert first.classes.tolist() == [0, 1]
    assert first.sizes.tolist() == [CAP + 50, 5]
    assert len(first.members) == CAP + 5
    assert first.outsiders.tolist() == [6, 4]
    assert torch.equal(first.members, again.members)
    assert torch.equal(first.labellings, again.labellings)
    assert candidates_of(Shard(train, Samples(torch.zeros(1, 2), torch.tensor([7]))), "c", Streams(0)) is None


def test_each_class_finds_its_own_candidates_members_first() -> None:
    shard = gaussian_shard(7, 5, 3, torch.ones(4))
    who = candidates_of(shard, "client", Streams(0))
    assert who is not None
    for row in range(3):
        found = who.place[row][who.present[row]]
        assert (who.owner[found] == row).all()
        assert ((found < len(who.members)) == who.labellings[row, : len(found), 0]).all()
    parts = [part for pair in who.folds for part in pair]
    assert sorted(i for part in parts for i in range(part.start, part.stop)) == list(range(len(who.owner)))
