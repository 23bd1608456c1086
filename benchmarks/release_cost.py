"""What one release costs: none, IGPP, VPP and a stage of RAPP on the same features in the same process.

    python benchmarks/release_cost.py            # prints a table, exits 1 if VPP costs more than 3 times IGPP

The measurement of record is in benchmarks/README.md.
"""

import platform
import statistics
import sys
import time
from collections.abc import Callable

import torch

from vpdr import Adjacency, Budget, ClassSums, Geometry, Identity, Igpp, Occasion, Rapp, Vpp
from vpdr.rng import Streams

SAMPLES, DIM, CLASSES, REPEATS, LIMIT = 10_000, 512, 10, 15, 3.0


def seconds(call: Callable[[], object]) -> float:
    """The median of several calls after a warm-up."""
    call()
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def main() -> int:
    rng = Streams(0).draw("features")
    labels = torch.arange(SAMPLES) % CLASSES
    vectors = torch.randn(CLASSES, DIM, generator=rng)[labels] + torch.randn(SAMPLES, DIM, generator=rng)
    budget = Budget(1.0, 1e-5)
    sums = Occasion(summarise=ClassSums(classes=CLASSES))
    igpp = Igpp.calibrated(budget, 20, clip_norm=5.0)
    private_counts = Igpp.calibrated(budget, 20, clip_norm=5.0, adjacency=Adjacency.REPLACE_ONE)
    vpp = Vpp.calibrated(budget, 20, clip_norm=5.0, dim=DIM)
    rapp = Rapp.calibrated(
        budget,
        5,
        clip_norm=5.0,
        classes=CLASSES,
        geometry=Geometry.plain(DIM),
        adjacency=Adjacency.REPLACE_ONE,
    )
    later = Occasion(memory=rapp.release(vectors, labels).memory)
    cost = {
        "none": seconds(lambda: Identity().release(vectors, labels)),
        "igpp": seconds(lambda: igpp.release(vectors, labels)),
        "igpp, sums with noisy counts": seconds(lambda: private_counts.release(vectors, labels, sums)),
        "vpp": seconds(lambda: vpp.release(vectors, labels)),
        "rapp, one stage": seconds(lambda: rapp.release(vectors, labels, later)),
    }
    print(f"{SAMPLES} samples, {DIM} dimensions, {CLASSES} classes, {torch.get_num_threads()} threads")
    print(f"python {platform.python_version()}, torch {torch.__version__}, {platform.machine()}")
    for name, taken in cost.items():
        print(f"  {name:<30}{taken * 1e3:8.1f} ms   {taken / cost['igpp']:5.2f} x igpp")
    return 0 if cost["vpp"] <= LIMIT * cost["igpp"] else 1


if __name__ == "__main__":
    sys.exit(main())
