"""Noise for the runs of an audit: the system's own, or repeatable from a seed."""

from itertools import count

from vpdr.audits.worlds import NoiseMaker
from vpdr.checks import at_least
from vpdr.mechanisms import NoiseSource, SeededNoise, SystemNoise
from vpdr.rng import Streams


def noise_of(seed: int | None) -> NoiseMaker:
    """A fresh source for every run. A seed makes the audit repeatable; no two runs share a draw."""
    if seed is None:
        return SystemNoise
    at_least(0, seed=seed)
    streams, runs = Streams(seed).apart("audit"), count()

    def fresh() -> NoiseSource:
        return SeededNoise(streams.draw("noise", t=next(runs)))

    return fresh
