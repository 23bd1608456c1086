"""Benchmarks from the user's disk, their split among clients, and synthetic data."""

from vpdr.data.benchmark import Benchmark, ImageDomain, LabelledDomain, TextDomain
from vpdr.data.images import ImageInputs
from vpdr.data.partition import dirichlet_partition, skew_labels, split_train_test, stratified_subset
from vpdr.data.quickstart import load_quickstart
from vpdr.data.split import ClientSplit, Split, SplitConfig, partition_domain, split_benchmark
from vpdr.data.synthetic import BlobSplit, make_blobs
from vpdr.data.zoo import BENCHMARK_SPECS, BenchmarkSpec

__all__ = [
    "BENCHMARK_SPECS",
    "Benchmark",
    "BenchmarkSpec",
    "BlobSplit",
    "ClientSplit",
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
    "skew_labels",
    "split_benchmark",
    "split_train_test",
    "stratified_subset",
]
