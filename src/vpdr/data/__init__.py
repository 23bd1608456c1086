"""Benchmarks from the user's disk, their split among clients, and synthetic data."""

from vpdr.data.benchmark import Benchmark, DatasetReport, DomainSpec, ImageDomain, LabelledDomain, TextDomain
from vpdr.data.images import ImageInputs
from vpdr.data.partition import dirichlet_partition, skew_labels, split_train_test, stratified_subset
from vpdr.data.quickstart import BACKBONE_PIXELS, DOMAIN_NAMES, load_quickstart
from vpdr.data.split import ClientSplit, Split, SplitConfig, partition_domain, read_split, split_benchmark, write_split
from vpdr.data.synthetic import BlobSplit, make_blobs
from vpdr.data.zoo import BENCHMARK_SPECS, BenchmarkSpec

__all__ = [
    "BACKBONE_PIXELS",
    "BENCHMARK_SPECS",
    "DOMAIN_NAMES",
    "Benchmark",
    "BenchmarkSpec",
    "BlobSplit",
    "ClientSplit",
    "DatasetReport",
    "DomainSpec",
    "ImageDomain",
    "ImageInputs",
    "LabelledDomain",
    "Split",
    "SplitConfig",
    "TextDomain",
    "dirichlet_partition",
    "load_quickstart",
    "make_blobs",
    "partition_domain",
    "read_split",
    "skew_labels",
    "split_benchmark",
    "split_train_test",
    "stratified_subset",
    "write_split",
]
