"""Scores against scipy, clusters against scikit-learn."""

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import blobs
from vpdr.mechanisms.vpp import anova_scores, top_k_mask
from vpdr.rng import Streams
from vpdr.types import Features


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 6), dim=st.integers(2, 20), offset=st.floats(-1e3, 1e3))
def test_scores_are_the_f_statistic(seed, classes, dim, offset) -> None:
    rng = Streams(seed).generator("x")
    sizes = torch.randint(2, 20, (classes,), generator=rng)
    labels = torch.repeat_interleave(torch.arange(classes), sizes)
    vectors = offset + torch.randn(len(labels), dim, generator=rng, dtype=torch.float64)
    groups = [vectors[labels == c].numpy() for c in range(classes)]
    oracle = scipy.stats.f_oneway(*groups).statistic
    within = sum(((g - g.mean(0)) ** 2).sum(0) for g in groups) / (len(labels) - classes)
    floor = 1e-3 * np.sort(within)[(dim - 1) // 2]  # the lower median, as torch has it
    expected = oracle * within / (within + floor)
    np.testing.assert_allclose(anova_scores(Features(vectors, labels)).numpy(), expected, rtol=1e-6, atol=1e-9)


def test_absent_labels_do_not_count() -> None:
    vectors, labels = blobs(1)
    renamed = labels * 7 + 3
    assert torch.equal(
        anova_scores(Features(vectors.double(), labels)), anova_scores(Features(vectors.double(), renamed))
    )


@pytest.mark.parametrize("labels", [torch.zeros(6, dtype=torch.int64), torch.arange(6)])
def test_without_a_ratio_all_scores_are_zero(labels) -> None:
    vectors = torch.randn(6, 5, generator=Streams(1).generator("x"), dtype=torch.float64)
    assert anova_scores(Features(vectors, labels)).tolist() == [0.0] * 5


def test_a_constant_coordinate_scores_zero() -> None:
    vectors, labels = blobs(1)
    vectors = vectors.double()
    vectors[:, 3] = 1e3
    assert anova_scores(Features(vectors, labels))[3] == pytest.approx(0, abs=1e-9)


def test_ties_go_to_the_lower_index() -> None:
    assert top_k_mask(torch.tensor([1.0, 2.0, 2.0, 2.0, 0.0]), 2).tolist() == [False, True, True, False, False]
