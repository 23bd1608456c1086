"""Attackers of the distinguishing game.

Each run is reduced to a `TrialSummary`: its shape, and its distance from what each world is expected to
upload. An attacker maps a summary to a score; larger scores speak for the second world. The same distances rate
pairs of neighbours by how easy they are to distinguish.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.audits.statistics import ScoreArray
from vpdr.audits.target import AuditTarget, NeighbourPair, NoiseFactory, Transcript, Trial, ZeroNoise, random_pairs
from vpdr.client import Samples
from vpdr.types import Prototypes

TranscriptShape: TypeAlias = tuple[tuple[int, ...], ...]
RowVariances: TypeAlias = Float[Tensor, "t p"]

_MIN_VARIANCE = 1e-300
_IMPOSSIBLE_SHAPE_SCORE = 1e12  # of a shape that only one world can have
_MIN_RELATIVE_VARIANCE = 1e-12  # smaller noise, relative to the signal, counts as none
_SHRINKAGE = 0.1  # share of the average variance that is added to every estimated one
_SIGNIFICANT_Z = 4.0  # standard errors beyond which a difference of noise levels counts


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSummary:
    """One run, reduced to what the attackers use."""

    world: int
    shape: TranscriptShape
    shape_possible: tuple[bool, bool]  # whether each world would have uploaded this shape
    distances: Float[Tensor, "2 t p"] | None = None  # squared; None if the shapes differ
    expectation_distances: Float[Tensor, "t p"] | None = None  # between the two expectations, squared
    mean_upload: Float[Tensor, " k"] | None = None  # over rounds, if all rounds have the same shape
    last_upload: Float[Tensor, " k"] | None = None
    mean_square: float = 0.0
    row_width: int = 0  # numbers in a row


Attacker: TypeAlias = Callable[[TrialSummary], float]


def summarise_trial(trial: Trial, clip_norm: float) -> TrialSummary:
    """Reduce a run to its summary."""
    uploads = trial.transcript.uploads
    shape = transcript_shape(uploads)
    first_shape, second_shape = (transcript_shape(expected.uploads) for expected in trial.expected)
    possible = (first_shape == shape, second_shape == shape)
    if not all(possible) or not all(shape):
        return TrialSummary(world=trial.world, shape=shape, shape_possible=possible)
    rows = _pad_rounds(trial.transcript, clip_norm)
    first, second = (_pad_rounds(expected, clip_norm) for expected in trial.expected)
    return TrialSummary(
        world=trial.world,
        shape=shape,
        shape_possible=possible,
        distances=torch.stack([(rows - expected).square().sum(2) for expected in (first, second)]),
        expectation_distances=(first - second).square().sum(2),
        mean_upload=rows[: len(uploads)].mean(0).flatten() if len(set(shape)) == 1 else None,
        last_upload=standardise_upload(uploads[-1], clip_norm).flatten(),
        mean_square=float(rows.square().mean()),
        row_width=rows.shape[2],
    )


def transcript_shape(uploads: Sequence[Prototypes]) -> TranscriptShape:
    """The labels of the prototypes of each round."""
    return tuple(tuple(upload.labels.tolist()) for upload in uploads)


def standardise_upload(upload: Prototypes, clip_norm: float) -> Float[Tensor, "p k"]:
    """Prototypes in units of their noise if variances are published, with the inverse noise as a column."""
    vectors = upload.vectors.double()
    if upload.variances is None:
        return vectors
    stds = upload.variances.double().clamp(min=_MIN_VARIANCE).sqrt()[:, None]
    return torch.cat([vectors, torch.full_like(stds, clip_norm)], dim=1) / stds


def _pad_rounds(transcript: Transcript, clip_norm: float) -> Float[Tensor, "t p k"]:
    """All rounds as one tensor, padded with zeros in the same way in both worlds."""
    blocks = [standardise_upload(upload, clip_norm) for upload in (*transcript.uploads, *transcript.state_features)]
    width = max(block.shape[1] for block in blocks)
    padded = [torch.nn.functional.pad(block, (0, width - block.shape[1])) for block in blocks]
    return torch.nn.utils.rnn.pad_sequence(padded, batch_first=True)


def fit_attackers(runs: Sequence[TrialSummary]) -> dict[str, Attacker]:
    """All attackers that can be fitted to these runs, by name, simplest first."""
    by_shape = ShapeAttacker.fit(runs)
    common = Counter(run.shape for run in runs if run.distances is not None).most_common(1)
    if not common:
        return {"shape": by_shape}
    shape = common[0][0]
    comparable = [run for run in runs if run.distances is not None and run.shape == shape]
    if {run.world for run in comparable} != {0, 1}:
        return {"shape": by_shape}
    pooled, by_world = estimate_variances(comparable)
    upload_rows, state_rows = slice(len(shape)), slice(len(shape), None)
    attackers: dict[str, Attacker] = {
        "shift": LikelihoodRatioAttacker(by_shape, shape, pooled, pooled, upload_rows),
        "shift and scale": LikelihoodRatioAttacker(by_shape, shape, *by_world, upload_rows),
        "learnt from the last upload": LinearDiscriminantAttacker.fit(comparable, by_shape, attrgetter("last_upload")),
    }
    if len(pooled) > len(shape):
        attackers["shift of what is remembered"] = LikelihoodRatioAttacker(by_shape, shape, pooled, pooled, state_rows)
    if all(run.mean_upload is not None for run in comparable):
        discriminant = LinearDiscriminantAttacker.fit(comparable, by_shape, attrgetter("mean_upload"))
        attackers["learnt from the average upload"] = discriminant
    return attackers


def score_by_world(attacker: Attacker, runs: Sequence[TrialSummary]) -> tuple[ScoreArray, ScoreArray]:
    """The scores of the runs of each world."""
    first, second = (np.array([attacker(run) for run in runs if run.world == world]) for world in (0, 1))
    return first, second


@dataclass(frozen=True, slots=True)
class ShapeAttacker:
    """Decides by the shape alone: certain if one world cannot have it, otherwise by its frequency."""

    first_counts: Counter[TranscriptShape]
    second_counts: Counter[TranscriptShape]

    @classmethod
    def fit(cls, runs: Sequence[TrialSummary]) -> "ShapeAttacker":
        """Count the shapes of each world."""
        return cls(*(Counter(run.shape for run in runs if run.world == world) for world in (0, 1)))

    def __call__(self, run: TrialSummary) -> float:
        """The log-ratio of the frequencies, after the possibility of the shape."""
        log_ratio = float(np.log1p(self.second_counts[run.shape]) - np.log1p(self.first_counts[run.shape]))
        first, second = run.shape_possible
        return _IMPOSSIBLE_SHAPE_SCORE * (int(second) - int(first)) + log_ratio


@dataclass(frozen=True, slots=True)
class LikelihoodRatioAttacker:
    """The log-likelihood ratio for Gaussian noise around the two expectations."""

    fallback: Attacker  # for runs of another shape
    shape: TranscriptShape
    first_variances: RowVariances
    second_variances: RowVariances
    rows: slice  # the rows of uploads, or those of a public mechanism state

    def __call__(self, run: TrialSummary) -> float:
        """Log-likelihood of the second world minus that of the first."""
        if run.distances is None or run.shape != self.shape:
            return self.fallback(run)
        to_first, to_second = run.distances
        log_volume = run.row_width / 2 * (self.first_variances / self.second_variances).log()
        by_row = to_first / self.first_variances / 2 - to_second / self.second_variances / 2 + log_volume
        return float(by_row[self.rows].sum())


def estimate_variances(runs: Sequence[TrialSummary]) -> tuple[RowVariances, tuple[RowVariances, RowVariances]]:
    """Noise variance of each row and round: pooled over both worlds, and at the level of each world."""
    worlds = []
    for world in (0, 1):
        own = [run.distances[world] for run in runs if run.world == world and run.distances is not None]
        worlds.append(torch.stack(own).mean(0) / runs[0].row_width)
    smallest = _MIN_RELATIVE_VARIANCE * max(run.mean_square for run in runs) + _MIN_VARIANCE
    pooled = ((worlds[0] + worlds[1]) / 2).clamp(min=smallest)
    levels = [(own / pooled).mean(0, keepdim=True).clamp(min=_MIN_RELATIVE_VARIANCE) for own in worlds]
    return pooled, (pooled * levels[0], pooled * levels[1])


@dataclass(frozen=True, slots=True)
class LinearDiscriminantAttacker:
    """A linear discriminant learnt from runs, for mechanisms whose expectation without noise says little."""

    fallback: Attacker  # for runs of another shape
    extract: Callable[[TrialSummary], Tensor | None]
    weights: Float[Tensor, " k"]

    @classmethod
    def fit(
        cls, runs: Sequence[TrialSummary], fallback: Attacker, extract: Callable[[TrialSummary], Tensor | None]
    ) -> "LinearDiscriminantAttacker":
        """Difference of the means over the pooled variance of each coordinate."""
        worlds = [
            torch.stack([row for run in runs if run.world == world and (row := extract(run)) is not None])
            for world in (0, 1)
        ]
        variances = torch.cat([own - own.mean(0) for own in worlds]).square().mean(0)
        ridge = _SHRINKAGE * variances.mean() + _MIN_VARIANCE
        return cls(fallback, extract, (worlds[1].mean(0) - worlds[0].mean(0)) / (variances + ridge))

    def __call__(self, run: TrialSummary) -> float:
        """The projection on the direction of the second world."""
        row = self.extract(run)
        if row is None or row.shape != self.weights.shape:
            return self.fallback(run)
        return float(row @ self.weights)


def jeffreys_divergence(runs: Sequence[TrialSummary]) -> float:
    """Jeffreys divergence of the two worlds for Gaussian noise, from few runs; infinite if shapes differ."""
    comparable = [run for run in runs if run.distances is not None and run.shape == runs[0].shape]
    if len(comparable) < len(runs):
        return math.inf
    pooled, (first, second) = estimate_variances(comparable)
    shift = sum(
        float((run.expectation_distances / pooled).sum()) for run in comparable if run.expectation_distances is not None
    )
    # The part that comes from different noise levels; insignificant differences are left out.
    numbers = runs[0].row_width * len(runs[0].shape)
    error = math.sqrt(2 * 2 / (numbers * max(1, len(runs) // 2)))
    ratios: list[float] = (second / first)[0].tolist()
    significant = [ratio for ratio in ratios if abs(math.log(ratio)) > _SIGNIFICANT_Z * error]
    return shift / len(comparable) + sum(numbers / 2 * (ratio + 1 / ratio - 2) for ratio in significant)


def most_sensitive_replacement(target: AuditTarget, noise: NoiseFactory) -> NeighbourPair:
    """Of many random replacements, the one that changes the first upload most.

    Summarisers that adapt to the data have counter-examples that nobody plants by hand.
    """
    return max(random_pairs(target), key=lambda pair: replacement_effect(target, pair, noise))


def replacement_effect(target: AuditTarget, pair: NeighbourPair, noise: NoiseFactory) -> float:
    """How far the first upload without noise moves, in squared standard deviations of the noise."""

    def first_upload(samples: Samples, noise: NoiseFactory) -> Transcript:
        return Transcript((target.release(target.make_client(samples, noise()), 1),))

    before, after = (first_upload(samples, ZeroNoise) for samples in pair.datasets)
    if transcript_shape(before.uploads) != transcript_shape(after.uploads):
        return math.inf
    noisy, shifted = (
        summarise_trial(Trial(0, transcript, (before, before)), target.clip_norm)
        for transcript in (first_upload(pair.first, noise), after)
    )
    if noisy.distances is None or shifted.distances is None:
        return 0.0
    variances = (noisy.distances[0] / noisy.row_width).clamp(min=_MIN_VARIANCE)
    return float((shifted.distances[0] / variances).sum())
