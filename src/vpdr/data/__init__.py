"""Benchmarks from the user's disk, their split among clients, and synthetic data."""

from vpdr.data.agnews import AGNEWS
from vpdr.data.cifar import CIFAR10
from vpdr.data.digits import DIGITS
from vpdr.data.image_folders import OFFICE_CALTECH, PACS
from vpdr.data.own import ARRAYS, OWN_DATA, Dataset, DatasetDescription, DatasetOptions, read_dataset
from vpdr.registry import Registry

# Another package adds a benchmark through the entry points `vpdr.benchmarks`.
BENCHMARK_SPECS = Registry("benchmark", {spec.name: spec for spec in (DIGITS, OFFICE_CALTECH, PACS, CIFAR10, AGNEWS)})
