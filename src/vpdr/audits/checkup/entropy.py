"""The operating system's noise: fresh, also after a fork, and of the right distribution."""

import math
import os
import warnings

import numpy as np
from scipy.stats import kstest

from vpdr.audits.checkup.base import must
from vpdr.mechanisms import SystemNoise

DRAWS = 4096
_FAR = 1e-9  # a chance below which a distribution is not believed


def system_noise() -> str:
    """Two draws differ, a child process does not repeat its parent, uniform draws are uniform."""
    source = SystemNoise()
    must(not source.reproducible, "the system's noise calls itself reproducible")
    first, second = source.uniform(DRAWS).numpy(), source.uniform(DRAWS).numpy()
    must(not np.array_equal(first, second), "two draws of noise are equal")
    both = np.concatenate([first, second])
    must(len(np.unique(both)) == len(both), "numbers repeat within one draw of noise")
    must(both.min() > 0 and both.max() < 1, "a uniform draw lies outside of the open interval")
    chance = float(kstest(both, "uniform").pvalue)
    must(chance > _FAR, f"uniform draws are not uniform (p = {chance:.1g})")
    theirs = _in_a_child(source)
    must(len(theirs) == 8, "a forked process could not draw")
    must(not np.array_equal(theirs, source.uniform(8).numpy()), "a forked process repeats its parent's noise")
    shared = float(np.corrcoef(first, second)[0, 1])
    must(abs(shared) < 8 / math.sqrt(DRAWS), f"two draws of noise are correlated ({shared:.3f})")
    return f"{2 * DRAWS} draws differ and are uniform (p = {chance:.2f}), a forked process draws its own"


def _in_a_child(source: SystemNoise) -> np.ndarray:
    """What a forked process draws at the same moment."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads are of no use to this child
        child = os.fork()
    if child == 0:
        try:
            os.write(writer, source.uniform(8).numpy().tobytes())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        content = stream.read()
    os.waitpid(child, 0)
    return np.frombuffer(content, dtype=np.float64)
