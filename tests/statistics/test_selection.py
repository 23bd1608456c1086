"""The paper's selection is a coin: what the documentation says about it, shown."""

import numpy as np
import pytest
import scipy.stats
import torch

from vpdr import Budget, Focus, Occasion
from vpdr.mechanisms import Groups, SeededNoise
from vpdr.mechanisms.statement import selection_ceiling
from vpdr.rng import Streams

GROUPS = Groups.of(512, 0.2)
BEST = torch.cat([torch.full((GROUPS.kept,), 0.1), torch.zeros(512 - GROUPS.kept)]).double()


def inclusions(selection: str, epsilon: float, draws: int) -> np.ndarray:
    """How often each coordinate was kept, for the scores that a selection would love most."""
    plan = Focus(selection=selection).plan(Budget(epsilon, 1e-5), 20, GROUPS.kept)
    kept = torch.zeros(512, dtype=torch.int64)
    for t in range(draws):
        occasion = Occasion(noise=SeededNoise(Streams(5).draw(selection, t=t)))
        kept += plan.selection.choose(BEST, GROUPS.kept, occasion).focus
    return kept.numpy()


def evenness(kept: np.ndarray, draws: int) -> float:
    """p-value of the hypothesis that every coordinate is equally likely (without replacement)."""
    share = GROUPS.kept / 512
    spread = draws * share * (1 - share) * 512 / 511
    statistic = ((kept - draws * share) ** 2).sum() / spread
    return float(scipy.stats.chi2.sf(statistic, 511))


def test_at_the_papers_settings_it_cannot_be_told_from_a_coin() -> None:
    draws = 3000
    laplace, coin = inclusions("laplace", 1.0, draws), inclusions("random", 1.0, draws)
    assert evenness(laplace, draws) > 1e-3
    assert evenness(coin, draws) > 1e-3
    precision = laplace[: GROUPS.kept].sum() / (draws * GROUPS.kept)
    error = 4 * np.sqrt(0.16 / (draws * GROUPS.kept))
    assert precision <= selection_ceiling(GROUPS, 0.005) + error
    assert abs(precision - GROUPS.kept / 512) < error + 1e-3


def test_the_same_test_sees_a_selection_that_works() -> None:
    draws = 300
    assert evenness(inclusions("oracle", 1.0, draws), draws) < 1e-12
    strong = inclusions("laplace", 20 * 4120.0, draws)
    assert strong[: GROUPS.kept].sum() / (draws * GROUPS.kept) > 0.5


@pytest.mark.statistics
@pytest.mark.parametrize("epsilon", [1.0, 8.0, 400.0])
def test_no_draw_beats_the_ceiling(epsilon) -> None:
    draws = 20_000
    kept = inclusions("laplace", epsilon, draws)
    precision = kept[: GROUPS.kept].sum() / (draws * GROUPS.kept)
    assert precision <= selection_ceiling(GROUPS, 0.1 * epsilon / 20) + 4 * np.sqrt(
        0.16 / (draws * GROUPS.kept)
    )


def test_scores_saturate_long_before_they_say_anything() -> None:
    """H = 0.1 cuts the F statistic of a coordinate that tells nothing apart."""
    chance_to_stay_below = scipy.stats.f.cdf(0.1, 9, 9210)
    assert chance_to_stay_below < 5e-4
