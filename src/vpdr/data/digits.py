"""The four digit datasets, in the formats of their publishers: idx, npz, h5, libsvm and Matlab files."""

import math
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vpdr.data.benchmark import SplitConfig
from vpdr.data.image_folders import read_class_directories
from vpdr.data.images import LabelledImages, concat_train_test, make_labelled_images
from vpdr.data.spec import (
    BenchmarkSpec,
    DomainSpec,
    IssueLog,
    RawDomain,
    download_files,
    find_directory,
    find_file,
    read_decompressed,
)
from vpdr.validation import InvalidInput

TrainTestImages = tuple[LabelledImages, LabelledImages]
FileNames = tuple[tuple[str, ...], tuple[str, ...]]  # of the training and of the test file, in any compression

_IDX_UINT8 = 0x08
_IDX_PATTERNS = (
    ("{}-images?idx3-ubyte", "{}-images?idx3-ubyte.gz"),
    ("{}-labels?idx1-ubyte", "{}-labels?idx1-ubyte.gz"),
)


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes in the idx format of MNIST."""
    content = read_decompressed(path)
    kind, axes = struct.unpack(">HBB", content[:4])[1:]
    if kind != _IDX_UINT8:
        raise ValueError("not an idx file of bytes")
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} bytes for {' x '.join(map(str, shape))}")
    return values.reshape(shape)


def read_npz(path: Path) -> TrainTestImages:
    """`x_train`, `y_train`, `x_test`, `y_test`, as Keras names them."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        train = make_labelled_images(stored["x_train"], stored["y_train"])
        return train, make_labelled_images(stored["x_test"], stored["y_test"])


def read_h5(path: Path) -> TrainTestImages:
    """Groups `train` and `test`, each with `data` and `target`."""
    try:
        import h5py
    except ImportError as error:
        raise InvalidInput(
            f"expected the package h5py to read {path}, found none; run pip install 'vpdr[data]'"
        ) from error
    with h5py.File(path, "r") as file:
        train = _unflatten(file["train"]["data"][:], file["train"]["target"][:])
        return train, _unflatten(file["test"]["data"][:], file["test"]["target"][:])


def read_libsvm(path: Path) -> LabelledImages:
    """Lines `label 1:x 2:x ...`; the labels 1 to 10 are the digits 0 to 9, the values go from -1 to 1."""
    lines = [line.split() for line in read_decompressed(path).decode("ascii").splitlines() if line.strip()]
    labels = np.array([int(float(line[0])) - 1 for line in lines])
    images = np.zeros((len(lines), 256))
    for row, line in enumerate(lines):
        columns, values = zip(*(part.split(":") for part in line[1:]), strict=True)
        images[row, np.array(columns, dtype=np.int64) - 1] = np.array(values, dtype=np.float64)
    return _unflatten(images, labels)


def read_mat(path: Path) -> LabelledImages:
    """`X` (side, side, 3, n) and `y` of SVHN, in which the label 10 is the digit 0."""
    from scipy.io import loadmat

    stored = loadmat(path, variable_names=["X", "y"])
    images = np.ascontiguousarray(stored["X"].transpose(3, 0, 1, 2))
    return make_labelled_images(images, stored["y"].astype(np.int64) % 10)


def _unflatten(images: np.ndarray, labels: np.ndarray) -> LabelledImages:
    """Square images that may be stored as rows of numbers."""
    side = math.isqrt(math.prod(images.shape[1:]))
    return make_labelled_images(images.reshape(len(images), side, side), labels)


def read_digits(root: Path, domain: str, issues: IssueLog) -> RawDomain | None:
    """One of the four datasets; None and an error if it cannot be read."""
    if domain == "mnist":
        return _read_mnist(root, issues)
    if domain == "syn":
        return _read_syn(root, issues)
    if domain == "svhn":
        return _read_two_files(root, domain, (("train_32x32.mat",), ("test_32x32.mat",)), read_mat, issues)
    libsvm = (("usps", "usps.bz2"), ("usps.t", "usps.t.bz2"))
    if find_file(root, (*libsvm[0], *libsvm[1])):
        return _read_two_files(root, domain, libsvm, read_libsvm, issues)
    return _read_one_file(root, domain, {"usps*.h5": read_h5, "usps*.hdf5": read_h5, "usps*.npz": read_npz}, issues)


def _read_mnist(root: Path, issues: IssueLog) -> RawDomain | None:
    names = [tuple(p.format(part) for p in kind) for part in ("train", "t10k") for kind in _IDX_PATTERNS]
    paths = [path for name in names if (path := find_file(root, name, prefer="mnist")) is not None]
    if len(paths) < len(names):
        return _read_one_file(root, "mnist", {"mnist*.npz": read_npz}, issues)
    train, test = (issues.try_read("idx files of MNIST", _read_idx_pair, *pair) for pair in (paths[:2], paths[2:]))
    return concat_train_test(train, test, paths, issues)


def _read_idx_pair(images: Path, labels: Path) -> LabelledImages:
    return make_labelled_images(read_idx(images), read_idx(labels))


def _read_syn(root: Path, issues: IssueLog) -> RawDomain | None:
    train, test = (find_directory(root, part) for part in ("imgs_train", "imgs_valid"))
    raw = None
    if train is not None:
        classes: dict[str, tuple[str, ...]] = {str(digit): () for digit in range(10)}
        parts = [[directory] for directory in (train, test) if directory is not None]
        raw = read_class_directories("imgs_train", parts, classes, issues)
    if raw is None or test is None:
        return _report_missing("syn", "imgs_train/0..9 and imgs_valid/0..9", issues)
    return raw


def _read_two_files(
    root: Path, name: str, files: FileNames, read: Callable[[Path], LabelledImages], issues: IssueLog
) -> RawDomain | None:
    """Training and test images from one file each."""
    train, test = (find_file(root, names) for names in files)
    what = " and ".join(names[-1] for names in files)
    if train is None or test is None:
        return _report_missing(name, what, issues)
    parts = [issues.try_read(f"{name} as {what}", read, path) for path in (train, test)]
    return concat_train_test(parts[0], parts[1], (train, test), issues)


def _read_one_file(
    root: Path, name: str, formats: dict[str, Callable[[Path], TrainTestImages]], issues: IssueLog
) -> RawDomain | None:
    """Training and test images from one file, in the first format of which there is a file."""
    for pattern, read in formats.items():
        path = find_file(root, (pattern,), prefer=name)
        if path is not None:
            parts = issues.try_read(f"{name} as {pattern}", read, path)
            return None if parts is None else concat_train_test(*parts, (path,), issues)
    return _report_missing(name, "its files in one of their formats", issues)


def _report_missing(name: str, what: str, issues: IssueLog) -> RawDomain | None:
    issues.error(
        f"{name}: expected {what} below {issues.root}, found none; "
        "`vpdr data list` says where to get it, or name the domains to go without it"
    )
    return None


# Ten digits; each of the four domains is a public dataset of its own.
DIGITS = BenchmarkSpec(
    name="digits",
    title="Digits",
    modality="image",
    domains=(
        DomainSpec(
            name="mnist",
            title="MNIST",
            train=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            test=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        ),
        DomainSpec(
            name="usps",
            title="USPS",
            train=(1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644),
            test=(359, 264, 198, 166, 200, 160, 170, 147, 166, 177),
        ),
        DomainSpec(
            name="svhn",
            title="SVHN",
            train=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
            test=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
        ),
        DomainSpec(name="syn", title="Synthetic Digits", train=(10_000,), test=(2_000,)),
    ),
    class_names=tuple(str(digit) for digit in range(10)),
    expected_files="MNIST: the four idx files (.gz or not) or mnist*.npz; "
    "USPS: usps*.h5, usps*.npz or usps.bz2 and usps.t.bz2; SVHN: train_32x32.mat and test_32x32.mat; "
    "Synthetic Digits: imgs_train/0..9/* and imgs_valid/0..9/*; anywhere up to three directories deep",
    download_info="MNIST: https://ossci-datasets.s3.amazonaws.com/mnist; USPS: "
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps; SVHN: "
    "http://ufldl.stanford.edu/housenumbers (format 2); Synthetic Digits: the set of 12,000 images on "
    "https://www.kaggle.com/datasets/prasunroy/synthetic-digits",
    licence="MNIST: CC BY-SA 3.0; SVHN: non-commercial use; the others state none that we know of",
    split_config=SplitConfig(train_fraction=0.1),
    allow_flip=False,
    read_domain=read_digits,
    has_places=False,
    downloads=(
        *download_files(
            "mnist",
            ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
            ("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            ("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            ("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            ("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        *download_files(
            "usps",
            ("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass",),
            ("usps.bz2", 0, "ec16c51db3855ca6c91edd34d0e9b197"),
            ("usps.t.bz2", 0, "8ea070ee2aca1ac39742fdd1ef5ed118"),
        ),
        *download_files(
            "svhn",
            ("http://ufldl.stanford.edu/housenumbers",),
            ("train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373"),
            ("test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3"),
        ),
    ),
)
