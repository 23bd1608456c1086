"""The run time of one release: none, IGPP, VPP and a stage of RAPP on the same features in the same process.

All of them draw exact noise from the operating system; that noise alone, and IGPP as a simulation, are measured too.

    python benchmarks/release_cost.py    # prints a table, exits 1 if a bound is passed

The measurement of record is in benchmarks/README.md.
"""

import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping

import torch

from vpdr import Adjacency, Budget, ClassSums, Igpp, NoPrivacy, Rapp, ReleaseContext, ReleaseProjection, Vpp
from vpdr.mechanisms import SeededNoise, SystemNoise
from vpdr.rng import Streams

SAMPLES, DIM, RELEASE_DIM, CLASSES, REPEATS = 10_000, 512, 64, 10, 15
LIMITS = {"vpp": 3.0, "rapp, one stage": 2.0, "rapp, one stage, projected": 2.0}  # times IGPP
NOISE_LIMIT = 0.5  # seconds for the exact noise of one release
BUDGET = Budget(1.0, 1e-5)


def seconds(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds after a warm-up; calls alternate, so that other load affects all of them alike."""
    durations: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(1 + REPEATS):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            durations[name].append(time.perf_counter() - begin)
    return {name: statistics.median(times[1:]) for name, times in durations.items()}


def stage(vectors: torch.Tensor, labels: torch.Tensor, projection: ReleaseProjection) -> Callable[[], object]:
    """The second release of RAPP: around estimated centres, as all but the first are."""
    rapp = Rapp.calibrated(
        BUDGET, 5, clip_norm=5.0, classes=CLASSES, projection=projection, adjacency=Adjacency.REPLACE_ONE
    )
    later = ReleaseContext(state=rapp.release(vectors, labels).state)
    return lambda: rapp.release(vectors, labels, later)


def main() -> int:
    rng = Streams(0).generator("features")
    labels = torch.arange(SAMPLES) % CLASSES
    vectors = torch.randn(CLASSES, DIM, generator=rng)[labels] + torch.randn(SAMPLES, DIM, generator=rng)
    subspace = ReleaseProjection.random(DIM, RELEASE_DIM, rng)
    sums = ReleaseContext(summariser=ClassSums(classes=CLASSES))
    igpp = Igpp.calibrated(BUDGET, 20, clip_norm=5.0)
    private_counts = Igpp.calibrated(BUDGET, 20, clip_norm=5.0, adjacency=Adjacency.REPLACE_ONE)
    vpp = Vpp.calibrated(BUDGET, 20, clip_norm=5.0, dim=DIM)
    scales = torch.full((CLASSES, DIM), 2**31)  # in steps, as at the budget above
    cost = seconds(
        {
            "none": lambda: NoPrivacy().release(vectors, labels),
            "exact noise alone": lambda: SystemNoise().rounded_gaussian(scales),
            "seeded noise alone": lambda: SeededNoise(rng).rounded_gaussian(scales),
            "igpp": lambda: igpp.release(vectors, labels),
            "igpp, seeded": lambda: igpp.release(vectors, labels, ReleaseContext(noise=SeededNoise(rng))),
            "igpp, sums with noisy counts": lambda: private_counts.release(vectors, labels, sums),
            "vpp": lambda: vpp.release(vectors, labels),
            "rapp, one stage": stage(vectors, labels, ReleaseProjection.identity(DIM)),
            "rapp, one stage, projected": stage(vectors, labels, subspace),
        }
    )
    print(f"{SAMPLES} samples, {DIM} dimensions, {CLASSES} classes, {torch.get_num_threads()} threads")
    print(f"python {platform.python_version()}, torch {torch.__version__}, {platform.machine()}")
    for name, duration in cost.items():
        print(f"  {name:<30}{duration * 1e3:8.1f} ms   {duration / cost['igpp']:5.2f} x igpp")
    is_slow = any(cost[name] > limit * cost["igpp"] for name, limit in LIMITS.items())
    return int(is_slow or cost["exact noise alone"] > NOISE_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
