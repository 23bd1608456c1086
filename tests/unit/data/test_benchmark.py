"""A benchmark refuses labels, names and samples that do not fit each other."""

import numpy as np
import pytest

from vpdr.data.benchmark import Benchmark, ImageDomain
from vpdr.validation import InvalidInput


def test_a_class_without_samples_is_named():
    domain = ImageDomain(name="d", images=np.zeros((2, 4, 4, 3), np.uint8), labels=np.array([0, 2]))
    benchmark = Benchmark(name="x", classes=3, class_names=("a", "b", "c"), domains=(domain,))
    with pytest.raises(InvalidInput, match="class b has no samples in any domain"):
        benchmark.check_every_class()


def test_a_domain_needs_a_label_for_each_image():
    with pytest.raises((InvalidInput, TypeError), match="labels"):  # the shape check may come first
        ImageDomain(name="d", images=np.zeros((2, 4, 4, 3), np.uint8), labels=np.zeros(3, np.int64))


def test_a_benchmark_refuses_labels_and_names_that_do_not_fit():
    domain = ImageDomain(name="d", images=np.zeros((2, 4, 4, 3), np.uint8), labels=np.array([0, 5]))
    with pytest.raises(InvalidInput, match="from 0 to 1, got 0 to 5 in d"):
        Benchmark(name="b", classes=2, class_names=("x", "y"), domains=(domain,))
    with pytest.raises(InvalidInput, match="expected 6 class names, got 1"):
        Benchmark(name="b", classes=6, class_names=("x",), domains=(domain,))
