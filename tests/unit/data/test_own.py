"""The user's own data: structure, columns, class names, and one line for each mistake."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.data.format_files import write_image
from tests.unit.data.own_files import CLIENTS, features, text_rows, write_features, write_folder, write_hugging_face
from vpdr import Dataset, build, load_config, run
from vpdr.cli import main
from vpdr.data import DatasetDescription, DatasetOptions, read_dataset
from vpdr.data.benchmark import FeatureDomain, split_benchmark
from vpdr.rng import Streams
from vpdr.validation import InvalidInput

SMALL = ("run.rounds=1", "train.epochs=1", "model.dim=6", "model.hidden=8", "model.width=4")


def read(kind, path, **options):
    return read_dataset(kind, str(path), DatasetOptions(**options))


def load(kind, path, **options):
    return read(kind, path, **options).to_spec().load(path, pixels=32)


def write_csv(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_folder_of_domains_and_classes(tmp_path):
    benchmark = load("folder", write_folder(tmp_path, each=2))
    assert benchmark.class_names == ("cat", "dog")
    assert [domain.name for domain in benchmark.domains] == list(CLIENTS)
    assert benchmark.image_domains[0].labels.tolist() == [0, 0, 1, 1]
    assert benchmark.image_domains[0].images.shape == (4, 32, 32, 3)


def test_a_folder_of_classes_is_one_pool(tmp_path):
    spec = read("folder", write_folder(tmp_path, domains=[""], each=20)).to_spec()
    assert [domain.name for domain in spec.domains] == ["data"]
    assert spec.split_config.skew == "pooled"
    even = replace(spec.split_config, concentration=100.0, minimum=2)
    split = split_benchmark(spec.load_labels(tmp_path), even, Streams(0))
    assert len(split.client_splits) == spec.split_config.clients


@pytest.mark.parametrize("domains", [[""], CLIENTS])
def test_train_and_test_directories_are_the_split(tmp_path, domains):
    write_folder(tmp_path / "Train", domains, each=3)
    write_folder(tmp_path / "test", domains, each=2)
    domain = load("folder", tmp_path).image_domains[0]
    assert domain.labels.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert domain.official_test.tolist() == [6, 7, 8, 9]


def test_validation_samples_are_trained_on_with_a_warning(tmp_path):
    for part in ("train", "val", "test"):
        write_folder(tmp_path / part, [""], each=2)
    benchmark = load("folder", tmp_path)
    assert len(benchmark.domains[0].official_test) == 4
    assert "validation samples are part of the training samples" in benchmark.warnings[0]


@pytest.mark.parametrize("suffix", [".jpg", ".webp", ".tga", ".pcx", ".jp2"])
def test_any_format_of_pillow(tmp_path, suffix):
    for name in ("a", "b"):
        write_image(tmp_path / name / f"1{suffix}")
    assert len(load("folder", tmp_path).image_domains[0]) == 2


def test_mixed_depths_are_refused_with_an_example_of_each(tmp_path):
    write_folder(tmp_path, each=1)
    write_image(tmp_path / "cat" / "stray.png")
    with pytest.raises(InvalidInput, match=r"class/file or all as domain/class/file .*cat/stray.png and north/cat/00"):
        read("folder", tmp_path)
    write_image(tmp_path / "deep" / "a" / "b" / "c.png")
    with pytest.raises(InvalidInput, match=r"deep/a/b/c.png; move them"):
        read("folder", tmp_path)


def test_unreadable_images_are_all_listed_and_loading_names_the_first(tmp_path, capsys):
    write_folder(tmp_path, each=3)
    for name in ("north/dog/01.png", "north/cat/00.png", "south/cat/02.png"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n")
    (tmp_path / "south" / "bird").mkdir()
    (tmp_path / "south" / "notes.txt").write_text("x")
    assert main(["data", "check", "folder", "--root", str(tmp_path)]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("!")]
    found = [line.split(":")[0] for line in lines]
    assert sorted(found) == [
        f"! {name}"
        for name in ("north/cat/00.png", "north/dog/01.png", "south/bird", "south/cat/02.png", "south/notes.txt")
    ]
    assert all("replace or remove it" in line for line in lines if "complete image" in line)
    (tmp_path / "south" / "bird").rmdir()
    with pytest.raises(
        InvalidInput, match=r"north/cat/00.png.*replace or remove it \(and 1 more; `vpdr data check fol"
    ):
        load("folder", tmp_path)


@pytest.mark.parametrize(
    ("kind", "lines", "message"),
    [
        ("features", ["f1,f2,label", "1,2,a", "1,,b"], "expected numbers in column 'f2'"),
        ("features", ["f1,f2,label", "1,nan,a", "1,2,b"], "expected finite features, got none in line 2"),
        ("features", ["f1,f2,label", "inf,1,a", "1e300,1,a", "1,2,b"], "in line 2 and in 1 more"),
        ("features", ["f1,f2,label", "1,2,a", "3,4,a"], "expected two classes or more, got a"),
        (
            "features",
            ["f1,f2,label", "1,2,a", "3,4,"],
            "expected a name or a whole number as label, got none in line 3",
        ),
        ("features", ["f1,f2,label,y", "1,2,a,1", "3,4,b,2"], "one column of labels .* got label and y"),
        ("features", ["f1,f2", "1,2", "3,4"], "got f1, f2; set benchmark.label_column"),
        ("features", ["f1,f2,label", "1,2,a", "3,4"], "line 3: expected 3 columns, got 2"),
        ("features", ["f1,f2,label"], "expected rows, found none"),
        ("features", ["f1,f1,label", "1,2,a", "1,2,b"], "two columns of one name"),
        ("features", ["f1,label,split", "1,a,train", "1,b,later"], "train, validation or test in column split"),
        ("features", ["f1,label,split", "1,a,test", "1,b,test"], "got test samples only"),
        ("features", ["f1,label,client", "1,a,../x", "1,b,y"], "client '../x' names a file"),
        ("features", ["f1,label,client", "1,a,", "1,b,y"], "a client in column client"),
        ("texts", ["text,label", "hello,a", " ,b"], "expected a text, got none in line 3"),
        ("texts", ["body,label", "hello,a", "bye,b"], "expected a column of texts"),
    ],
)
def test_a_mistake_in_a_table_is_one_line(tmp_path, kind, lines, message):
    path = write_csv(tmp_path / "table.csv", *lines)
    with pytest.raises(InvalidInput, match=message) as error:
        load(kind, path)
    assert "\n" not in str(error.value)


def test_unknown_labels_and_missing_classes(tmp_path):
    path = write_csv(tmp_path / "t.csv", "text,label", "hello,cat", "bye,bird", "hi,bird")
    (error,) = read("texts", path, class_names=("cat", "dog")).errors
    assert error == (
        "t.csv line 3: expected a label of benchmark.class_names (cat, dog), got 'bird'; add it there, or remove its "
        "samples"
    )
    benchmark = load("texts", path, class_names=("bird", "cat", "dog"))
    with pytest.raises(InvalidInput, match="class dog has no samples in any domain"):
        benchmark.check_every_class()
    assert read("texts", path, class_names=("bird", "cat")).labels.tolist() == [1, 0, 0]


def test_a_class_with_test_samples_only_is_refused_and_listed(tmp_path, capsys):
    path = write_csv(tmp_path / "t.csv", "f1,label,split", "1,a,train", "2,b,test", "3,a,test")
    with pytest.raises(InvalidInput, match="class b has test samples only"):
        load("features", path).check_every_class()
    assert main(["data", "check", "features", "--root", str(path)]) == 1
    assert "class b has test samples only" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nowhere", "x.xlsx", "broken.npz", "broken.jsonl"])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, name):
    path = tmp_path / name
    if name != "nowhere":
        path.write_text("{")
    with pytest.raises(InvalidInput, match="expected"):
        load("features", path)


def test_numbers_are_sorted_by_value_and_other_names_as_text(tmp_path):
    rows = ["f1,label", *(f"0,{label}" for label in (10, 9, "2.0"))]
    assert read("features", write_csv(tmp_path / "a.csv", *rows)).class_names == ("10", "2.0", "9")
    np.savez(tmp_path / "a.npz", x=np.eye(3), y=np.array([10.0, 9.0, 2.0]))
    assert read("features", tmp_path / "a.npz").class_names == ("2", "9", "10")


def test_columns_are_named_where_guessing_fails(tmp_path):
    rows = [
        "site,x1,x2,y,diagnosis,part",
        "a,1,2,9,ill,train",
        "b,3,4,9,well,train",
        "a,5,6,9,well,test",
        "b,7,8,9,ill,test",
    ]
    path = write_csv(tmp_path / "a.csv", *rows)
    dataset = read("features", path, label_column="diagnosis", client_column="site")
    assert dataset.content.tolist() == [[1, 2, 9], [3, 4, 9], [5, 6, 9], [7, 8, 9]]
    assert dataset.clients == ("a", "b", "a", "b")
    assert dataset.is_test.tolist() == [False, False, True, True]
    dataset = read("features", path, label_column="diagnosis", client_column="site", input_column="x*")
    assert dataset.content.shape == (4, 2)
    with pytest.raises(InvalidInput, match=r"expected a column 'place', got site.*set benchmark.client_column"):
        read("features", path, label_column="diagnosis", client_column="place")


def test_files_that_changed_are_read_again(tmp_path):
    path = write_csv(tmp_path / "a.csv", "f1,label", "1,a", "2,b")
    first = read("features", path)
    assert read("features", path) is first
    write_csv(path, "f1,label", "1,a", "2,b", "3,c")
    assert read("features", path).class_names == ("a", "b", "c")


def test_hugging_face_keeps_the_order_of_class_labels(tmp_path):
    dataset = read("hf", write_hugging_face(tmp_path / "saved", "image"))
    assert dataset.class_names == ("sport", "business")
    assert dataset.is_test.sum() == 24
    domain = dataset.to_spec().load(tmp_path, pixels=32).image_domains[0]
    assert domain.images.shape == (24, 32, 32, 3)


def test_a_dataset_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")

    def unreachable(name):
        raise ConnectionError(f"Couldn't reach {name!r} on the Hub\n(LocalEntryNotFoundError)")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(InvalidInput, match=r"cannot load the dataset somebody/pets: Couldn't reach .* a network"):
        read("hf", "somebody/pets")
    config = load_config("paper", data={"hf": "somebody/pets"})
    assert config.benchmark.root == "somebody/pets"


def test_a_missing_package_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(InvalidInput, match=r"needs the package datasets.*pip install 'vpdr\[hf\]'"):
        read("hf", tmp_path)


def test_arrays_in_memory():
    x, labels, clients = features()
    dataset = Dataset.from_arrays(torch.from_numpy(x), torch.from_numpy(labels), client=clients)
    federation = build(load_config("paper", *SMALL), dataset=dataset)
    assert federation.server.names == CLIENTS
    assert federation.config.benchmark.kind == "arrays"
    record = run(load_config("strict", *SMALL, "benchmark.kind=arrays", "benchmark.encoder=public"), dataset=dataset)
    assert record.data == DatasetDescription(modality="features", class_names=("0", "1"), dim=6)


def test_arrays_of_images_and_texts():
    images = np.random.default_rng(0).integers(256, size=(40, 20, 24), dtype=np.uint8)
    spec = Dataset.from_arrays(images, np.arange(40) % 2).to_spec()
    assert spec.load(Path(), pixels=32).image_domains[0].images.shape == (40, 20, 20, 3)
    rows = text_rows()
    dataset = Dataset.from_arrays([row["text"] for row in rows], [row["label"] for row in rows])
    assert dataset.to_spec().load(Path()).text_domains[0].texts[0] == rows[0]["text"]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((3, 2)), [0, 1], "one length, got x 3, y 2"),
        (np.full((2, 2), np.nan), [0, 1], "finite features, got none in row 0 and in 1 more"),
        (np.zeros((2, 2, 2, 2)), [0, 1], "expected features"),
        (np.zeros((2, 2)), [0.5, 1], "a name or a whole number as label"),
        (np.zeros((0, 2)), [], "expected samples"),
    ],
)
def test_arrays_that_do_not_fit_are_one_line(x, y, message):
    with pytest.raises(InvalidInput, match=message):
        Dataset.from_arrays(x, y)


def test_features_are_taken_as_they_are_or_projected(tmp_path):
    path = write_features(tmp_path / "f.npz")
    config = load_config("paper", *SMALL, data={"features": path})
    setups = build(config).client_setups
    domain = load("features", path).domains[0]
    assert isinstance(domain, FeatureDomain)
    given = {tuple(row) for row in domain.features.tolist()}
    assert {tuple(row) for row in setups["north"].shard.train.frozen_features.tolist()} <= given
    config = load_config("paper", *SMALL, "model.dim=4", data={"features": path})
    assert build(config).client_setups["north"].shard.train.frozen_features.shape[1] == 4


def test_features_count_as_public_only_if_somebody_declares_it(tmp_path):
    path = write_features(tmp_path / "f.npz")
    for declared in ("", "benchmark.encoder=personal"):
        with pytest.raises(InvalidInput, match=r"benchmark\.encoder=public"):
            load_config("strict", *SMALL, *filter(None, [declared]), data={"features": path})
    with pytest.raises(InvalidInput, match="no images for a backbone"):
        load_config("paper", "model.adapters=blocks", data={"features": path})


def test_features_of_a_dataset_need_the_same_declaration(tmp_path):
    path = write_hugging_face(tmp_path / "saved", "features")
    with pytest.raises(InvalidInput, match=r"benchmark\.encoder=public"):
        build(load_config("strict", *SMALL, data={"hf": path}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "benchmark.label_column=x"], "benchmark.label_column has no effect"),
        (["--data", "folder=a", "--set", "benchmark.label_column=x"], "benchmark.label_column has no effect"),
        (["--data", "folder=a", "--data", "texts=b"], "--data names several benchmarks"),
        (["--set", "benchmark.kind=arrays"], "benchmark arrays is data in memory"),
        (["--set", "benchmark.kind=folder"], "benchmark folder needs its data, got no path"),
        (["--data", "folder=nowhere"], "nowhere, which does not exist"),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path, capsys, arguments, message):
    assert main(["run", "paper", "--out", str(tmp_path / "x"), *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_check_and_manifest_read_named_columns(tmp_path, capsys):
    path = write_csv(tmp_path / "a.csv", "f1,diagnosis", *(f"{n},{'ill' if n % 2 else 'well'}" for n in range(60)))
    arguments = ["--root", str(path), "--set", "label_column=diagnosis"]
    assert main(["data", "check", "features", *arguments]) == 0
    assert "your data is whole" in capsys.readouterr().out
    out = tmp_path / "split.json"
    assert main(["data", "manifest", "features", *arguments, "--set", "clients=2", "--out", str(out)]) == 0
    config = load_config(
        "paper", *SMALL, "benchmark.label_column=diagnosis", f"benchmark.manifest={out}", data={"features": path}
    )
    assert build(config).server.names == ("client-000", "client-001")
    assert main(["data", "check", "features", "--root", str(path), "--set", "label_colum=diagnosis"]) == 2
    assert "did you mean 'label_column'" in capsys.readouterr().err


def test_own_data_are_compared_attacked_and_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: None)
    path = write_features(tmp_path / "f.csv")
    settings = [word for each in (*SMALL, "benchmark.encoder=public") for word in ("--set", each)]
    data = ["--data", f"features={path}", *settings, "--quiet"]
    methods = ["--methods", "local,igpp,strict", "--seeds", "0..1", "--jobs", "1"]
    assert main(["run", "paper", *data, *methods, "--out", str(tmp_path / "both")]) == 0
    assert main(["run", "paper", *data, "--attack", "mia", "--out", str(tmp_path / "one")]) == 0
    assert main(["attack", str(tmp_path / "one")]) == 0
    assert main(["run", str(tmp_path / "one" / "plan.toml"), "--quiet", "--out", str(tmp_path / "again")]) == 0
