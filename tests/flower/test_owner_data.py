"""Data are the owner's: checked before a plan can matter, and one folder for one dataset."""

from pathlib import Path

import numpy as np
import pytest

from tests.flower.conftest import RUN, opening, paid, tiny, with_features
from tests.flower.owner_cases import refused
from vpdr.flower.errand import Errand
from vpdr.flower.node import answer, greet
from vpdr.flower.policy import DataTerms
from vpdr.flower.refusals import Code, Refused
from vpdr.flower.samples import fingerprint


def test_a_silo_brings_its_own_features(tmp_path: Path) -> None:
    plan = tiny()
    home = with_features(tmp_path, plan)
    assert greet(home, plan) == "hospital-a"
    upload = answer(home, opening(plan)).upload
    assert upload.labels.tolist() == [0, 1, 2, 3]
    with pytest.raises(Refused) as refusal:
        answer(home, opening(tiny("model.dim=16"), run="a" * 16))
    assert refusal.value.code is Code.BENCHMARK


def test_nobody_knows_the_projection_of_a_file(tmp_path: Path) -> None:
    plan = tiny(source="strict")
    home = with_features(tmp_path, plan)
    assert refused(home, opening(tiny("mechanism.metric=projection", source="strict"))) is Code.BENCHMARK
    assert paid(home) == 0
    assert answer(home, opening(plan)).upload is not None


def test_a_first_message_that_is_refused_does_not_close_the_folder(tmp_path: Path) -> None:
    plan = tiny()
    home = with_features(tmp_path, plan)
    assert refused(home, opening(tiny("model.dim=16"))) is Code.BENCHMARK
    assert answer(home, opening(plan)).upload is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"train_x": np.full((40, 12), np.nan)},
        {"train_x": np.full((40, 12), 1e30)},
        {"train_y": np.arange(40)},
        {"test_y": np.full(8, -1)},
        {"train_y": np.arange(39) % 4},
        {"train_y": np.linspace(0, 1, 40)},
        {"test_x": np.zeros(8)},
    ],
    ids=["nan", "huge", "labels", "negative", "lengths", "fractions", "shape"],
)
def test_data_are_checked_before_a_plan_can_matter(tmp_path: Path, changes) -> None:
    plan = tiny()
    home = with_features(tmp_path, plan)
    with np.load(tmp_path / "silo.npz") as found:
        arrays = dict(found)
    np.savez(tmp_path / "silo.npz", **{**arrays, **changes})
    assert refused(home, Errand(run=RUN, hop=1, plan=plan)) is Code.OWN_DATA
    assert refused(home, opening(tiny("mechanism.clip_norm=1.0"))) is Code.OWN_DATA
    assert paid(home) == 0


def test_a_folder_belongs_to_one_dataset(tmp_path: Path) -> None:
    plan = tiny()
    home = with_features(tmp_path, plan)
    answer(home, opening(plan))
    told = (home.path / "dataset.json").read_text()
    with np.load(tmp_path / "silo.npz") as found:
        arrays = dict(found)
    arrays["train_x"][0] += 1
    np.savez(tmp_path / "silo.npz", **arrays)
    with pytest.raises(Refused) as refusal:
        answer(home, opening(plan, run="b" * 16))
    assert refusal.value.code is Code.OTHER_DATA
    assert (home.path / "dataset.json").read_text() == told
    assert paid(home) == 1


def test_a_fingerprint_looks_into_the_middle_of_files(tmp_path: Path) -> None:
    for size in (5_000, 500_000):
        file = tmp_path / str(size)
        file.write_bytes(bytes(size))
        terms = DataTerms(benchmark="digits", settings={"root": str(tmp_path)})
        before = fingerprint("a", terms)
        file.write_bytes(bytes(size // 2) + b"\1" * (size - size // 2))
        assert fingerprint("a", terms) != before
