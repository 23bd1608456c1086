"""Who has which samples: benchmarks, partitions and synthetic stand-ins."""

from vpdr.data.domains import Benchmark, Domain
from vpdr.data.partition import dirichlet, keep, skew_labels, split_train_test
from vpdr.data.quickstart import load_quickstart
from vpdr.data.synthetic import Shard, blobs

__all__ = [
    "Benchmark",
    "Domain",
    "Shard",
    "blobs",
    "dirichlet",
    "keep",
    "load_quickstart",
    "skew_labels",
    "split_train_test",
]
