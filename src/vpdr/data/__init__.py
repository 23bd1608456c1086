"""Who has which samples: benchmarks from the user's disk, their division, and synthetic stand-ins."""

from vpdr.data.division import Division, divide, parts_of
from vpdr.data.domains import Benchmark, Domain, Roll, TextDomain
from vpdr.data.manifest import Manifest, Portion
from vpdr.data.partition import dirichlet, keep, skew_labels, split_train_test
from vpdr.data.pictures import Pictures
from vpdr.data.quickstart import load_quickstart
from vpdr.data.sources import SOURCES, Source
from vpdr.data.synthetic import Shard, blobs

__all__ = [
    "SOURCES",
    "Benchmark",
    "Division",
    "Domain",
    "Manifest",
    "Pictures",
    "Portion",
    "Roll",
    "Shard",
    "Source",
    "TextDomain",
    "blobs",
    "dirichlet",
    "divide",
    "keep",
    "load_quickstart",
    "parts_of",
    "skew_labels",
    "split_train_test",
]
