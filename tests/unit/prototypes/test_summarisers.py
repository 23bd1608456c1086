"""Class means and class sums on numbers worked by hand."""

import math

import pytest
import torch

from vpdr import ClassMeans, ClassSums
from vpdr.privacy import Adjacency


def test_class_means_and_their_sensitivity() -> None:
    summary = ClassMeans()(torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]]), torch.tensor([1, 1, 4]))
    assert summary.labels.tolist() == [1, 4]
    assert summary.vectors.tolist() == [[2.0, 1.0], [5.0, 5.0]]
    assert summary.sizes.tolist() == [2, 1]
    unit = ClassMeans().sensitivity(Adjacency.REPLACE_SAME_LABEL, 5.0, summary.sizes)
    assert unit.tolist() == [5.0, 10.0]  # 2R/n


def test_classes_below_the_minimum_are_left_out() -> None:
    summary = ClassMeans(min_count=2)(torch.ones(3, 2), torch.tensor([1, 1, 4]))
    assert summary.labels.tolist() == [1]


def test_class_sums_and_their_sensitivity() -> None:
    rule = ClassSums(classes=3)
    summary = rule(torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]]), torch.tensor([1, 1, 2]))
    assert summary.vectors.tolist() == [[0.0, 0.0], [4.0, 2.0], [5.0, 5.0]]
    assert summary.sizes.tolist() == [0, 2, 1]
    for adjacency, unit in zip(Adjacency, (10.0, 10.0, 5 * math.sqrt(2)), strict=True):
        assert rule.sensitivity(adjacency, 5.0, summary.sizes).tolist() == pytest.approx([unit] * 3)
    assert [rule.counts_are_private(adjacency) for adjacency in Adjacency] == [False, True, True]
    finished = rule.postprocess(summary.vectors, torch.tensor([-3.0, 2.0, 4.0]))
    assert finished.tolist() == [[0.0, 0.0], [2.0, 1.0], [1.25, 1.25]]
