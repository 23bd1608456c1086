"""CIFAR-10 in its two versions, and pickles that want more than arrays."""

import os
import pickle

import numpy as np
import pytest

from tests.data import format_files as made
from vpdr.data import SOURCES, divide
from vpdr.rng import Streams

CIFAR = SOURCES["cifar10"]


def expected():
    planes = np.concatenate([made.noise(10, 3072, seed=number) for number in range(6)])
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


@pytest.mark.parametrize("write", [made.cifar_python, made.cifar_python_3, made.cifar_binary])
@pytest.mark.parametrize("folder", ["", "cifar-10-batches", "data/cifar-10-batches"])
def test_all_versions_give_the_same_pictures(tmp_path, write, folder):
    write(tmp_path / folder)
    benchmark = CIFAR.load(tmp_path)
    (domain,) = benchmark.pictures
    assert np.array_equal(domain.images, expected())
    assert domain.labels.tolist() == [*range(10)] * 6
    assert domain.official_test.tolist() == list(range(50, 60))
    assert benchmark.class_names[3] == "cat"


def test_twenty_clients_by_the_papers_division(tmp_path):
    made.cifar_binary(tmp_path, each=500)
    manifest = divide(CIFAR.roll(tmp_path), CIFAR.division, Streams(0))
    assert len(manifest.portions) == 20
    assert sum(len(portion.train) for portion in manifest.portions) == 2500
    assert {len(portion.test) for portion in manifest.portions} == {500}


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


def test_a_pickle_that_wants_more_than_arrays_is_refused_before_it_runs(tmp_path, monkeypatch):
    made.cifar_python(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps(Evil()))
    monkeypatch.setattr(os, "system", lambda command: pytest.fail("it ran"))
    (line,) = CIFAR.check(tmp_path).findings
    assert line.startswith("data_batch_3: expected a batch of CIFAR-10")
    assert "which no picture needs" in line


def test_missing_and_damaged_batches_are_each_named(tmp_path):
    made.cifar_binary(tmp_path)
    (tmp_path / "data_batch_2.bin").unlink()
    path = tmp_path / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-5])
    findings = CIFAR.check(tmp_path).findings
    assert [line.split(":")[0] for line in findings] == ["cifar10", "test_batch.bin"]
    assert "data_batch_2" in findings[0]


def test_nothing_at_all_is_one_line(tmp_path):
    (line,) = CIFAR.check(tmp_path).findings
    assert line.startswith("cifar10: expected cifar-10-batches-py")
