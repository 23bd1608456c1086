"""Membership metrics against scikit-learn and by hand, and their null values."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

from vpdr.attacks.membership import MEMBERSHIP_METRICS, Ranking, permuted_memberships
from vpdr.rng import Streams


def compute_metrics(scores, members) -> dict[str, float]:
    scores, members = torch.as_tensor(scores), torch.as_tensor(members)
    ranking = Ranking(scores[None], members[None, :, None], torch.ones(1, len(scores), dtype=torch.bool))
    return dict(zip(MEMBERSHIP_METRICS, ranking.metrics()[0, 0].tolist(), strict=True))


def sklearn_metrics(scores, members) -> dict[str, float]:
    """The same from scikit-learn's curves."""
    fpr, tpr, _ = roc_curve(members, scores, drop_intermediate=False)
    precision, recall, _ = precision_recall_curve(members, scores)
    with np.errstate(invalid="ignore"):
        f1 = np.nan_to_num(2 * precision * recall / (precision + recall))
    distance = np.round(np.abs(fpr - 0.01), 9)
    return {
        "auc": roc_auc_score(members, scores),
        "tpr_at_1fpr": tpr[fpr <= 0.01 + 1e-12].max(),
        "tpr_at_1fpr_nearest": tpr[distance == distance.min()][0],
        "advantage": (tpr - fpr).max(),
        "f1": f1.max(),
    }


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 60), st.integers(1, 250), st.sampled_from([2, 7, 1000]), st.integers(0, 10**6))
def test_every_metric_agrees_with_scikit_learn_also_with_ties(n_members, n_others, levels, seed) -> None:
    draw = np.random.default_rng(seed)
    members = np.arange(n_members + n_others) < n_members
    scores = draw.integers(levels, size=len(members)) + 0.3 * levels * members * draw.random()
    metrics, expected = compute_metrics(np.round(scores), members), sklearn_metrics(np.round(scores), members)
    assert metrics == pytest.approx(expected, abs=1e-6)


def test_problems_of_one_batch_are_independent() -> None:
    draw = np.random.default_rng(0)
    sizes = [(3, 5), (20, 4), (7, 130)]
    widest = max(map(sum, sizes))
    scores = torch.zeros(3, widest)
    members = torch.zeros(3, widest, 2, dtype=torch.bool)
    mask = torch.zeros(3, widest, dtype=torch.bool)
    for row, (n_members, n_others) in enumerate(sizes):
        size = n_members + n_others
        scores[row, :size] = torch.from_numpy(draw.integers(9, size=size).astype(np.float32))
        members[row, :n_members, 0] = True
        members[row, torch.from_numpy(draw.permutation(size)[:n_members]), 1] = True
        mask[row, :size] = True
    metrics = Ranking(scores, members, mask).metrics()
    for row, (n_members, n_others) in enumerate(sizes):
        for column in range(2):
            size = n_members + n_others
            expected = sklearn_metrics(scores[row, :size].numpy(), members[row, :size, column].numpy())
            assert metrics[row, column].tolist() == pytest.approx(list(expected.values()), abs=1e-6)


def test_the_metrics_of_four_candidates_by_hand() -> None:
    metrics = compute_metrics([4.0, 3.0, 2.0, 1.0], [True, False, True, False])
    assert metrics == {
        "auc": 0.75,
        "tpr_at_1fpr": 0.5,
        "tpr_at_1fpr_nearest": 0.0,
        "advantage": 0.5,
        "f1": pytest.approx(0.8),
    }
    separated = compute_metrics([4.0, 3.0, 2.0, 1.0], [True, True, False, False])
    assert [separated[name] for name in ("auc", "tpr_at_1fpr", "advantage", "f1")] == [1, 1, 1, 1]


def test_a_curve_rises_from_its_first_threshold_to_one() -> None:
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]])
    members = torch.tensor([[True, False, True, False, False]])[:, :, None]
    heights = Ranking(scores, members, torch.ones(1, 5, dtype=torch.bool)).roc_curves()[0]
    assert heights[0] == heights[32] == 0.5
    assert heights[34] == heights[100] == 1


def null_metrics(n_members: int, n_others: int, rng: torch.Generator) -> torch.Tensor:
    """Mean metrics of random scores under 200 random memberships."""
    members = permuted_memberships(n_members, n_others, rng, 200)
    mask = torch.ones(1, len(members), dtype=torch.bool)
    scores = torch.randn(1, len(members), generator=rng)
    return Ranking(scores, members[None], mask).metrics()[0, 1:].mean(0)


def test_chance_alone_on_the_sizes_of_office_caltech() -> None:
    sizes = {"amazon": (23, 19), "caltech": (27, 22), "dslr": (4, 3), "webcam": (7, 6)}  # a class, on average
    rng = Streams(0).generator("office")
    values = torch.stack([null_metrics(*pair, rng) for pair in sizes.values() for _ in range(5)]).mean(0)
    metrics = dict(zip(MEMBERSHIP_METRICS, values.tolist(), strict=True))
    assert metrics["auc"] == pytest.approx(0.5, abs=0.02)
    assert metrics["advantage"] == pytest.approx(0.25, abs=0.03)
    assert metrics["f1"] == pytest.approx(0.73, abs=0.02)
    assert metrics["tpr_at_1fpr_nearest"] == 0
    assert metrics["tpr_at_1fpr"] > 0.08


def test_permuted_memberships_keep_the_truth_first_and_the_counts() -> None:
    memberships = permuted_memberships(5, 9, Streams(0).generator("labels"), 40)
    assert memberships[:, 0].tolist() == [True] * 5 + [False] * 9
    assert (memberships.sum(0) == 5).all()
    assert 0.2 < memberships[:, 1:].float().mean(1).min() < 0.5
