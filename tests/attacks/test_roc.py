"""Membership metrics against scikit-learn and by hand, and what chance gives."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

from vpdr.attacks.chance import labellings
from vpdr.attacks.roc import METRICS, Ranking
from vpdr.rng import Streams


def measured(scores, members) -> dict[str, float]:
    scores, members = torch.as_tensor(scores), torch.as_tensor(members)
    ranking = Ranking(scores[None], members[None, :, None], torch.ones(1, len(scores), dtype=torch.bool))
    return dict(zip(METRICS, ranking.metrics()[0, 0].tolist(), strict=True))


def expected(scores, members) -> dict[str, float]:
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
@given(
    st.integers(1, 60),
    st.integers(1, 250),
    st.sampled_from([2, 7, 1000]),
    st.integers(0, 10**6),
)
def test_every_metric_agrees_with_scikit_learn_also_with_ties(inside, outside, levels, seed) -> None:
    draw = np.random.default_rng(seed)
    members = np.arange(inside + outside) < inside
    scores = draw.integers(levels, size=len(members)) + 0.3 * levels * members * draw.random()
    found, wanted = measured(np.round(scores), members), expected(np.round(scores), members)
    assert found == pytest.approx(wanted, abs=1e-6)


def test_many_problems_at_once_are_each_their_own() -> None:
    draw = np.random.default_rng(0)
    sizes = [(3, 5), (20, 4), (7, 130)]
    widest = max(map(sum, sizes))
    scores = torch.zeros(3, widest)
    members = torch.zeros(3, widest, 2, dtype=torch.bool)
    present = torch.zeros(3, widest, dtype=torch.bool)
    for row, (inside, outside) in enumerate(sizes):
        size = inside + outside
        scores[row, :size] = torch.from_numpy(draw.integers(9, size=size).astype(np.float32))
        members[row, :inside, 0] = True
        members[row, torch.from_numpy(draw.permutation(size)[:inside]), 1] = True
        present[row, :size] = True
    found = Ranking(scores, members, present).metrics()
    for row, (inside, outside) in enumerate(sizes):
        for column in range(2):
            size = inside + outside
            wanted = expected(scores[row, :size].numpy(), members[row, :size, column].numpy())
            assert found[row, column].tolist() == pytest.approx(list(wanted.values()), abs=1e-6)


def test_by_hand() -> None:
    found = measured([4.0, 3.0, 2.0, 1.0], [True, False, True, False])
    assert found == {
        "auc": 0.75,
        "tpr_at_1fpr": 0.5,
        "tpr_at_1fpr_nearest": 0.0,
        "advantage": 0.5,
        "f1": pytest.approx(0.8),
    }
    apart = measured([4.0, 3.0, 2.0, 1.0], [True, True, False, False])
    assert [apart[name] for name in ("auc", "tpr_at_1fpr", "advantage", "f1")] == [1, 1, 1, 1]


def test_a_curve_rises_from_its_first_threshold_to_one() -> None:
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]])
    members = torch.tensor([[True, False, True, False, False]])[:, :, None]
    heights = Ranking(scores, members, torch.ones(1, 5, dtype=torch.bool)).curves()[0]
    assert heights[0] == heights[32] == 0.5
    assert heights[34] == heights[100] == 1


def chance(inside: int, outside: int, rng: torch.Generator) -> torch.Tensor:
    """Mean metrics of 200 labellings of scores that know nothing."""
    members = labellings(inside, outside, rng, 200)
    present = torch.ones(1, len(members), dtype=torch.bool)
    scores = torch.randn(1, len(members), generator=rng)
    return Ranking(scores, members[None], present).metrics()[0, 1:].mean(0)


def test_chance_alone_on_the_sizes_of_office_caltech() -> None:
    sizes = {"amazon": (23, 19), "caltech": (27, 22), "dslr": (4, 3), "webcam": (7, 6)}  # a class, on average
    rng = Streams(0).draw("office")
    values = torch.stack([chance(*pair, rng) for pair in sizes.values() for _ in range(5)]).mean(0)
    found = dict(zip(METRICS, values.tolist(), strict=True))
    assert found["auc"] == pytest.approx(0.5, abs=0.02)
    assert found["advantage"] == pytest.approx(0.25, abs=0.03)
    assert found["f1"] == pytest.approx(0.73, abs=0.02)
    assert found["tpr_at_1fpr_nearest"] == 0
    assert found["tpr_at_1fpr"] > 0.08


def test_labellings_keep_the_truth_first_and_the_numbers_always() -> None:
    found = labellings(5, 9, Streams(0).draw("labels"), 40)
    assert found[:, 0].tolist() == [True] * 5 + [False] * 9
    assert (found.sum(0) == 5).all()
    assert 0.2 < found[:, 1:].float().mean(1).min() < 0.5
