"""Pairs found by trying: rules that follow the data are caught by data that nobody thought of."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.audits.evidence import evidence, shape_of
from vpdr.audits.pairs import Pair
from vpdr.audits.silence import Silence
from vpdr.audits.subject import Subject, Told
from vpdr.audits.worlds import NoiseMaker, Trial
from vpdr.client import Samples
from vpdr.privacy import Adjacency

RESTLESS, TRIES = "restless", 24
_LEAST = 1e-300


def restless(subject: Subject, noise: NoiseMaker) -> Pair:
    """Of many single replacements within a class, the one that changes a silent first upload the most.

    Replacing within a class makes neighbours under both replacing adjacencies; where samples come and go,
    the replaced one is left out instead.
    """
    best, most = _candidate(subject, 0), -1.0
    for attempt in range(TRIES):
        pair = _candidate(subject, attempt)
        moved = effect(subject, pair, noise)
        if moved > most:
            best, most = pair, moved
    return best


def effect(subject: Subject, pair: Pair, noise: NoiseMaker) -> float:
    """How far the first silent upload moves, in squared standard deviations of its noise."""
    quiet = [_first(subject, samples, Silence) for samples in pair.worlds]
    if shape_of(quiet[0].sent) != shape_of(quiet[1].sent):
        return math.inf
    loud = evidence(Trial(0, _first(subject, pair.first, noise), (quiet[0], quiet[0])), subject.radius)
    moved = evidence(Trial(0, quiet[1], (quiet[0], quiet[0])), subject.radius)
    if loud.distances is None or moved.distances is None:
        return 0.0
    return float((moved.distances[0] / (loud.distances[0] / loud.width).clamp(min=_LEAST)).sum())


def _first(subject: Subject, samples: Samples, noise: NoiseMaker) -> Told:
    upload = subject.with_data(samples, noise()).release(1)
    return Told((upload if upload is not None else subject.nothing(),))


def _candidate(subject: Subject, attempt: int) -> Pair:
    """Scattered samples without any classes to speak of, and another draw in one place."""
    rng = subject.streams.draw("restless", t=attempt)
    each = max(2, subject.plan.benchmark.samples // subject.classes)
    labels = torch.arange(subject.classes).repeat_interleave(each)
    vectors = _scattered(len(labels), subject, rng)
    row = int(torch.randint(len(labels), (1,), generator=rng))
    other = vectors.clone()
    other[row] = _scattered(1, subject, rng)[0]
    words = f"one ordinary sample against another, the worst of {TRIES} tries"
    return Pair(RESTLESS, words, Samples(vectors, labels), _second(subject, other, labels, row), other[row])


def _second(subject: Subject, vectors: Tensor, labels: Int[Tensor, " n"], row: int) -> Samples:
    kept = torch.arange(len(labels))
    if subject.adjacency is Adjacency.ADD_REMOVE:
        kept = kept[kept != row]
    return Samples(vectors[kept], labels[kept])


def _scattered(count: int, subject: Subject, rng: torch.Generator) -> Float[Tensor, "n d"]:
    drawn: Tensor = torch.randn(count, subject.dim, generator=rng).mul(subject.radius / subject.dim**0.5)
    return drawn
