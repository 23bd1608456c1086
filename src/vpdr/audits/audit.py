"""The audit: find a pair that can be told apart, fix a test on some runs, judge it on others."""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vpdr.audits.claims import Claim
from vpdr.audits.evidence import Evidence, evidence
from vpdr.audits.findings import Finding
from vpdr.audits.intervals import Cut, best_cuts, point
from vpdr.audits.pairs import Pair, pairs_for
from vpdr.audits.scores import Score, fitted, scored
from vpdr.audits.search import RESTLESS, restless
from vpdr.audits.strength import strength
from vpdr.audits.subject import Subject, hostile
from vpdr.audits.worlds import NoiseMaker, Stage, play
from vpdr.checks import at_least, positive
from vpdr.errors import InvalidInput
from vpdr.mechanisms import SystemNoise
from vpdr.progress import Progress, quiet

FEWEST, MOST = 40, 2500  # runs of each world, where time decides
_CLEARLY, _CHANCE = 0.25, 0.05
_PILOTS, _PILOT_SECONDS = 4, 0.2  # runs of each world and pair; one of each where runs are slow


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How hard to look."""

    trials: int = 0  # runs of each world; 0: as many as fit into `seconds`
    seconds: float = 25.0
    confidence: float = 0.95
    noise: NoiseMaker = SystemNoise
    lying_server: bool = False
    pair: str = ""  # only this one; empty: whichever is easiest to tell apart
    told: Progress = quiet

    def __post_init__(self) -> None:
        at_least(0, trials=self.trials)
        positive(seconds=self.seconds)
        if 0 < self.trials < FEWEST // 2:
            raise InvalidInput(
                f"an audit needs at least {FEWEST // 2} trials, got {self.trials}; raise --trials"
            )
        if not 0.5 <= self.confidence < 1:
            raise InvalidInput(f"confidence must lie in [0.5, 1), got {self.confidence:g}")


def audit(subject: Subject, claim: Claim | None = None, effort: Effort | None = None) -> Finding:
    """Run both worlds of the strongest pair, and certify what tells them apart."""
    effort, begin = effort or Effort(), time.perf_counter()
    if effort.lying_server and subject.releases < 2:
        raise InvalidInput(
            f"a hostile server is first heard after the first release, but {subject.releases} is audited; "
            "it needs at least 2 --rounds, and an honest server needs no more than 1"
        )
    torch.set_num_threads(subject.plan.run.threads)  # more would be slower here, and round otherwise
    claim = claim or claim_of(subject, effort)
    stage, cost = _strongest(subject, effort)
    trials = effort.trials or _affordable(effort.seconds, cost)
    runs = _runs(stage, trials, effort)
    first, second = 2 * math.ceil(0.1 * trials), 2 * math.ceil(0.3 * trials)
    doubt = (1 - effort.confidence) / 4  # two tests, two rates each
    tests = _chosen(runs[:first], runs[first:second], claim.delta, doubt)
    points = tuple(point(cut, *scored(score, runs[second:]), doubt) for _, score, cut in tests)
    return Finding(
        claim=claim,
        points=points,
        confidence=effort.confidence,
        trials=trials,
        judged=trials - second // 2,
        pair=stage.pair.name,
        words=stage.pair.words,
        attacker=" and ".join(dict.fromkeys(name for name, _, _ in tests)),
        replayed=stage.replays,
        heard=stage.listens,
        seconds=time.perf_counter() - begin,
    )


def claim_of(subject: Subject, effort: Effort) -> Claim:
    """What a client's own ledger says after all its releases."""
    client = subject.paying(pairs_for(subject)[0].first, effort.noise())
    play(subject, client, [])
    return Claim.of(client.ledger, subject.plan.budget.delta)


def _strongest(subject: Subject, effort: Effort) -> tuple[Stage, float]:
    """The pair that a few runs find easiest, and the seconds that one run takes."""
    pairs = _wanted(subject, effort)
    best: tuple[float, Stage, float] | None = None
    for number, pair in enumerate(pairs):
        effort.told("pairs", number, len(pairs))
        stage = Stage.of(_meeting(subject, pair, effort), pair)
        begin = time.perf_counter()
        runs = [_one(stage, world, effort) for world in (0, 1)]
        while len(runs) < 2 * _PILOTS and time.perf_counter() - begin < _PILOT_SECONDS:
            runs += [_one(stage, world, effort) for world in (0, 1)]
        cost = (time.perf_counter() - begin) / len(runs)
        found = strength(runs)
        if best is None or found > best[0]:
            best = found, stage, cost
    effort.told("pairs", len(pairs), len(pairs))
    if best is None:
        raise InvalidInput(f"no pair of neighbours is known for {subject.adjacency}")
    return best[1], best[2]


def _wanted(subject: Subject, effort: Effort) -> list[Pair]:
    planted = pairs_for(subject)
    named = [pair for pair in planted if pair.name == effort.pair]
    if named:
        return named
    if effort.pair not in ("", RESTLESS):
        names = ", ".join([*(pair.name for pair in planted), RESTLESS])
        raise InvalidInput(f"unknown pair {effort.pair!r} for {subject.adjacency}; choose one of {names}")
    found = restless(subject, effort.noise)
    return [found] if effort.pair else [*planted, found]


def _meeting(subject: Subject, pair: Pair, effort: Effort) -> Subject:
    if not effort.lying_server:
        return subject
    return dataclasses.replace(subject, server=hostile(subject, pair.target))


def _one(stage: Stage, world: int, effort: Effort) -> Evidence:
    return evidence(stage.run(world, effort.noise), stage.subject.radius)


def _affordable(seconds: float, cost: float) -> int:
    return max(FEWEST, min(MOST, int(seconds / (2 * cost))))


def _runs(stage: Stage, trials: int, effort: Effort) -> list[Evidence]:
    """Both worlds in turn, so that any part of the list has as many of each."""
    runs = []
    for number in range(trials):
        runs += [_one(stage, world, effort) for world in (0, 1)]
        effort.told("runs of both worlds", number + 1, trials)
    return runs


Candidate = tuple[float, str, Score, Cut]


def _better(old: Candidate, new: Candidate) -> Candidate:
    """The plainer attacker stays, unless another one is clearly better: a few runs favour one by chance."""
    return new if new[0] > old[0] + _CLEARLY * abs(old[0]) + _CHANCE else old


def _chosen(
    teaching: Sequence[Evidence], choosing: Sequence[Evidence], delta: float, doubt: float
) -> list[tuple[str, Score, Cut]]:
    """The attacker and threshold that promise the largest ε at δ, and those for the largest μ."""
    best: list[Candidate] = []
    for name, score in fitted(teaching).items():
        first, second = scored(score, choosing)
        cuts = best_cuts(first, second, delta, doubt)
        points = [point(cut, first, second, doubt) for cut in cuts]
        found = [
            (points[0].log_ratio(delta), name, score, cuts[0]),
            (points[1].distance, name, score, cuts[1]),
        ]
        best = [_better(old, new) for old, new in zip(best or found, found, strict=True)]
    return [(name, score, cut) for _, name, score, cut in best]
