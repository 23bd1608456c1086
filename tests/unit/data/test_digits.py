"""The four digit datasets in every format in which they are published."""

import sys

import numpy as np
import pytest

from tests.unit.data import format_files
from vpdr.data import BENCHMARK_SPECS
from vpdr.validation import InvalidInput

DIGITS = BENCHMARK_SPECS["digits"]


def load_domain(root, name, pixels=32):
    return DIGITS.load(root, pixels=pixels, domains=[name]).image_domains[0]


def assert_expected_digits(domain, side):
    expected = np.concatenate([format_files.noise(20, side, side), format_files.noise(10, side, side, seed=1)])
    assert domain.images.shape == (30, side, side, 3)
    assert domain.labels.tolist() == [*format_files.labels_of(20), *format_files.labels_of(10)]
    assert domain.official_test.tolist() == list(range(20, 30))
    for channel in range(3):
        assert np.array_equal(domain.images[..., channel], expected)


@pytest.mark.parametrize(
    ("directory", "suffix", "separator"), [("", "", "-"), ("MNIST/raw", ".gz", "-"), ("mnist", "", ".")]
)
def test_mnist_from_idx_files(tmp_path, directory, suffix, separator):
    format_files.write_mnist_idx(tmp_path / directory, suffix, separator)
    domain = load_domain(tmp_path, "mnist")
    assert_expected_digits(domain, 28)
    assert domain.full_train_size == 60_000
    assert isinstance(domain.images, np.memmap)


def test_fashion_mnist_is_not_taken_for_mnist(tmp_path):
    format_files.write_mnist_idx(tmp_path / "FashionMNIST" / "raw", train=5, test=5)
    format_files.write_mnist_idx(tmp_path / "MNIST" / "raw")
    assert_expected_digits(load_domain(tmp_path, "mnist"), 28)


@pytest.mark.parametrize("name", ["mnist.npz", "mnist_10pct.npz", "deep/er/mnist.npz"])
def test_mnist_from_npz(tmp_path, name):
    format_files.write_digits_npz(tmp_path / name)
    assert_expected_digits(load_domain(tmp_path, "mnist"), 28)


def test_usps_from_npz(tmp_path):
    format_files.write_digits_npz(tmp_path / "usps.npz", side=16)
    assert_expected_digits(load_domain(tmp_path, "usps"), 16)


def test_usps_from_h5(tmp_path):
    format_files.write_usps_h5(tmp_path / "usps.h5")
    assert_expected_digits(load_domain(tmp_path, "usps"), 16)


def test_usps_from_libsvm(tmp_path):
    format_files.write_usps_libsvm(tmp_path / "usps")
    assert_expected_digits(load_domain(tmp_path, "usps"), 16)


def test_svhn_from_matlab_files(tmp_path):
    format_files.write_svhn_mat(tmp_path / "svhn")
    domain = load_domain(tmp_path, "svhn")
    expected = np.concatenate([format_files.noise(20, 32, 32, 3), format_files.noise(10, 32, 32, 3, seed=1)])
    assert np.array_equal(domain.images, expected)
    assert domain.labels.tolist() == [*format_files.labels_of(20), *format_files.labels_of(10)]


@pytest.mark.parametrize("directory", ["", "synthetic_digits", "syn/synthetic_digits"])
def test_synthetic_digits_from_directories(tmp_path, directory):
    digits = [str(digit) for digit in range(10)]
    format_files.write_class_directories(tmp_path / directory / "imgs_train", digits, each=3)
    format_files.write_class_directories(tmp_path / directory / "imgs_valid", digits, each=1, suffix=".png")
    domain = load_domain(tmp_path, "syn")
    assert domain.labels.tolist() == [*np.repeat(np.arange(10), 3), *range(10)]
    assert domain.official_test.tolist() == list(range(30, 40))
    assert domain.images.shape == (40, 32, 32, 3)


def test_all_four_domains_are_loaded_in_the_order_of_the_paper(tmp_path):
    digits = [str(digit) for digit in range(10)]
    format_files.write_mnist_idx(tmp_path / "mnist")
    format_files.write_usps_libsvm(tmp_path)
    format_files.write_svhn_mat(tmp_path)
    format_files.write_class_directories(tmp_path / "imgs_train", digits)
    format_files.write_class_directories(tmp_path / "imgs_valid", digits)
    benchmark = DIGITS.load(tmp_path, pixels=16)
    assert [domain.name for domain in benchmark.domains] == ["mnist", "usps", "svhn", "syn"]
    assert {domain.images.shape[1] for domain in benchmark.image_domains} == {16}  # reduced, never enlarged
    assert any("expected 73,257 samples in train, got 20" in line for line in benchmark.warnings)


def test_a_missing_set_is_named_and_must_be_excluded_explicitly(tmp_path):
    format_files.write_digits_npz(tmp_path / "mnist.npz")
    with pytest.raises(InvalidInput, match=r"usps: expected .* found none.* \(and 2 more\).*data check"):
        DIGITS.load(tmp_path)
    assert len(DIGITS.load(tmp_path, domains=["mnist"]).domains) == 1
    with pytest.raises(InvalidInput, match="domain must be one of mnist, usps, svhn, syn, got 'minst'"):
        DIGITS.load(tmp_path, domains=["minst"])


def truncate(path):
    path.write_bytes(path.read_bytes()[:-40])


def test_each_damaged_file_is_one_line_and_the_check_goes_on(tmp_path):
    format_files.write_mnist_idx(tmp_path)
    format_files.write_digits_npz(tmp_path / "usps.npz", side=16)
    format_files.write_svhn_mat(tmp_path)
    truncate(tmp_path / "train-images-idx3-ubyte")
    truncate(tmp_path / "usps.npz")
    truncate(tmp_path / "test_32x32.mat")
    issues = DIGITS.check(tmp_path).issues
    for name in ("train-images-idx3-ubyte", "usps.npz", "test_32x32.mat", "syn"):
        assert sum(line.startswith(name) for line in issues) == 1, name
    assert all("\n" not in line for line in issues)


@pytest.mark.parametrize("content", [b"", b"\x00\x00\x0d\x01aaaa", b"not an idx file at all"])
def test_a_file_that_is_not_idx_is_an_issue(tmp_path, content):
    format_files.write_mnist_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(content)
    (line,) = [f for f in DIGITS.check(tmp_path, domains=["mnist"]).issues if "idx files" in f]
    assert line.startswith("t10k-images")


def test_labels_that_are_no_digits_are_an_issue(tmp_path):
    np.savez(
        tmp_path / "usps.npz",
        **{f"x_{part}": format_files.noise(4, 16, 16) for part in ("train", "test")},
        **{f"y_{part}": np.array([1, 2, 3, 12]) for part in ("train", "test")},
    )
    (line,) = DIGITS.check(tmp_path, domains=["usps"]).issues
    assert "labels from 1 to 12" in line


def test_an_npz_that_would_run_code_is_refused(tmp_path):
    np.savez(tmp_path / "mnist.npz", x_train=np.array([{}], dtype=object))
    (line,) = DIGITS.check(tmp_path, domains=["mnist"]).issues
    assert line.startswith("mnist.npz: expected")


def test_published_sizes_add_up():
    sizes = {spec.name: format_files.published_sizes(spec) for spec in DIGITS.domains}
    assert sizes == {
        "mnist": (60_000, 10_000),
        "usps": (7_291, 2_007),
        "svhn": (73_257, 26_032),
        "syn": (10_000, 2_000),
    }


def test_a_missing_package_for_h5_is_named_with_the_command_to_install_it(tmp_path, monkeypatch):
    format_files.write_usps_h5(tmp_path / "usps.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    (line,) = DIGITS.check(tmp_path, domains=["usps"]).issues
    assert line.startswith("usps.h5: expected the package h5py")
    assert line.endswith("run pip install 'vpdr[data]'")


def test_files_that_cannot_be_read_are_an_issue(tmp_path, monkeypatch):
    def forbidden(root, domain, issues):
        raise PermissionError(13, "Permission denied", str(root))

    spec = type(DIGITS)(**{**vars(DIGITS), "read_domain": forbidden})
    issues = spec.check(tmp_path).issues
    assert len(issues) == 4
    assert issues[0].startswith("mnist: cannot read")
