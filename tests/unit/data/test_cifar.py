"""CIFAR-10 in its two formats, and pickles of anything else than arrays."""

import os
import pickle

import numpy as np
import pytest

from tests.unit.data import format_files
from vpdr.data import BENCHMARK_SPECS
from vpdr.data.benchmark import split_benchmark
from vpdr.rng import Streams

CIFAR = BENCHMARK_SPECS["cifar10"]


def expected_images():
    planes = np.concatenate([format_files.noise(10, 3072, seed=number) for number in range(6)])
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


@pytest.mark.parametrize(
    "write", [format_files.write_cifar_python, format_files.write_cifar_python_3, format_files.write_cifar_binary]
)
@pytest.mark.parametrize("directory", ["", "cifar-10-batches", "data/cifar-10-batches"])
def test_all_formats_give_the_same_images(tmp_path, write, directory):
    write(tmp_path / directory)
    benchmark = CIFAR.load(tmp_path)
    (domain,) = benchmark.image_domains
    assert np.array_equal(domain.images, expected_images())
    assert domain.labels.tolist() == [*range(10)] * 6
    assert domain.official_test.tolist() == list(range(50, 60))
    assert benchmark.class_names[3] == "cat"


def test_twenty_clients_by_the_split_of_the_paper(tmp_path):
    format_files.write_cifar_binary(tmp_path, each=500)
    split = split_benchmark(CIFAR.load_labels(tmp_path), CIFAR.split_config, Streams(0))
    assert len(split.client_splits) == 20
    assert sum(len(client_split.train) for client_split in split.client_splits) == 2500
    assert {len(client_split.test) for client_split in split.client_splits} == {500}


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


def test_a_pickle_with_more_than_arrays_is_refused_before_anything_is_called(tmp_path, monkeypatch):
    format_files.write_cifar_python(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps(Evil()))
    monkeypatch.setattr(os, "system", lambda command: pytest.fail("it ran"))
    (line,) = CIFAR.check(tmp_path).issues
    assert line.startswith("data_batch_3: expected a batch of CIFAR-10")
    assert "which no image needs" in line


def test_missing_and_damaged_batches_are_each_named(tmp_path):
    format_files.write_cifar_binary(tmp_path)
    (tmp_path / "data_batch_2.bin").unlink()
    path = tmp_path / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-5])
    issues = CIFAR.check(tmp_path).issues
    assert [line.split(":")[0] for line in issues] == ["cifar10", "test_batch.bin"]
    assert "data_batch_2" in issues[0]


def test_an_empty_directory_is_one_line(tmp_path):
    (line,) = CIFAR.check(tmp_path).issues
    assert line.startswith("cifar10: expected cifar-10-batches-py")
