"""A first guess at how well a pair can be told apart, from a handful of runs."""

import math
from collections.abc import Sequence

from vpdr.audits.evidence import Evidence
from vpdr.audits.scores import variances

_CLEAR = 4.0  # standard errors beyond which a difference of noise levels is believed


def strength(runs: Sequence[Evidence]) -> float:
    """The Jeffreys divergence of the two worlds if noise is Gaussian; infinite where the shape tells."""
    alike = [run for run in runs if run.distances is not None and run.shape == runs[0].shape]
    if len(alike) < len(runs):
        return math.inf
    together, (first, second) = variances(alike)
    moved = sum(float((run.between / together).sum()) for run in alike if run.between is not None)
    return moved / len(alike) + _by_noise(alike, (second / first)[0].tolist())


def _by_noise(runs: Sequence[Evidence], ratios: Sequence[float]) -> float:
    """What different noise levels add, row by row; chance differences are left out."""
    numbers = runs[0].width * len(runs[0].shape)
    error = math.sqrt(2 * 2 / (numbers * max(1, len(runs) // 2)))
    clear = [ratio for ratio in ratios if abs(math.log(ratio)) > _CLEAR * error]
    return sum(numbers / 2 * (ratio + 1 / ratio - 2) for ratio in clear)
