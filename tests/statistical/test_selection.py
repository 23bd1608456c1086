"""The paper's selection is a coin: what the documentation says about it, shown."""

import numpy as np
import pytest
import scipy.stats
import torch

from vpdr import Budget, ReleaseContext, SelectionConfig
from vpdr.mechanisms import NoiseAllocation, SeededNoise
from vpdr.mechanisms.vpp import max_selection_precision
from vpdr.rng import Streams

GROUPS = NoiseAllocation.from_fraction(512, 0.2)
BEST = torch.cat([torch.full((GROUPS.num_selected,), 0.1), torch.zeros(512 - GROUPS.num_selected)]).double()


def inclusions(selection: str, epsilon: float, draws: int) -> np.ndarray:
    """How often each coordinate is selected, for the scores that favour a selection most."""
    calibrated = SelectionConfig(selection=selection).calibrate(Budget(epsilon, 1e-5), 20, GROUPS.num_selected)
    counts = torch.zeros(512, dtype=torch.int64)
    for t in range(draws):
        context = ReleaseContext(noise=SeededNoise(Streams(5).generator(selection, round=t)))
        counts += calibrated.choose(BEST, GROUPS.num_selected, context).mask
    return counts.numpy()


def evenness(counts: np.ndarray, draws: int) -> float:
    """p-value of the hypothesis that every coordinate is equally likely (without replacement)."""
    share = GROUPS.num_selected / 512
    spread = draws * share * (1 - share) * 512 / 511
    statistic = ((counts - draws * share) ** 2).sum() / spread
    return float(scipy.stats.chi2.sf(statistic, 511))


def test_at_the_papers_settings_it_is_like_a_coin() -> None:
    draws = 3000
    laplace, coin = inclusions("laplace", 1.0, draws), inclusions("random", 1.0, draws)
    assert evenness(laplace, draws) > 1e-3
    assert evenness(coin, draws) > 1e-3
    precision = laplace[: GROUPS.num_selected].sum() / (draws * GROUPS.num_selected)
    error = 4 * np.sqrt(0.16 / (draws * GROUPS.num_selected))
    assert precision <= max_selection_precision(GROUPS, 0.005) + error
    assert abs(precision - GROUPS.num_selected / 512) < error + 1e-3


def test_the_same_test_sees_a_selection_that_works() -> None:
    draws = 300
    assert evenness(inclusions("oracle", 1.0, draws), draws) < 1e-12
    strong = inclusions("laplace", 20 * 4120.0, draws)
    assert strong[: GROUPS.num_selected].sum() / (draws * GROUPS.num_selected) > 0.5


@pytest.mark.statistics
@pytest.mark.parametrize("epsilon", [1.0, 8.0, 400.0])
def test_no_draw_beats_the_ceiling(epsilon) -> None:
    draws = 20_000
    counts = inclusions("laplace", epsilon, draws)
    precision = counts[: GROUPS.num_selected].sum() / (draws * GROUPS.num_selected)
    assert precision <= max_selection_precision(GROUPS, 0.1 * epsilon / 20) + 4 * np.sqrt(
        0.16 / (draws * GROUPS.num_selected)
    )


def test_scores_saturate_long_before_they_say_anything() -> None:
    """H = 0.1 cuts the F statistic of a coordinate that tells nothing apart."""
    chance_to_stay_below = scipy.stats.f.cdf(0.1, 9, 9210)
    assert chance_to_stay_below < 5e-4
