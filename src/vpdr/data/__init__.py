"""Benchmarks from the user's disk, their split among clients, and synthetic data."""

from vpdr.data.agnews import AGNEWS
from vpdr.data.benchmark import Benchmark, ImageDomain, LabelledDomain, TextDomain
from vpdr.data.cifar import CIFAR10
from vpdr.data.digits import DIGITS
from vpdr.data.image_folders import OFFICE_CALTECH, PACS
from vpdr.data.images import ImageInputs
from vpdr.data.quickstart import BACKBONE_PIXELS, DOMAIN_NAMES, BlobSplit, load_quickstart, make_blobs
from vpdr.data.spec import BenchmarkSpec, DatasetReport, DomainSpec
from vpdr.data.split import (
    ClientSplit,
    Split,
    SplitConfig,
    dirichlet_partition,
    partition_domain,
    read_split,
    skew_labels,
    split_benchmark,
    split_train_test,
    stratified_subset,
    write_split,
)
from vpdr.registry import Registry

# Another package adds a benchmark through the entry points `vpdr.benchmarks`.
BENCHMARK_SPECS: Registry[BenchmarkSpec] = Registry(
    "benchmark", {spec.name: spec for spec in (DIGITS, OFFICE_CALTECH, PACS, CIFAR10, AGNEWS)}
)
