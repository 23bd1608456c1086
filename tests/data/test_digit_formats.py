"""The four digit sets in every format in which they are handed out."""

import sys

import numpy as np
import pytest

from tests.data import format_files as made
from vpdr.data import SOURCES
from vpdr.errors import InvalidInput

DIGITS = SOURCES["digits"]


def loaded(root, name, pixels=32):
    return DIGITS.load(root, pixels=pixels, only=[name]).pictures[0]


def same_digits(domain, side):
    expected = np.concatenate([made.noise(20, side, side), made.noise(10, side, side, seed=1)])
    assert domain.images.shape == (30, side, side, 3)
    assert domain.labels.tolist() == [*made.labels_of(20), *made.labels_of(10)]
    assert domain.official_test.tolist() == list(range(20, 30))
    for channel in range(3):
        assert np.array_equal(domain.images[..., channel], expected)


@pytest.mark.parametrize(
    ("folder", "suffix", "separator"),
    [
        ("", "", "-"),
        ("MNIST/raw", ".gz", "-"),
        ("mnist", "", "."),
    ],
)
def test_mnist_from_idx_files(tmp_path, folder, suffix, separator):
    made.mnist_idx(tmp_path / folder, suffix, separator)
    domain = loaded(tmp_path, "mnist")
    same_digits(domain, 28)
    assert domain.whole == 60_000
    assert isinstance(domain.images, np.memmap)


def test_a_sibling_in_the_same_format_is_not_taken_for_mnist(tmp_path):
    made.mnist_idx(tmp_path / "FashionMNIST" / "raw", train=5, test=5)
    made.mnist_idx(tmp_path / "MNIST" / "raw")
    same_digits(loaded(tmp_path, "mnist"), 28)


@pytest.mark.parametrize("name", ["mnist.npz", "mnist_10pct.npz", "deep/er/mnist.npz"])
def test_mnist_from_npz(tmp_path, name):
    made.digits_npz(tmp_path / name)
    same_digits(loaded(tmp_path, "mnist"), 28)


def test_usps_from_npz(tmp_path):
    made.digits_npz(tmp_path / "usps.npz", side=16)
    same_digits(loaded(tmp_path, "usps"), 16)


def test_usps_from_h5(tmp_path):
    made.usps_h5(tmp_path / "usps.h5")
    same_digits(loaded(tmp_path, "usps"), 16)


def test_usps_from_libsvm(tmp_path):
    made.usps_libsvm(tmp_path / "usps")
    same_digits(loaded(tmp_path, "usps"), 16)


def test_svhn_from_matlab_files(tmp_path):
    made.svhn_mat(tmp_path / "svhn")
    domain = loaded(tmp_path, "svhn")
    expected = np.concatenate([made.noise(20, 32, 32, 3), made.noise(10, 32, 32, 3, seed=1)])
    assert np.array_equal(domain.images, expected)
    assert domain.labels.tolist() == [*made.labels_of(20), *made.labels_of(10)]


@pytest.mark.parametrize("folder", ["", "synthetic_digits", "syn/synthetic_digits"])
def test_synthetic_digits_from_folders(tmp_path, folder):
    digits = [str(digit) for digit in range(10)]
    made.class_folders(tmp_path / folder / "imgs_train", digits, each=3)
    made.class_folders(tmp_path / folder / "imgs_valid", digits, each=1, suffix=".png")
    domain = loaded(tmp_path, "syn")
    assert domain.labels.tolist() == [*np.repeat(np.arange(10), 3), *range(10)]
    assert domain.official_test.tolist() == list(range(30, 40))
    assert domain.images.shape == (40, 32, 32, 3)


def test_all_four_at_once_keep_the_order_of_the_paper(tmp_path):
    digits = [str(digit) for digit in range(10)]
    made.mnist_idx(tmp_path / "mnist")
    made.usps_libsvm(tmp_path)
    made.svhn_mat(tmp_path)
    made.class_folders(tmp_path / "imgs_train", digits)
    made.class_folders(tmp_path / "imgs_valid", digits)
    benchmark = DIGITS.load(tmp_path, pixels=16)
    assert [domain.name for domain in benchmark.domains] == ["mnist", "usps", "svhn", "syn"]
    assert {domain.images.shape[1] for domain in benchmark.pictures} == {16}  # reduced, never enlarged
    assert any("expected 73,257 samples in train, got 20" in remark for remark in benchmark.remarks)


def test_a_missing_set_is_named_and_going_without_must_be_said(tmp_path):
    made.digits_npz(tmp_path / "mnist.npz")
    with pytest.raises(InvalidInput, match=r"usps: expected .* found none.* \(and 2 more\).*data check"):
        DIGITS.load(tmp_path)
    assert len(DIGITS.load(tmp_path, only=["mnist"]).domains) == 1
    with pytest.raises(InvalidInput, match="domain must be one of mnist, usps, svhn, syn, got 'minst'"):
        DIGITS.load(tmp_path, only=["minst"])


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def test_each_damaged_file_is_one_line_and_the_check_goes_on(tmp_path):
    made.mnist_idx(tmp_path)
    made.digits_npz(tmp_path / "usps.npz", side=16)
    made.svhn_mat(tmp_path)
    cut(tmp_path / "train-images-idx3-ubyte")
    cut(tmp_path / "usps.npz")
    cut(tmp_path / "test_32x32.mat")
    findings = DIGITS.check(tmp_path).findings
    for name in ("train-images-idx3-ubyte", "usps.npz", "test_32x32.mat", "syn"):
        assert sum(line.startswith(name) for line in findings) == 1, name
    assert all("\n" not in line for line in findings)


@pytest.mark.parametrize("content", [b"", b"\x00\x00\x0d\x01aaaa", b"not an idx file at all"])
def test_what_is_no_idx_file_is_said(tmp_path, content):
    made.mnist_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(content)
    (line,) = [f for f in DIGITS.check(tmp_path, only=["mnist"]).findings if "idx files" in f]
    assert line.startswith("t10k-images")


def test_labels_that_are_no_digits_are_said(tmp_path):
    np.savez(
        tmp_path / "usps.npz",
        **{f"x_{part}": made.noise(4, 16, 16) for part in ("train", "test")},
        **{f"y_{part}": np.array([1, 2, 3, 12]) for part in ("train", "test")},
    )
    (line,) = DIGITS.check(tmp_path, only=["usps"]).findings
    assert "labels from 1 to 12" in line


def test_an_npz_that_would_run_code_is_refused(tmp_path):
    np.savez(tmp_path / "mnist.npz", x_train=np.array([{}], dtype=object))
    (line,) = DIGITS.check(tmp_path, only=["mnist"]).findings
    assert line.startswith("mnist.npz: expected")


def test_published_sizes_add_up():
    sizes = {facts.name: facts.sizes for facts in DIGITS.domains}
    assert sizes == {
        "mnist": (60_000, 10_000),
        "usps": (7_291, 2_007),
        "svhn": (73_257, 26_032),
        "syn": (10_000, 2_000),
    }


def test_a_missing_package_for_h5_is_said_with_its_cure(tmp_path, monkeypatch):
    made.usps_h5(tmp_path / "usps.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    (line,) = DIGITS.check(tmp_path, only=["usps"]).findings
    assert line.startswith("usps.h5: expected the package h5py")
    assert line.endswith("run pip install 'vpdr[data]'")


def test_what_cannot_be_read_is_said(tmp_path, monkeypatch):
    def forbidden(root, domain, findings):
        raise PermissionError(13, "Permission denied", str(root))

    source = type(DIGITS)(**{**vars(DIGITS), "read": forbidden})
    findings = source.check(tmp_path).findings
    assert len(findings) == 4
    assert findings[0].startswith("mnist: cannot read")
