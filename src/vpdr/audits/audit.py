"""The audit: choose a pair of neighbours, fix a test on some runs, and certify it on others.

Beside the planted pairs, `most_sensitive_replacement` searches random pairs: summarisers that adapt to the
data have counter-examples that nobody plants by hand.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.audits.attackers import (
    Attacker,
    TrialSummary,
    fit_attackers,
    jeffreys_divergence,
    score_by_world,
    summarise_trial,
    transcript_shape,
)
from vpdr.audits.game import DistinguishingGame, NoiseFactory, Trial, run_client
from vpdr.audits.pairs import NeighbourPair, pairs_for
from vpdr.audits.result import AuditResult, Claim
from vpdr.audits.statistics import ThresholdTest, best_tests, operating_point
from vpdr.audits.target import AuditTarget, Transcript, ZeroNoise, hostile_server
from vpdr.client import Samples
from vpdr.errors import InvalidInput
from vpdr.mechanisms import SystemNoise
from vpdr.privacy import Adjacency
from vpdr.types import ProgressCallback, no_progress
from vpdr.validation import at_least, positive

MIN_TRIALS, MAX_TRIALS = 40, 2500  # runs of each world, if the time decides
SEARCHED_PAIR, SEARCH_TRIES = "restless", 24
_PILOT_RUNS, _PILOT_SECONDS = 4, 0.2  # runs of each world for each pair; one of each where runs are slow
_RELATIVE_MARGIN, _ABSOLUTE_MARGIN = 0.25, 0.05  # by which another attacker must be better
_MIN_VARIANCE = 1e-300


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditConfig:
    """The effort of an audit.

    Args:
        trials: runs of each world; 0 means as many as fit into `seconds`.
        seconds: time for the runs, if `trials` is 0.
        confidence: probability that the certified bounds are true.
        noise: creates the noise source of each run.
        lying_server: whether the server replaces uploads to learn more about the canary.
        pair: the name of one pair of neighbours; the easiest to distinguish if empty.
        progress: receives the progress.

    Raises:
        InvalidInput: a value is out of range.

    >>> AuditConfig(trials=200).confidence
    0.95
    """

    trials: int = 0
    seconds: float = 25.0
    confidence: float = 0.95
    noise: NoiseFactory = SystemNoise
    lying_server: bool = False
    pair: str = ""
    progress: ProgressCallback = no_progress

    def __post_init__(self) -> None:
        at_least(0, trials=self.trials)
        positive(seconds=self.seconds)
        if 0 < self.trials < MIN_TRIALS // 2:
            raise InvalidInput(f"an audit needs at least {MIN_TRIALS // 2} trials, got {self.trials}; raise --trials")
        if not 0.5 <= self.confidence < 1:
            raise InvalidInput(f"confidence must lie in [0.5, 1), got {self.confidence:g}")


def audit(target: AuditTarget, claim: Claim | None = None, config: AuditConfig | None = None) -> AuditResult:
    """Certify a lower bound on the ε of a client's releases.

    Runs the client on both datasets of a pair of neighbours. The first tenth of the runs fits the attackers,
    the next two tenths select one attacker and threshold for ε and one for μ, and the rest certify them.

    Args:
        target: the audited client.
        claim: what to refute; by default what the client's own ledger states after all releases.
        config: the effort.

    Returns:
        The result. Its guarantee is that of `AuditResult`.

    Raises:
        InvalidInput: the pair is unknown, or a hostile server has no release to influence.

    >>> from vpdr.audits.game import make_noise_factory
    >>> from vpdr.audits.request import AuditOptions, request_from_options
    >>> target = request_from_options(AuditOptions(mechanism="igpp", rounds=1)).target
    >>> audit(target, config=AuditConfig(trials=20, noise=make_noise_factory(0))).refuted
    False
    """
    config, begin = config or AuditConfig(), time.perf_counter()
    if config.lying_server and target.releases < 2:
        raise InvalidInput(
            f"a hostile server has no effect before the second release, but {target.releases} is audited; "
            "it needs at least 2 --rounds, and an honest server needs no more than 1"
        )
    torch.set_num_threads(target.run_config.run.threads)  # more threads are slower here, and round differently
    claim = claim or compute_claim(target, config)
    game, seconds_per_run = _find_strongest_game(target, config)
    trials = config.trials or _affordable_trials(config.seconds, seconds_per_run)
    runs = _run_trials(game, trials, config)
    fit_end, selection_end = 2 * math.ceil(0.1 * trials), 2 * math.ceil(0.3 * trials)
    alpha = (1 - config.confidence) / 4  # two tests with two rates each
    tests = _select_tests(runs[:fit_end], runs[fit_end:selection_end], claim.delta, alpha)
    certifying_runs = runs[selection_end:]
    return AuditResult(
        claim=claim,
        points=tuple(
            operating_point(rated.test, *score_by_world(rated.attacker, certifying_runs), alpha) for rated in tests
        ),
        confidence=config.confidence,
        trials=trials,
        certifying_trials=trials - selection_end // 2,
        pair=game.pair.name,
        pair_description=game.pair.description,
        attacker=" and ".join(dict.fromkeys(rated.name for rated in tests)),
        training_replayed=game.replays_training,
        depends_on_server=game.depends_on_server,
        seconds=time.perf_counter() - begin,
    )


def compute_claim(target: AuditTarget, config: AuditConfig) -> Claim:
    """What a client's own ledger states after all its releases."""
    client = target.make_client_with_real_ledger(pairs_for(target)[0].first, config.noise())
    run_client(target, client, [])
    return Claim.from_ledger(client.ledger, target.run_config.budget.delta)


def _find_strongest_game(target: AuditTarget, config: AuditConfig) -> tuple[DistinguishingGame, float]:
    """The pair that a few runs distinguish best, and the seconds of one run."""
    pairs = _candidate_pairs(target, config)
    best: tuple[float, DistinguishingGame, float] | None = None
    for number, pair in enumerate(pairs):
        config.progress("pairs", number, len(pairs))
        server = hostile_server(target, pair.canary) if config.lying_server else target.server
        game = DistinguishingGame.prepare(dataclasses.replace(target, server=server), pair)
        begin = time.perf_counter()
        runs = [_run_once(game, world, config) for world in (0, 1)]
        while len(runs) < 2 * _PILOT_RUNS and time.perf_counter() - begin < _PILOT_SECONDS:
            runs += [_run_once(game, world, config) for world in (0, 1)]
        seconds_per_run = (time.perf_counter() - begin) / len(runs)
        for _ in range(2 * _PILOT_RUNS - len(runs)):
            config.noise()  # so that seeded noise of later runs does not depend on the speed of the machine
        divergence = jeffreys_divergence(runs)
        if best is None or divergence > best[0]:
            best = divergence, game, seconds_per_run
    config.progress("pairs", len(pairs), len(pairs))
    if best is None:
        raise InvalidInput(f"no pair of neighbours is known for {target.adjacency}")
    return best[1], best[2]


def _candidate_pairs(target: AuditTarget, config: AuditConfig) -> list[NeighbourPair]:
    planted = pairs_for(target)
    named = [pair for pair in planted if pair.name == config.pair]
    if named:
        return named
    if config.pair not in ("", SEARCHED_PAIR):
        names = ", ".join([*(pair.name for pair in planted), SEARCHED_PAIR])
        raise InvalidInput(f"unknown pair {config.pair!r} for {target.adjacency}; choose one of {names}")
    searched = most_sensitive_replacement(target, config.noise)
    return [searched] if config.pair else [*planted, searched]


def _run_once(game: DistinguishingGame, world: int, config: AuditConfig) -> TrialSummary:
    return summarise_trial(game.run(world, config.noise), game.target.clip_norm)


def _affordable_trials(seconds: float, seconds_per_run: float) -> int:
    return max(MIN_TRIALS, min(MAX_TRIALS, int(seconds / (2 * seconds_per_run))))


def _run_trials(game: DistinguishingGame, trials: int, config: AuditConfig) -> list[TrialSummary]:
    """Both worlds in turn, so that every even part of the list is balanced."""
    runs = []
    for number in range(trials):
        runs += [_run_once(game, world, config) for world in (0, 1)]
        config.progress("runs of both worlds", number + 1, trials)
    return runs


class RatedTest(NamedTuple):
    """An attacker with a threshold, and what it would certify."""

    value: float
    name: str
    attacker: Attacker
    test: ThresholdTest


def _select_tests(
    fit_runs: Sequence[TrialSummary], selection_runs: Sequence[TrialSummary], delta: float, alpha: float
) -> list[RatedTest]:
    """The attacker and threshold with the largest ε at δ, and those with the largest μ."""
    best: list[RatedTest] = []
    for name, attacker in fit_attackers(fit_runs).items():
        first, second = score_by_world(attacker, selection_runs)
        tests = best_tests(first, second, delta, alpha)
        points = [operating_point(test, first, second, alpha) for test in tests]
        rated = [
            RatedTest(points[0].log_ratio(delta), name, attacker, tests[0]),
            RatedTest(points[1].signed_mu, name, attacker, tests[1]),
        ]
        best = [_better_test(old, new) for old, new in zip(best or rated, rated, strict=True)]
    return best


def _better_test(old: RatedTest, new: RatedTest) -> RatedTest:
    """The simpler attacker, unless the other one is clearly better: few runs favour one by chance."""
    margin = _RELATIVE_MARGIN * abs(old.value) + _ABSOLUTE_MARGIN
    return new if new.value > old.value + margin else old


def most_sensitive_replacement(target: AuditTarget, noise: NoiseFactory) -> NeighbourPair:
    """Of many random replacements within a class, the one that changes the first upload most.

    A replacement within a class is a neighbour under both replacing adjacencies; under add-remove the
    replaced sample is left out instead.
    """
    pairs = [_random_pair(target, attempt) for attempt in range(SEARCH_TRIES)]
    return max(pairs, key=lambda pair: replacement_effect(target, pair, noise))


def replacement_effect(target: AuditTarget, pair: NeighbourPair, noise: NoiseFactory) -> float:
    """How far the first upload without noise moves, in squared standard deviations of the noise."""
    before, after = (_first_upload(target, samples, ZeroNoise) for samples in pair.datasets)
    if transcript_shape(before.uploads) != transcript_shape(after.uploads):
        return math.inf
    noisy = Trial(0, _first_upload(target, pair.first, noise), (before, before))
    noise_summary = summarise_trial(noisy, target.clip_norm)
    shift_summary = summarise_trial(Trial(0, after, (before, before)), target.clip_norm)
    if noise_summary.distances is None or shift_summary.distances is None:
        return 0.0
    variances = (noise_summary.distances[0] / noise_summary.row_width).clamp(min=_MIN_VARIANCE)
    return float((shift_summary.distances[0] / variances).sum())


def _first_upload(target: AuditTarget, samples: Samples, noise: NoiseFactory) -> Transcript:
    upload = target.make_client(samples, noise()).release(1)
    return Transcript((upload if upload is not None else target.empty_upload(),))


def _random_pair(target: AuditTarget, attempt: int) -> NeighbourPair:
    """Random samples without class structure, and another draw for one of them."""
    rng = target.streams.generator("restless", round=attempt)
    per_class = max(2, target.run_config.benchmark.samples // target.classes)
    labels = torch.arange(target.classes).repeat_interleave(per_class)
    vectors = _random_vectors(len(labels), target, rng)
    row = int(torch.randint(len(labels), (1,), generator=rng))
    other = vectors.clone()
    other[row] = _random_vectors(1, target, rng)[0]
    rows = torch.arange(len(labels))
    if target.adjacency is Adjacency.ADD_REMOVE:
        rows = rows[rows != row]
    return NeighbourPair(
        name=SEARCHED_PAIR,
        description=f"one ordinary sample against another, the worst of {SEARCH_TRIES} tries",
        first=Samples(vectors, labels),
        second=Samples(other[rows], labels[rows]),
        canary=other[row],
    )


def _random_vectors(count: int, target: AuditTarget, rng: torch.Generator) -> Float[Tensor, "n d"]:
    vectors: Tensor = torch.randn(count, target.dim, generator=rng).mul(target.clip_norm / target.dim**0.5)
    return vectors
