"""The paper's equations on numbers worked by hand."""

import pytest
import torch

from vpdr import SelectionConfig, Vpp
from vpdr.mechanisms import NoiseAllocation
from vpdr.mechanisms.vpp import SELECTIONS, LaplaceSelection, anova_scores, max_selection_precision
from vpdr.privacy import Budget
from vpdr.types import Features
from vpdr.validation import InvalidInput

BUDGET = Budget(1.0, 1e-5)


def test_scores_by_hand() -> None:
    # classes {1, 3} and {5, 7}: means 2 and 6, grand mean 4, within 4 / (4-2) = 2, between 16 / (2-1) = 16
    vectors = torch.tensor([[1.0], [3.0], [5.0], [7.0]], dtype=torch.float64)
    score = anova_scores(Features(vectors, torch.tensor([0, 0, 1, 1])))
    assert score.item() == pytest.approx(16 / (2 + 0.002))


def test_the_reference_numbers_of_vpp() -> None:
    groups = NoiseAllocation.from_fraction(512, 0.2)
    assert groups.num_selected == 103
    assert groups.group_scales == pytest.approx((0.550, 1.546), abs=5e-4)
    assert groups.relative_energy == pytest.approx(1.971, abs=1e-3)
    calibrated = SelectionConfig().calibrate(BUDGET, 20, groups.num_selected)
    assert isinstance(calibrated, LaplaceSelection)
    assert calibrated.scale == pytest.approx(4120)
    assert calibrated.event.epsilon == pytest.approx(0.005)
    assert calibrated.pure_events is not None
    assert calibrated.pure_events.times == 20


def test_at_one_half_both_groups_get_the_reference_noise() -> None:
    assert NoiseAllocation.from_fraction(512, 0.5).group_scales == pytest.approx((1.0, 1.0))
    assert NoiseAllocation.from_fraction(512, 0.5).relative_energy == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("dim", "keep", "count"), [(100, 0.07, 7), (512, 0.1, 52), (512, 0.2, 103), (10, 0.01, 1), (2, 0.5, 1), (3, 0.5, 2)]
)
def test_ceil_has_a_tolerance_and_both_groups_have_a_member(dim, keep, count) -> None:
    assert NoiseAllocation.from_fraction(dim, keep).num_selected == count


def test_a_selection_once_has_the_whole_share() -> None:
    calibrated = SelectionConfig(selection="once").calibrate(BUDGET, 20, 103)
    assert isinstance(calibrated, LaplaceSelection)
    assert calibrated.scale == pytest.approx(206)
    assert calibrated.pure_events is not None
    assert (calibrated.pure_events.times, calibrated.pure_events.event.epsilon) == (1, pytest.approx(0.1))


@pytest.mark.parametrize(("epsilon", "ceiling"), [(0.5, 0.2004), (1, 0.2008), (2, 0.2016), (4, 0.2032), (8, 0.2065)])
def test_the_ceiling_of_the_papers_selection(epsilon, ceiling) -> None:
    groups = NoiseAllocation.from_fraction(500, 0.2)  # exactly one fifth
    assert max_selection_precision(groups, 0.1 * epsilon / 20) == pytest.approx(ceiling, abs=5e-5)


def test_selections_without_cost_get_the_isotropic_multiplier() -> None:
    for selection in SELECTIONS:
        mechanism = Vpp.calibrated(BUDGET, 20, clip_norm=5.0, dim=512, selection=SelectionConfig(selection=selection))
        noiseless = selection in {"random", "public", "oracle"}
        assert (mechanism.noise_multiplier == mechanism.isotropic_multiplier) is noiseless


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"keep": 0.51}, "above one half"),
        ({"keep": 0.0}, "keep must lie in"),
        ({"cap": 0.0}, "cap must be"),
        ({"share": 0.0}, "share must lie in"),
        ({"share": 1.0}, "share must lie in"),
        ({"selection": "best"}, "unknown selection 'best'"),
    ],
)
def test_impossible_settings_of_a_selection_are_refused(settings, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        SelectionConfig(**settings)


def test_features_of_another_dimension_are_refused() -> None:
    mechanism = Vpp.calibrated(BUDGET, 20, clip_norm=5.0, dim=16)
    with pytest.raises(InvalidInput, match="expected features of 16 dimensions, got 8; calibrate with dim=8"):
        mechanism.release(torch.ones(4, 8), torch.arange(4))
