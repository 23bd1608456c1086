"""Samples so large that arithmetic breaks must not break the guarantee."""

import numpy as np
import pytest
import torch

from tests.conftest import DIM, blobs, opened, vpp
from vpdr import Igpp, ReleaseContext, SystemNoise
from vpdr.mechanisms.vpp import NoiseAllocation, SelectionConfig, anova_scores
from vpdr.privacy import Budget
from vpdr.types import Features
from vpdr.validation import InvalidInput


@pytest.mark.parametrize("size", [1e150, 1e200, 1e308])
def test_one_huge_value_does_not_decide_the_selection(size) -> None:
    """Once an overflowing score became NaN, and a sort puts NaN first: the coordinate was always selected."""
    vectors, labels = blobs(1)
    vectors = vectors.double()
    vectors[0, 5] = size
    scores = anova_scores(Features(vectors, labels))
    assert scores.isfinite().all() or not scores.isnan().any()
    groups = NoiseAllocation.from_fraction(DIM, 0.2)
    selection = SelectionConfig().calibrate(Budget(1.0, 1e-5), 20, groups.num_selected)
    hits = sum(bool(selection.choose(scores, groups.num_selected, ReleaseContext()).mask[5]) for _ in range(300))
    chance = groups.num_selected / DIM
    assert abs(hits / 300 - chance) < 5 * (chance * (1 - chance) / 300) ** 0.5


def test_a_score_that_is_not_a_number_counts_as_zero() -> None:
    groups = NoiseAllocation.from_fraction(DIM, 0.2)
    selection = SelectionConfig().calibrate(Budget(1.0, 1e-5), 20, groups.num_selected)
    scores = torch.full((DIM,), torch.nan, dtype=torch.float64)
    first = [selection.choose(scores, groups.num_selected, ReleaseContext(noise=SystemNoise())).mask for _ in range(20)]
    assert len({tuple(focus.tolist()) for focus in first}) > 1


def test_a_selection_refuses_another_number_of_coordinates() -> None:
    selection = SelectionConfig().calibrate(Budget(1.0, 1e-5), 20, 1)
    with pytest.raises(InvalidInput, match="calibrated for 1 coordinates, asked for 7"):
        selection.choose(torch.zeros(DIM, dtype=torch.float64), 7, ReleaseContext())


@pytest.mark.parametrize("size", [1e200, 1e308])
def test_huge_samples_are_clipped_like_others(size) -> None:
    vectors, labels = blobs(1)
    vectors = vectors.double().numpy()
    vectors[0] *= size / np.abs(vectors[0]).max()
    for mechanism in (Igpp(clip_norm=5.0, noise_multiplier=1e-6), vpp("random")):
        assert opened(mechanism.release(vectors, labels)).prototypes.vectors.isfinite().all()


@pytest.mark.parametrize("radius", [0.0, -1.0, 1e-250, 1e-13, 1e13, 1e78, 1e250, float("nan"), float("inf")])
def test_a_clip_norm_whose_square_overflows_is_refused(radius) -> None:
    with pytest.raises(InvalidInput, match="clip_norm must be"):
        Igpp(clip_norm=radius, noise_multiplier=1.0)
