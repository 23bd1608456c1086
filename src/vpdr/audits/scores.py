"""How an attacker turns what was sent into one number: the larger, the more it looks like the second world.

Whatever the score is, the certificate holds: scores are fixed on some runs and judged on others.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.audits.evidence import Evidence, Shape
from vpdr.audits.intervals import Scores

Score: TypeAlias = Callable[[Evidence], float]
Variances: TypeAlias = Float[Tensor, "t p"]
_CERTAIN = 1e12  # of a shape that only one world can have
_LEAST = 1e-12  # share of the signal below which noise counts as none
_SHRINK = 0.1  # of the average variance, added to every learnt one


def fitted(runs: Sequence[Evidence]) -> dict[str, Score]:
    """Every attacker that these runs can teach, by name."""
    shapes = ByShape.of(runs)
    common = Counter(run.shape for run in runs if run.distances is not None).most_common(1)
    if not common:
        return {"shape": shapes}
    alike = [run for run in runs if run.distances is not None and run.shape == common[0][0]]
    if {run.world for run in alike} != {0, 1}:
        return {"shape": shapes}
    together, apart = variances(alike)
    uploads = len(common[0][0])
    sent, kept = slice(uploads), slice(uploads, None)
    found: dict[str, Score] = {
        "shift": Ratio(shapes, common[0][0], together, together, sent),
        "shift and scale": Ratio(shapes, common[0][0], *apart, sent),
        "learnt from the last upload": Learnt.of(alike, shapes, _last),
    }
    if len(together) > uploads:
        found["shift of what is remembered"] = Ratio(shapes, common[0][0], together, together, kept)
    if all(run.average is not None for run in alike):
        found["learnt from the average upload"] = Learnt.of(alike, shapes, _average)
    return found


def scored(score: Score, runs: Sequence[Evidence]) -> tuple[Scores, Scores]:
    """The scores of the runs of each world."""
    found = [np.array([score(run) for run in runs if run.world == world]) for world in (0, 1)]
    return found[0], found[1]


@dataclass(frozen=True, slots=True)
class ByShape:
    """By the shape alone: certain where one world cannot have it, learnt where noise decides it."""

    first: Counter[Shape]
    second: Counter[Shape]

    @classmethod
    def of(cls, runs: Sequence[Evidence]) -> "ByShape":
        """How often each world had each shape."""
        counts = [Counter(run.shape for run in runs if run.world == world) for world in (0, 1)]
        return cls(counts[0], counts[1])

    def __call__(self, run: Evidence) -> float:
        """Which world can have sent this shape."""
        learnt = float(np.log1p(self.second[run.shape]) - np.log1p(self.first[run.shape]))
        return _CERTAIN * (int(run.possible[1]) - int(run.possible[0])) + learnt


@dataclass(frozen=True, slots=True)
class Ratio:
    """The logarithm of the likelihood ratio for Gaussian noise around the two expectations."""

    otherwise: Score
    shape: Shape
    first: Variances
    second: Variances
    part: slice  # which rows of the distances: those of uploads, or those of a public memory

    def __call__(self, run: Evidence) -> float:
        """Log-likelihood of the second world minus that of the first."""
        if run.distances is None or run.shape != self.shape:
            return self.otherwise(run)
        near, far = run.distances
        volume = run.width / 2 * (self.first / self.second).log()
        return float((near / self.first / 2 - far / self.second / 2 + volume)[self.part].sum())


def variances(runs: Sequence[Evidence]) -> tuple[Variances, tuple[Variances, Variances]]:
    """Noise of each row in each round for both worlds together, and for each world by its own level."""
    worlds = []
    for world in (0, 1):
        own = [run.distances[world] for run in runs if run.world == world and run.distances is not None]
        worlds.append(torch.stack(own).mean(0) / runs[0].width)
    least = _LEAST * max(run.energy for run in runs) + 1e-300
    together = ((worlds[0] + worlds[1]) / 2).clamp(min=least)
    levels = [(own / together).mean(0, keepdim=True).clamp(min=_LEAST) for own in worlds]
    return together, (together * levels[0], together * levels[1])


def _average(run: Evidence) -> Tensor | None:
    return run.average


def _last(run: Evidence) -> Tensor | None:
    return run.last


@dataclass(frozen=True, slots=True)
class Learnt:
    """A linear discriminant from runs alone, for mechanisms whose silence says little."""

    otherwise: Score
    look: Callable[[Evidence], Tensor | None]
    weights: Float[Tensor, " k"]

    @classmethod
    def of(
        cls, runs: Sequence[Evidence], otherwise: Score, look: Callable[[Evidence], Tensor | None]
    ) -> "Learnt":
        """Difference of the means over the pooled variance of each coordinate."""
        worlds = []
        for world in (0, 1):
            rows = [look(run) for run in runs if run.world == world]
            worlds.append(torch.stack([row for row in rows if row is not None]))
        spread = torch.cat([own - own.mean(0) for own in worlds]).square().mean(0)
        ridge = _SHRINK * spread.mean() + 1e-300
        return cls(otherwise, look, (worlds[1].mean(0) - worlds[0].mean(0)) / (spread + ridge))

    def __call__(self, run: Evidence) -> float:
        """How far the run lies in the direction of the second world."""
        row = self.look(run)
        if row is None or row.shape != self.weights.shape:
            return self.otherwise(run)
        return float(row @ self.weights)
