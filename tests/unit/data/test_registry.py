"""Another package adds a benchmark through the registry or an entry point."""

from dataclasses import replace
from importlib import metadata

import pytest

from tests.contracts.plug_ins import DUMMY_BENCHMARK
from vpdr.data import BENCHMARK_SPECS
from vpdr.data.benchmark import split_benchmark
from vpdr.registry import Registry
from vpdr.rng import Streams
from vpdr.validation import InvalidInput

NOISE = replace(DUMMY_BENCHMARK, name="noise")


@pytest.fixture
def registered():
    yield BENCHMARK_SPECS.register("noise", NOISE)
    BENCHMARK_SPECS.unregister("noise")


def test_a_registered_benchmark_is_checked_loaded_and_split(registered, tmp_path):
    spec = BENCHMARK_SPECS["noise"]
    assert spec.check(tmp_path).issues == ()
    benchmark = spec.load(tmp_path, pixels=8)
    assert benchmark.image_domains[0].images.shape == (40, 8, 8, 3)
    (client,) = split_benchmark(benchmark, spec.split_config, Streams(0)).client_splits
    assert (client.client, len(client.train), len(client.test)) == ("grey", 32, 8)


def test_a_registered_benchmark_is_listed_last_and_refused_a_second_time(registered):
    assert list(BENCHMARK_SPECS)[-1] == "noise"
    with pytest.raises(InvalidInput, match="benchmark 'noise' is registered already"):
        BENCHMARK_SPECS.register("noise", NOISE)


def test_an_entry_point_adds_a_benchmark(monkeypatch):
    point = metadata.EntryPoint("noise", f"{__name__}:NOISE", BENCHMARK_SPECS.group)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == "vpdr.benchmarks" else [])
    assert Registry("benchmark", dict(BENCHMARK_SPECS))["noise"] is NOISE
