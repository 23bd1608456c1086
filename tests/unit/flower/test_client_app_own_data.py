"""A silo with data of its own: the kinds and formats of `vpdr run`, read by the same reader."""

import json
from pathlib import Path

import pytest

from tests.unit.data.own_files import features, write_features, write_folder, write_texts
from tests.unit.flower.conftest import edit_policy, make_request, make_store, num_charges, tiny
from tests.unit.flower.owner_cases import refusal_code
from vpdr.flower.client_app import handle_request, load_local_client, with_local_paths
from vpdr.flower.owner import BudgetPolicy, DataPolicy, NodeStore, Policy, Refusal, RefusalCode, read_policy
from vpdr.validation import InvalidInput

KEY = bytes(32)
IMAGES = ("model.weights=random", "benchmark.pixels=32")
TEXTS = ("model.backbone=minilm", "model.weights=random")
PRIVATE = ("budget.adjacency=replace-one", "release.summariser=sums", "release.encoder=public")


def make_silo(tmp_path: Path, config, source: str) -> NodeStore:
    """A node whose policy names data of its own."""
    store = make_store(tmp_path, config)
    edit_policy(store.path, ('benchmark = "synthetic"', source), ('"client-000"', '"hospital-a"'))
    return store


def source_of(kind: str, path: Path, classes: tuple[str, ...]) -> str:
    return f'{kind} = "{path}"\nclass_names = {json.dumps(classes)}'


@pytest.fixture(autouse=True)
def _separate_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VPDR_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("kind", "write", "file", "settings"),
    [
        ("folder", write_folder, "photos", IMAGES),
        ("features", write_features, "f.csv", ()),
        ("features", write_features, "f.npz", ()),
        ("texts", write_texts, "t.jsonl", TEXTS),
    ],
)
def test_all_samples_of_a_source_are_the_silos(tmp_path: Path, kind, write, file, settings) -> None:
    config = tiny(*settings)
    classes = ("bird", "cat", "dog") if kind == "folder" else ("business", "politics", "sport")  # one is elsewhere
    store = make_silo(tmp_path, config, source_of(kind, write(tmp_path / file), classes))
    upload = handle_request(store, make_request(config)).upload
    assert set(upload.labels.tolist()) == ({1, 2} if kind == "folder" else {0, 2})
    assert num_charges(store) == 1
    setup, number = load_local_client(store.policy(), config, KEY)
    assert number == 3
    assert len(setup.shard.train.labels) + len(setup.shard.test.labels) == 48


def test_wrong_data_are_refused_whatever_a_run_says(tmp_path: Path) -> None:
    config = tiny()
    path = write_features(tmp_path / "f.csv")
    store = make_silo(tmp_path, config, source_of("features", path, ("business", "politics")))
    for changes in ((), ("mechanism.clip_norm=1.0",), ("model.dim=16",)):
        assert refusal_code(store, make_request(tiny(*changes))) is RefusalCode.OWN_DATA
    assert num_charges(store) == 0


def test_a_backbone_of_the_run_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    config = tiny(*TEXTS)
    source = source_of("folder", write_folder(tmp_path / "photos"), ("cat", "dog"))
    store = make_silo(tmp_path, config, source)
    assert refusal_code(store, make_request(config)) is RefusalCode.BENCHMARK
    assert num_charges(store) == 0


def test_features_count_as_public_only_if_their_owner_declares_it(tmp_path: Path) -> None:
    config = tiny(source="strict")
    path, parts = tmp_path / "f.csv", ("test", "train", "train", "train", "train")
    rows = [f"{','.join(map(str, row))},{n % 2},{parts[n % 5]}" for n, row in enumerate(features()[0].tolist())]
    path.write_text("\n".join(["a,b,c,d,e,f,label,split", *rows]))
    store = make_silo(tmp_path, config, f'features = "{path}"\nclasses = 2')
    assert refusal_code(store, make_request(config)) is RefusalCode.GUARANTEE
    edit_policy(store.path, ("classes = 2", 'classes = 2\nencoder = "public"'))
    assert handle_request(store, make_request(config)).upload is not None


def test_a_server_says_neither_how_data_are_read_nor_that_their_encoder_is_public(tmp_path: Path) -> None:
    path = write_features(tmp_path / "f.csv")
    greedy = ("benchmark.label_column=f1", "benchmark.client=me", "benchmark.encoder=public")
    config = tiny("benchmark.kind=features", *greedy, source="strict")
    policy = Policy(name="north", data=DataPolicy(benchmark="features", settings={"root": str(path)}))
    with pytest.raises(Refusal) as refusal:
        load_local_client(policy, config, KEY)
    assert refusal.value.code is RefusalCode.GUARANTEE
    settings = {"root": str(path), "encoder": "public"}
    policy = Policy(name="north", data=DataPolicy(benchmark="features", settings=settings))
    section = with_local_paths(policy, config).benchmark
    assert (section.label_column, section.client, section.encoder) == ("", "", "public")
    assert load_local_client(policy, config, KEY)[1] == 2


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_one_changed_sample_moves_no_other_one(tmp_path: Path, adjacency: str) -> None:
    private = (f"budget.adjacency={adjacency}", "release.summariser=sums", "release.encoder=personal")
    greedy = ("benchmark.kind=folder", "benchmark.train_fraction=0.5", "benchmark.skew=label", "run.seed=7")
    parts = []
    for name, changed in (("a", False), ("b", True)):
        rows = [[*map(str, row), str(n % 2)] for n, row in enumerate(features()[0].tolist())]
        if changed:
            rows[10] = ["9"] * 6 + ["1"]
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["a,b,c,d,e,f,label", *(",".join(row) for row in rows)]))
        budget = BudgetPolicy(adjacency=adjacency)
        policy = Policy(name="a", budget=budget, data=DataPolicy(features=str(path), classes=2, test_fraction=0.3))
        for settings in ((), greedy):  # nothing of the run's split is used
            setup, _ = load_local_client(policy, tiny("model.dim=6", *private, *settings), KEY)
            train, test = setup.shard.train.frozen_features, setup.shard.test.frozen_features
            assert len(train) + len(test) == 48
            assert 5 <= len(test) <= 25
            parts.append({tuple(row) for row in train.tolist()})
    assert parts[0] == parts[1]
    assert parts[2] == parts[3]
    assert len(parts[0] ^ parts[2]) <= 2  # the old sample and the new one


def test_marked_test_samples_are_the_owners_split(tmp_path: Path) -> None:
    config = tiny(*PRIVATE, *IMAGES)
    for part in ("train", "test"):
        write_folder(tmp_path / "parts" / part, [""])
    store = make_silo(tmp_path, config, source_of("folder", tmp_path / "parts", ("cat", "dog")))
    setup, _ = load_local_client(store.policy(), config, KEY)
    assert len(setup.shard.train.labels) == len(setup.shard.test.labels) == 24
    assert handle_request(store, make_request(config)).upload is not None


def test_a_source_is_named_once_with_its_classes(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not both"):
        DataPolicy(folder="a", texts="b", classes=2)
    with pytest.raises(InvalidInput, match="classes must be at least 1"):
        DataPolicy(folder="a")
    policy = tmp_path / "policy.toml"
    policy.write_text('name = "a"\n[data]\ntexts = "t.csv"\nclass_names = ["b", "a"]\n')
    assert read_policy(policy).data.class_names == ("b", "a")
