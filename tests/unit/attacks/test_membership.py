"""Membership inference on data with known memberships."""

import pytest
import torch

from tests.unit.attacks.attack_cases import gaussian_shard
from vpdr.attacks.membership import (
    MAX_CANDIDATES,
    CandidateFeatures,
    MembershipScores,
    fit_covariance,
    membership_log_ratios,
    membership_result,
    negative_distance,
    sample_candidates,
)
from vpdr.client import Samples, Shard
from vpdr.prototypes import ClassMeans
from vpdr.records import AttackResult
from vpdr.rng import Streams
from vpdr.types import Prototypes

# A spectrum with an effective dimension of about 40, like that of the study's features.
SPECTRUM = torch.cat([torch.full((28,), 1.0), torch.full((100,), 0.05)])


def noisy_upload(shard: Shard, noise: float, seed: int = 1) -> Prototypes:
    means = ClassMeans()(shard.train.frozen_features, shard.train.labels)
    rng = Streams(seed).generator("noise")
    return Prototypes(means.vectors + noise * torch.randn(means.vectors.shape, generator=rng), means.labels)


def membership_metrics(shard: Shard, uploads: list[Prototypes]) -> AttackResult:
    """All three adversaries on one client."""
    candidates = sample_candidates(shard, "client", Streams(0))
    assert candidates is not None
    covariance = fit_covariance(candidates, shard.test.frozen_features[candidates.non_member_rows])
    features = torch.cat(
        [shard.train.frozen_features[candidates.member_rows], shard.test.frozen_features[candidates.non_member_rows]]
    )
    labels = candidates.classes[candidates.class_index]
    encoded = CandidateFeatures(features, torch.ones(len(features)), features.square().sum(1))
    values = [
        torch.stack(
            [
                negative_distance(features, labels, upload),
                membership_log_ratios(candidates, covariance, encoded, upload).double(),
            ]
        )
        for upload in uploads
    ]
    count = len(uploads)
    present = torch.ones(count, len(candidates.classes), dtype=torch.bool)
    scores = MembershipScores(candidates, list(range(1, count + 1)), torch.stack(values), present, [True] * count)
    return membership_result({"client": scores}, "client")


def test_without_a_leak_every_interval_covers_chance() -> None:
    whole = gaussian_shard(40, 40, 10, SPECTRUM)
    candidates, used = (whole.train.take(torch.arange(start, 400, 2)) for start in range(2))
    result = membership_metrics(Shard(candidates, whole.test), [noisy_upload(Shard(used, whole.test), 0.0)])
    for adversary in (result, *result.stronger.values()):
        auc, advantage = adversary.summary["auc"], adversary.summary["advantage"]
        assert auc.mean == pytest.approx(0.5, abs=0.05)
        assert auc.low <= 0 <= auc.high
        assert advantage.low <= 0 <= advantage.high
        assert advantage.null > 0.13


def test_the_interval_covers_chance_as_often_as_it_says() -> None:
    covered = []
    for seed in range(40):
        shard = gaussian_shard(12, 12, 4, torch.ones(16), seed=seed)
        result = membership_metrics(shard, [noisy_upload(shard, 50.0, seed)]).summary["advantage"]
        covered.append(result.low <= 0 <= result.high)
    assert sum(covered) >= 34


def test_separated_members_are_distinguished() -> None:
    shard = gaussian_shard(30, 30, 5, SPECTRUM, shift=9.0)
    result = membership_metrics(shard, [noisy_upload(shard, 0.0)])
    for metric in ("auc", "tpr_at_1fpr", "advantage", "f1"):
        assert result.summary[metric].mean == 1
        assert result.pooled[metric].mean == 1
    assert result.summary["advantage"].low > 0.5


def test_the_likelihood_ratio_beats_the_distance_without_privacy() -> None:
    aucs = []
    for seed in range(4):
        shard = gaussian_shard(20, 150, 10, SPECTRUM, seed=seed)
        result = membership_metrics(shard, [noisy_upload(shard, 0.0)])
        aucs.append([result.summary["auc"].mean, result.stronger["likelihood"].summary["auc"].mean])
    distance, likelihood = torch.tensor(aucs).mean(0).tolist()
    assert distance == pytest.approx(0.62, abs=0.03)
    assert likelihood == pytest.approx(0.80, abs=0.03)


def test_all_uploads_together_show_more_than_one() -> None:
    shard = gaussian_shard(20, 60, 10, SPECTRUM)
    result = membership_metrics(shard, [noisy_upload(shard, 0.3, seed) for seed in range(20)])
    once = result.stronger["likelihood"].summary["auc"].mean
    assert result.stronger["accumulated"].summary["auc"].mean > once + 0.05


def test_too_few_non_members_are_noted() -> None:
    few = gaussian_shard(10, 10, 3, torch.ones(8))
    summary = membership_metrics(few, [noisy_upload(few, 0.0)]).summary
    assert "3 of 3 classes" in str(summary["tpr_at_1fpr"].note)
    assert summary["auc"].note is None
    many = gaussian_shard(10, 100, 3, torch.ones(8))
    assert membership_metrics(many, [noisy_upload(many, 0.0)]).summary["tpr_at_1fpr"].note is None


def test_the_nearest_of_several_prototypes_counts() -> None:
    features, labels = torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 1])
    upload = Prototypes(torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), torch.tensor([0, 0, 2]))
    assert negative_distance(features, labels, upload).tolist() == [-1.0, -torch.inf]


def test_candidates_are_capped_the_same_every_time_and_only_of_shared_classes() -> None:
    labels = torch.cat([torch.zeros(MAX_CANDIDATES + 50), torch.ones(5), torch.full((4,), 2)]).long()
    train = Samples(torch.arange(len(labels)).float()[:, None].repeat(1, 2), labels)
    test = Samples(torch.zeros(12, 2), torch.tensor([0] * 6 + [1] * 4 + [3] * 2))
    first, again = (sample_candidates(Shard(train, test), "client", Streams(3)) for _ in range(2))
    assert first is not None
    assert again is not None
    assert first.classes.tolist() == [0, 1]
    assert first.train_counts.tolist() == [MAX_CANDIDATES + 50, 5]
    assert len(first.member_rows) == MAX_CANDIDATES + 5
    assert first.non_member_counts.tolist() == [6, 4]
    assert torch.equal(first.member_rows, again.member_rows)
    assert torch.equal(first.memberships, again.memberships)
    assert sample_candidates(Shard(train, Samples(torch.zeros(1, 2), torch.tensor([7]))), "c", Streams(0)) is None


def test_the_rows_of_each_class_list_its_candidates_members_first() -> None:
    shard = gaussian_shard(7, 5, 3, torch.ones(4))
    candidates = sample_candidates(shard, "client", Streams(0))
    assert candidates is not None
    for label in range(3):
        rows = candidates.rows_by_class[label][candidates.mask[label]]
        assert (candidates.class_index[rows] == label).all()
        assert ((rows < len(candidates.member_rows)) == candidates.memberships[label, : len(rows), 0]).all()
    parts = [part for pair in candidates.fold_slices for part in pair]
    assert sorted(i for part in parts for i in range(part.start, part.stop)) == list(range(len(candidates.class_index)))
