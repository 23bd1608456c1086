"""Images in directories, in the layouts in which people unpack them."""

import shutil

import numpy as np
import pytest

from tests.unit.data.format_files import published_sizes, write_class_directories, write_image
from vpdr.data import BENCHMARK_SPECS
from vpdr.data.benchmark import SplitConfig, split_benchmark
from vpdr.rng import Streams
from vpdr.validation import InvalidInput

OFFICE, PACS = BENCHMARK_SPECS["office_caltech"], BENCHMARK_SPECS["pacs"]
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")


def pacs(root, names=DOMAINS, each=3):
    for name in names:
        write_class_directories(root / name, PACS.class_names, each=each, suffix=".png")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    root = tmp_path_factory.mktemp("plain")
    pacs(root)
    return root


@pytest.fixture
def copy(plain, tmp_path):
    return shutil.copytree(plain, tmp_path / "copy")


def test_images_are_ordered_by_domain_class_and_name(plain):
    benchmark = PACS.load(plain, pixels=16)
    assert [domain.name for domain in benchmark.domains] == list(DOMAINS)
    assert benchmark.class_names[0] == "dog"
    for domain in benchmark.image_domains:
        assert domain.labels.tolist() == np.repeat(np.arange(7), 3).tolist()
        assert domain.images.shape == (21, 16, 16, 3)
        assert domain.official_test is None


@pytest.mark.parametrize("wrapper", ["PACS", "kfold", "PACS/kfold"])
def test_a_directory_around_the_domains_is_searched(tmp_path, plain, wrapper):
    shutil.copytree(plain, tmp_path / wrapper)
    assert len(PACS.load_labels(tmp_path).labels) == 84


def test_train_and_test_directories_are_read_as_one_in_the_same_order(tmp_path, plain):
    above, below = tmp_path / "above", tmp_path / "below"
    for path in sorted(plain.rglob("*.png")):
        domain, label, name = path.relative_to(plain).parts
        part = "test" if name == "pic_001.png" else "train"
        for target in (above / part / domain / label, below / domain / part / label):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / name)
    expected = PACS.load(plain, pixels=16)
    for root in (above, below):
        loaded = PACS.load(root, pixels=16)
        for one, two in zip(expected.image_domains, loaded.image_domains, strict=True):
            assert np.array_equal(one.labels, two.labels)
            assert np.array_equal(one.images, two.images)
        split_benchmark(expected, SplitConfig(), Streams(0)).check(loaded)


@pytest.mark.parametrize("caltech", ["caltech", "caltech10", "Caltech10"])
def test_office_caltech_under_either_name_with_old_class_names(tmp_path, caltech):
    old = ["back_pack", "laptop_computer", "Bike", *OFFICE.class_names[2:5], *OFFICE.class_names[6:]]
    for domain in ("amazon/images", caltech, "dslr", "webcam"):
        write_class_directories(tmp_path / "images" / domain, old, each=1)
    labels = OFFICE.load_labels(tmp_path)
    assert [domain.name for domain in labels.domains] == ["amazon", "caltech", "dslr", "webcam"]
    assert all(domain.labels.tolist() == list(range(10)) for domain in labels.domains)


def test_images_of_any_mode_become_rgb(tmp_path, plain):
    shutil.copytree(plain, tmp_path / "x")
    directory = tmp_path / "x" / "photo" / "dog"
    for number, (mode, suffix) in enumerate([("L", ".png"), ("P", ".gif"), ("RGBA", ".png"), ("CMYK", ".jpg")]):
        write_image(directory / f"zz{number}{suffix}", mode=mode, seed=number)
    assert PACS.load(tmp_path, pixels=16).image_domains[0].images.shape == (25, 16, 16, 3)


def test_a_truncated_image_is_named_and_the_check_goes_on(copy):
    for name in ("photo/dog/pic_001.png", "sketch/person/pic_002.png"):
        path = copy / name
        path.write_bytes(path.read_bytes()[:200])
    (copy / "cartoon/house/pic_000.png").write_bytes(b"")
    report = PACS.check(copy)
    errors = [line for line in report.issues if "complete image" in line]
    assert [line.split(":")[0] for line in errors] == [
        "photo/dog/pic_001.png",
        "cartoon/house/pic_000.png",
        "sketch/person/pic_002.png",
    ]
    assert [count.total for count in report.counts] == [21] * 4
    with pytest.raises(InvalidInput, match=r"complete image in .*pic_001.png.*download it again"):
        PACS.load(copy, pixels=16)


def test_a_wrong_class_directory_is_named_and_never_left_out_silently(copy):
    (copy / "art_painting/dog").rename(copy / "art_painting/dgo")
    (line,) = [line for line in PACS.check(copy).issues if "class directory" in line]
    assert line.startswith("art_painting/dgo: expected a class directory (dog, elephant")
    with pytest.raises(InvalidInput, match="art_painting/dgo"):
        PACS.load(copy, pixels=16)


def test_a_missing_domain_is_named_and_must_be_excluded_explicitly(copy):
    shutil.rmtree(copy / "sketch")
    report = PACS.check(copy)
    assert [count.domain for count in report.counts] == ["photo", "art_painting", "cartoon"]
    assert report.issues[0].startswith("sketch: expected a directory sketch below")
    with pytest.raises(InvalidInput, match="sketch: expected a directory"):
        PACS.load(copy, pixels=16)
    assert len(PACS.load(copy, pixels=16, domains=DOMAINS[:3]).domains) == 3


def test_other_files_and_hidden_ones_are_ignored(copy):
    (copy / "photo/dog/notes.txt").write_text("x")
    (copy / "photo/dog/.DS_Store").write_text("x")
    (copy / "photo/dog/._pic_000.png").write_text("x")
    (copy / ".git").mkdir()
    (copy / "__MACOSX").mkdir()
    benchmark = PACS.load(copy, pixels=16)
    assert any("photo/dog/notes.txt: expected an image" in line for line in benchmark.warnings)
    assert len(benchmark.image_domains[0]) == 21


def test_a_link_to_another_disk_is_followed(tmp_path, plain):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "pacs").symlink_to(plain)
    assert len(PACS.load_labels(tmp_path / "here").labels) == 84


def test_an_empty_class_directory_is_named(copy):
    for path in (copy / "photo/dog").iterdir():
        path.unlink()
    assert any(line.startswith("photo/dog: expected images") for line in PACS.check(copy).issues)


def test_a_root_that_is_no_directory_is_one_line(tmp_path):
    with pytest.raises(InvalidInput, match="expected a directory with the data"):
        PACS.check(tmp_path / "nowhere")


def test_counts_that_differ_from_the_published_are_an_issue(plain):
    (line, *_) = PACS.check(plain).issues
    assert line == (
        "photo: expected 1,670 samples in all, got 21 (dog 3 for 189, elephant 3 for 202, giraffe 3 for 182 and 4 more)"
    )


def test_published_sizes_add_up():
    assert [published_sizes(spec) for spec in PACS.domains] == [(1670,), (2048,), (2344,), (3929,)]
    assert [published_sizes(spec) for spec in OFFICE.domains] == [(958,), (1123,), (157,), (295,)]
