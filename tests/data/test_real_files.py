"""The real files, where `VPDR_DATA` names a folder with them (Office-Caltech-10 as a tar or unpacked)."""

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from vpdr.data import SOURCES, Pictures, divide
from vpdr.rng import Streams

FOLDER = os.environ.get("VPDR_DATA")
ROOT = Path(FOLDER or ".")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="VPDR_DATA is not set")


def need(pattern):
    found = sorted(ROOT.glob(pattern))
    if not found:
        pytest.skip(f"no {pattern} in VPDR_DATA")
    return found[0]


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    if (ROOT / "amazon").is_dir():
        return ROOT
    root = tmp_path_factory.mktemp("office")
    with tarfile.open(need("office_caltech10*.tar")) as archive:
        archive.extractall(root, filter="data")
    return root


def sizes(source, benchmark):
    manifest = divide(benchmark, source.division, Streams(0))
    return [(len(portion.train), len(portion.test)) for portion in manifest.portions]


def test_office_caltech_is_whole_and_divided_as_in_the_paper(office):
    source = SOURCES["office_caltech"]
    assert source.check(office).findings == ()
    benchmark = source.load(office, pixels=32)
    assert sizes(source, benchmark) == [(230, 191), (269, 224), (37, 31), (70, 59)]
    assert len(Pictures.of(benchmark, pixels=32)) == 2533


def test_the_digits_that_are_here(request):
    need("mnist*.npz")
    source = SOURCES["digits"]
    benchmark = source.load(ROOT, pixels=32, only=["mnist", "usps"])
    assert sizes(source, benchmark) == [(6000, 10000), (729, 2007)]
    for domain in benchmark.pictures:
        ink = domain.images.reshape(len(domain), -1).mean(axis=1)
        assert ink.min() > 3
        assert ink[domain.labels == 1].mean() < ink[domain.labels == 0].mean()  # a one needs less ink


def test_ag_news_leaves_the_notes_out_of_the_texts():
    need("ag_news_train*.csv.gz")
    benchmark = SOURCES["agnews"].load(ROOT)
    (domain,) = benchmark.texts
    assert np.bincount(domain.labels[domain.official_test]).tolist() == [1900] * 4
    assert not any(text.endswith(("PAS train", "PAS imbalanced")) for text in domain.texts)
    assert any("taken for a note" in remark for remark in benchmark.remarks)
    assert len(sizes(SOURCES["agnews"], benchmark)) == 20
