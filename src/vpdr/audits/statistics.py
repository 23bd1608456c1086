"""From runs of the distinguishing game to scores, and from scores to bounds that hold at a stated confidence.

Each run is reduced to a `TrialSummary`: its shape, and its distance from what each world is expected to upload. An
attacker maps a summary to a score; larger scores speak for the second world. A threshold on the score is a test,
and the rates of the test bound the privacy loss, whatever the distribution of the scores.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import torch
from scipy.special import betaincinv, ndtr, ndtri

from vpdr.audits.target import AuditTarget, NeighbourPair, NoiseFactory, Transcript, Trial, ZeroNoise
from vpdr.client import Samples
from vpdr.types import Float, Prototypes, Tensor

ScoreArray = Float[np.ndarray, " n"]
RateArray = Float[np.ndarray, " k"]
TranscriptShape = tuple[tuple[int, ...], ...]
RowVariances = Float[Tensor, "t p"]

_MIN_VARIANCE = 1e-300
_IMPOSSIBLE_SHAPE_SCORE = 1e12  # of a shape that only one world can have
_MIN_RELATIVE_VARIANCE = 1e-12  # smaller noise, relative to the signal, counts as none
_SHRINKAGE = 0.1  # share of the average variance that is added to every estimated one
_MAX_ABS_SCORE = 1e100  # scores without noise are unbounded, but their squares must be finite
_FIT_TOLERANCE = 0.4  # relative loss against the empirical optimum at which a fitted threshold is preferred
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


Attacker = Callable[[TrialSummary], float]


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
    by_shape = fit_shape_attacker(runs)
    common = Counter(run.shape for run in runs if run.distances is not None).most_common(1)
    shape = common[0][0] if common else ()
    comparable = [run for run in runs if run.distances is not None and run.shape == shape]
    if {run.world for run in comparable} != {0, 1}:
        return {"shape": by_shape}
    pooled, by_world = estimate_variances(comparable)
    upload_rows, state_rows = slice(len(shape)), slice(len(shape), None)
    attackers: dict[str, Attacker] = {
        "shift": likelihood_ratio_attacker(by_shape, shape, (pooled, pooled), upload_rows),
        "shift and scale": likelihood_ratio_attacker(by_shape, shape, by_world, upload_rows),
        "learnt from the last upload": fit_linear_discriminant(comparable, by_shape, attrgetter("last_upload")),
    }
    if len(pooled) > len(shape):
        of_states = likelihood_ratio_attacker(by_shape, shape, (pooled, pooled), state_rows)
        attackers["shift of what is remembered"] = of_states
    if all(run.mean_upload is not None for run in comparable):
        discriminant = fit_linear_discriminant(comparable, by_shape, attrgetter("mean_upload"))
        attackers["learnt from the average upload"] = discriminant
    return attackers


def score_by_world(attacker: Attacker, runs: Sequence[TrialSummary]) -> tuple[ScoreArray, ScoreArray]:
    """The scores of the runs of each world."""
    first, second = (np.array([attacker(run) for run in runs if run.world == world]) for world in (0, 1))
    return first, second


def fit_shape_attacker(runs: Sequence[TrialSummary]) -> Attacker:
    """Decides by the shape alone: certain if one world cannot have it, otherwise by its log-frequency."""
    first_counts, second_counts = (Counter(run.shape for run in runs if run.world == world) for world in (0, 1))

    def score(run: TrialSummary) -> float:
        log_ratio = float(np.log1p(second_counts[run.shape]) - np.log1p(first_counts[run.shape]))
        first, second = run.shape_possible
        return _IMPOSSIBLE_SHAPE_SCORE * (int(second) - int(first)) + log_ratio

    return score


def likelihood_ratio_attacker(
    fallback: Attacker, shape: TranscriptShape, variances: tuple[RowVariances, RowVariances], rows: slice
) -> Attacker:
    """The log-likelihood ratio of the worlds, for Gaussian noise around their expectations.

    The rows are those of uploads, or of a public mechanism state. The fallback is for runs of another shape.
    """
    first, second = variances

    def score(run: TrialSummary) -> float:
        if run.distances is None or run.shape != shape:
            return fallback(run)
        to_first, to_second = run.distances
        log_volume = run.row_width / 2 * (first / second).log()
        return float((to_first / first / 2 - to_second / second / 2 + log_volume)[rows].sum())

    return score


def fit_linear_discriminant(
    runs: Sequence[TrialSummary], fallback: Attacker, extract: Callable[[TrialSummary], Tensor | None]
) -> Attacker:
    """A discriminant learnt from runs, for mechanisms whose expectation without noise says little.

    Its weights are the difference of the means over the pooled variance of each coordinate.
    """
    worlds = [
        torch.stack([row for run in runs if run.world == world and (row := extract(run)) is not None])
        for world in (0, 1)
    ]
    variances = torch.cat([own - own.mean(0) for own in worlds]).square().mean(0)
    ridge = _SHRINKAGE * variances.mean() + _MIN_VARIANCE
    weights = (worlds[1].mean(0) - worlds[0].mean(0)) / (variances + ridge)

    def score(run: TrialSummary) -> float:
        row = extract(run)
        return fallback(run) if row is None or row.shape != weights.shape else float(row @ weights)

    return score


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


# Tests on scores, and what they certify.


@dataclass(frozen=True, slots=True)
class ThresholdTest:
    """A test that decides for the second world above (or below) a threshold."""

    threshold: float
    above: bool

    def count_hits(self, scores: ScoreArray) -> int:
        """How often the test decides for the second world."""
        return int(((scores > self.threshold) == self.above).sum())


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatingPoint:
    """Bounds on the power and false positive rate of a test; both hold with probability 1 - 2 alpha."""

    power: float  # lower bound on the true positive rate
    fpr: float  # upper bound on the false positive rate

    def epsilon(self, delta: float) -> float:
        """The largest ε that this point rules out at δ, in either direction; 0 if none."""
        return max(0.0, self.log_ratio(delta))

    def log_ratio(self, delta: float) -> float:
        """`epsilon` before the cut at 0, to compare tests that certify nothing yet."""
        directions = ((self.power, self.fpr), (1 - self.fpr, 1 - self.power))
        return max(_log_ratio(more - delta, less) for more, less in directions)

    @property
    def mu(self) -> float:
        """The largest μ whose Gaussian trade-off curve this point rules out; 0 if none."""
        return max(0.0, self.signed_mu)

    @property
    def signed_mu(self) -> float:
        """`mu` before the cut at 0."""
        return float(ndtri(self.power) - ndtri(self.fpr))


def _log_ratio(more: float, less: float) -> float:
    if more <= 0:
        return -math.inf
    return math.log(more / less) if less > 0 else math.inf


def clopper_pearson_lower(hits: RateArray, trials: int, alpha: float) -> RateArray:
    """Clopper and Pearson's lower bound on a rate, wrong with probability at most `alpha`."""
    bound: RateArray = np.where(hits > 1e-9, betaincinv(np.maximum(hits, 1e-9), trials - hits + 1, alpha), 0.0)
    return bound


def clopper_pearson_upper(hits: RateArray, trials: int, alpha: float) -> RateArray:
    """Clopper and Pearson's upper bound on a rate, wrong with probability at most `alpha`."""
    return 1 - clopper_pearson_lower(trials - hits, trials, alpha)


def operating_point(test: ThresholdTest, first: ScoreArray, second: ScoreArray, alpha: float) -> OperatingPoint:
    """What the scores of fresh runs certify about a test that was fixed before."""
    power = clopper_pearson_lower(np.array([float(test.count_hits(second))]), len(second), alpha)
    fpr = clopper_pearson_upper(np.array([float(test.count_hits(first))]), len(first), alpha)
    return OperatingPoint(power=float(power[0]), fpr=float(fpr[0]))


def best_tests(
    first: ScoreArray, second: ScoreArray, delta: float, alpha: float
) -> tuple[ThresholdTest, ThresholdTest]:
    """The tests that would certify the most on these runs: for ε at δ, and for μ.

    Few runs favour some threshold by chance. Rates are therefore read off a Gaussian fitted to the scores,
    unless the empirical rates clearly disagree.
    """
    values = np.unique(np.concatenate([first, second]))
    thresholds = (values[1:] + values[:-1]) / 2 if len(values) > 1 else values
    empirical = _operating_points(first, second, thresholds, alpha, _empirical_hits)
    fitted = _operating_points(first, second, thresholds, alpha, _gaussian_hits)

    def best_test(criterion: Callable[[OperatingPoint], float]) -> ThresholdTest:
        scores = {test: criterion(point) for test, point in empirical}
        best = max(scores, key=lambda test: scores[test])
        best_fitted = max(fitted, key=lambda entry: criterion(entry[1]))[0]
        is_close = scores[best_fitted] >= scores[best] - _FIT_TOLERANCE * abs(scores[best])
        return best_fitted if is_close else best

    return best_test(lambda point: point.log_ratio(delta)), best_test(lambda point: point.signed_mu)


def _operating_points(
    first: ScoreArray,
    second: ScoreArray,
    thresholds: ScoreArray,
    alpha: float,
    count_above: Callable[[ScoreArray, ScoreArray], RateArray],
) -> list[tuple[ThresholdTest, OperatingPoint]]:
    """What each test would certify, with hits counted or read off a fitted curve."""
    first_above, second_above = (count_above(scores, thresholds) for scores in (first, second))
    tests = []
    for above in (True, False):
        false_positives = first_above if above else len(first) - first_above
        hits = second_above if above else len(second) - second_above
        powers = clopper_pearson_lower(hits, len(second), alpha)
        rates = clopper_pearson_upper(false_positives, len(first), alpha)
        tests += [
            (ThresholdTest(float(threshold), above), OperatingPoint(power=float(power), fpr=float(rate)))
            for threshold, power, rate in zip(thresholds, powers, rates, strict=True)
        ]
    return tests


def _empirical_hits(scores: ScoreArray, thresholds: ScoreArray) -> RateArray:
    below: RateArray = np.searchsorted(np.sort(scores), thresholds, side="right").astype(np.float64)
    return len(scores) - below


def _gaussian_hits(scores: ScoreArray, thresholds: ScoreArray) -> RateArray:
    scores = np.clip(scores, -_MAX_ABS_SCORE, _MAX_ABS_SCORE)
    thresholds = np.clip(thresholds, -_MAX_ABS_SCORE, _MAX_ABS_SCORE)
    std = max(float(scores.std()), 1e-12 * float(np.abs(scores).max()), 1e-100)
    above: RateArray = ndtr((scores.mean() - thresholds) / std)
    return len(scores) * above
