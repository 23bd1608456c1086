"""Which R a cell reports: the best on a split that the reported accuracy is not from.

R is tuned on private data, by us as by the paper, and no budget accounts for it: every page says so.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vpdr.reproduce.cells import Cell
from vpdr.reproduce.running import Measured, Results


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen R, the runs at it by seed, those of the whole grid, and what the choice looked at."""

    radius: float | None
    runs: Mapping[int, Measured]
    grid: Mapping[float | None, Mapping[int, Measured]]
    by: str  # "validation", "test", or "nothing" where there was no choice


def choose(
    cell: Cell, results: Results, seeds: Sequence[int], select: str = "validation", metric: str = "avg"
) -> Choice | None:
    """The R with the best mean over seeds, ties to the smaller; None where a run is missing."""
    grid: dict[float | None, dict[int, Measured]] = {}
    for radius in cell.radii:
        for seed in seeds:
            found = results.get(cell.identity(radius, seed))
            if found is None:
                return None
            grid.setdefault(radius, {})[seed] = found
    if not grid:
        return None
    if len(grid) == 1:
        (radius,) = grid
        return Choice(radius, grid[radius], grid, "nothing")
    validated = all(run.validation is not None for runs in grid.values() for run in runs.values())
    by = "validation" if select == "validation" and validated else "test"
    scores = {radius: score(runs, by, metric) for radius, runs in grid.items()}
    best = max(sorted(scores, key=lambda r: -1.0 if r is None else r), key=lambda radius: scores[radius])
    return Choice(best, grid[best], grid, by)


def score(runs: Mapping[int, Measured], by: str, metric: str) -> float:
    """The mean over seeds of what a choice looks at."""
    if by == "validation":
        return statistics.fmean(run.validation for run in runs.values() if run.validation is not None)
    return statistics.fmean(run.reading.get(metric, float("-inf")) for run in runs.values())
