"""The owner's data: checked before a config is used, and one directory per dataset."""

from pathlib import Path

import numpy as np
import pytest

from tests.unit.flower.conftest import RUN, edit_policy, make_feature_store, make_request, num_charges, tiny
from tests.unit.flower.owner_cases import refusal_code
from vpdr.flower.client_app import fingerprint, handle_hello, handle_request, load_local_client
from vpdr.flower.messages import RoundRequest
from vpdr.flower.owner import DataPolicy, NodeStore, Refusal, RefusalCode


def test_a_client_has_its_own_features(tmp_path: Path) -> None:
    config = tiny()
    store = make_feature_store(tmp_path, config)
    assert handle_hello(store, config) == "hospital-a"
    upload = handle_request(store, make_request(config)).upload
    assert upload.labels.tolist() == [0, 1, 2, 3]
    with pytest.raises(Refusal) as refusal:
        handle_request(store, make_request(tiny("model.dim=16"), run="a" * 16))
    assert refusal.value.code is RefusalCode.BENCHMARK


def test_a_retired_metric_is_refused(tmp_path: Path) -> None:
    config = tiny(source="strict")
    store = make_feature_store(tmp_path, config)
    data = make_request(config).to_data()
    data["plan"]["mechanism"]["metric"] = "projection"
    with pytest.raises(Refusal) as refusal:
        RoundRequest.from_data(data, {})
    assert refusal.value.code is RefusalCode.BAD_REQUEST
    assert num_charges(store) == 0
    assert handle_request(store, make_request(config)).upload is not None


def test_a_first_message_that_is_refused_does_not_close_the_folder(tmp_path: Path) -> None:
    config = tiny()
    store = make_feature_store(tmp_path, config)
    assert refusal_code(store, make_request(tiny("model.dim=16"))) is RefusalCode.BENCHMARK
    assert handle_request(store, make_request(config)).upload is not None


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
    config = tiny()
    store = make_feature_store(tmp_path, config)
    with np.load(tmp_path / "silo.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "silo.npz", **{**arrays, **changes})
    assert refusal_code(store, RoundRequest(run=RUN, message_index=1, config=config)) is RefusalCode.OWN_DATA
    assert refusal_code(store, make_request(tiny("mechanism.clip_norm=1.0"))) is RefusalCode.OWN_DATA
    assert num_charges(store) == 0


def test_a_folder_belongs_to_one_dataset(tmp_path: Path) -> None:
    config = tiny()
    store = make_feature_store(tmp_path, config)
    handle_request(store, make_request(config))
    before = (store.path / "dataset.json").read_text()
    with np.load(tmp_path / "silo.npz") as file:
        arrays = dict(file)
    arrays["train_x"][0] += 1
    np.savez(tmp_path / "silo.npz", **arrays)
    with pytest.raises(Refusal) as refusal:
        handle_request(store, make_request(config, run="b" * 16))
    assert refusal.value.code is RefusalCode.OTHER_DATA
    assert (store.path / "dataset.json").read_text() == before
    assert num_charges(store) == 1


def test_a_fingerprint_reads_the_middle_of_files(tmp_path: Path) -> None:
    for size in (5_000, 500_000):
        file = tmp_path / str(size)
        file.write_bytes(bytes(size))
        data_policy = DataPolicy(benchmark="digits", settings={"root": str(tmp_path)})
        before = fingerprint("a", data_policy)
        file.write_bytes(bytes(size // 2) + b"\1" * (size - size // 2))
        assert fingerprint("a", data_policy) != before


def unsplit_store(tmp_path: Path, config, **arrays: np.ndarray) -> NodeStore:
    """A silo whose file holds samples that are not split into training and test."""
    store = make_feature_store(tmp_path, config)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "silo.npz", **{"x": rng.normal(size=(60, 12)), "y": np.arange(60) % 4, **arrays})
    return store


def split_of(store: NodeStore, config, key: bytes) -> tuple[list[float], list[float]]:
    """The first coordinates of the training and of the test samples."""
    shard = load_local_client(store.policy(), config, key)[0].shard
    return tuple(part.frozen_features[:, 0].tolist() for part in (shard.train, shard.test))


@pytest.mark.parametrize("adjacency", ["replace-same-label", "replace-one", "add-remove"])
def test_an_owner_s_samples_are_split_one_by_one(tmp_path: Path, adjacency) -> None:
    """One changed sample, or one more, moves no other row, and no setting of a server decides."""
    config = tiny(f"budget.adjacency={adjacency}", "release.summariser=sums")
    store, key = unsplit_store(tmp_path, config), b"k" * 32
    edit = 'adjacency = "replace-same-label"'
    if adjacency not in (store.path / "policy.toml").read_text():
        edit_policy(store.path, (edit, f'adjacency = "{adjacency}"'))
    train, test = split_of(store, config, key)
    assert len(train) + len(test) == 60
    assert 40 < len(train) < 57
    with np.load(tmp_path / "silo.npz") as file:
        x, y = file["x"], file["y"]
    first = float(np.float32(x[7, 0]))
    x[7] += 1
    y[7] = 0
    np.savez(tmp_path / "silo.npz", x=x, y=y)
    changed = (first, float(np.float32(x[7, 0])))
    after = split_of(store, config, key)
    for before_part, after_part in zip((train, test), after, strict=True):
        assert [each for each in after_part if each not in changed] == [
            each for each in before_part if each not in changed
        ]
    if adjacency != "add-remove":
        assert [len(part) for part in after] == [len(train), len(test)]  # the size of the dataset is public
        return
    np.savez(tmp_path / "silo.npz", x=np.delete(x, 7, axis=0), y=np.delete(y, 7))
    for before_part, after_part in zip((train, test), split_of(store, config, key), strict=True):
        assert after_part == [each for each in before_part if each not in changed]


def test_the_key_of_a_split_is_the_owner_s(tmp_path: Path) -> None:
    config = tiny()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    stores = [unsplit_store(tmp_path / name, config) for name in ("a", "b")]
    for store in stores:
        assert handle_request(store, make_request(config)).upload is not None
    first, second = (store.split_key() for store in stores)
    assert first != second
    assert len(first) == 32
    assert stores[0].split_key() == first
    assert split_of(stores[0], config, first) == split_of(stores[0], tiny("run.seed=5"), first)
    assert split_of(stores[0], config, first) != split_of(stores[0], config, second)


def test_a_silo_without_samples_of_a_class_takes_part(tmp_path: Path) -> None:
    config = tiny("budget.adjacency=replace-one", "release.summariser=sums")
    store = unsplit_store(tmp_path, config, y=np.zeros(60, dtype=np.int64))
    assert handle_request(store, make_request(config)).upload.labels.tolist() == [0, 1, 2, 3]
