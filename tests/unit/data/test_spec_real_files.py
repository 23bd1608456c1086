"""The real files, if `VPDR_DATA` names their directory (Office-Caltech-10 as a tar or unpacked)."""

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from vpdr.data import BENCHMARK_SPECS
from vpdr.data.benchmark import split_benchmark
from vpdr.data.images import ImageInputs
from vpdr.rng import Streams

DATA_DIR = os.environ.get("VPDR_DATA")
ROOT = Path(DATA_DIR or ".")
pytestmark = pytest.mark.skipif(DATA_DIR is None, reason="VPDR_DATA is not set")


def find_or_skip(pattern):
    paths = sorted(ROOT.glob(pattern))
    if not paths:
        pytest.skip(f"no {pattern} in VPDR_DATA")
    return paths[0]


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    if (ROOT / "amazon").is_dir():
        return ROOT
    root = tmp_path_factory.mktemp("office")
    with tarfile.open(find_or_skip("office_caltech10*.tar")) as archive:
        archive.extractall(root, filter="data")
    return root


def sizes(spec, benchmark):
    split = split_benchmark(benchmark, spec.split_config, Streams(0))
    return [(len(client_split.train), len(client_split.test)) for client_split in split.client_splits]


def test_office_caltech_is_complete_and_split_as_in_the_paper(office):
    spec = BENCHMARK_SPECS["office_caltech"]
    assert spec.check(office).issues == ()
    benchmark = spec.load(office, pixels=32)
    assert sizes(spec, benchmark) == [(230, 191), (269, 224), (37, 31), (70, 59)]
    assert len(ImageInputs.from_benchmark(benchmark, pixels=32)) == 2533


def test_digits_on_disk_are_loaded_without_the_missing_domains():
    find_or_skip("mnist*.npz")
    spec = BENCHMARK_SPECS["digits"]
    benchmark = spec.load(ROOT, pixels=32, domains=["mnist", "usps"])
    assert sizes(spec, benchmark) == [(6000, 10000), (729, 2007)]
    for domain in benchmark.image_domains:
        ink = domain.images.reshape(len(domain), -1).mean(axis=1)
        assert ink.min() > 3
        assert ink[domain.labels == 1].mean() < ink[domain.labels == 0].mean()  # a one needs less ink


def test_ag_news_leaves_the_notes_out_of_the_texts():
    find_or_skip("ag_news_train*.csv.gz")
    benchmark = BENCHMARK_SPECS["agnews"].load(ROOT)
    (domain,) = benchmark.text_domains
    assert np.bincount(domain.labels[domain.official_test]).tolist() == [1900] * 4
    assert not any(text.endswith(("PAS train", "PAS imbalanced")) for text in domain.texts)
    assert any("taken for a note" in line for line in benchmark.warnings)
    assert len(sizes(BENCHMARK_SPECS["agnews"], benchmark)) == 20
