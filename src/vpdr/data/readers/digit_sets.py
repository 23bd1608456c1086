"""The four sets of digits, each wherever and in whichever format it lies below one folder."""

from collections.abc import Callable
from pathlib import Path

from vpdr.data.findings import Findings
from vpdr.data.found import Found
from vpdr.data.readers.arrays import h5, idx, libsvm, matlab, npz
from vpdr.data.readers.folders import split_folders
from vpdr.data.readers.halves import Half, half, joined
from vpdr.data.readers.search import find_file

Pair = tuple[Half, Half]

_IDX = (
    ("{}-images?idx3-ubyte", "{}-images?idx3-ubyte.gz"),
    ("{}-labels?idx1-ubyte", "{}-labels?idx1-ubyte.gz"),
)


def read_digits(root: Path, domain: str, findings: Findings) -> Found | None:
    """One of the sets, or None with a line that says what is missing."""
    return _SETS[domain](root, findings)


def _mnist(root: Path, findings: Findings) -> Found | None:
    names = [tuple(p.format(part) for p in kind) for part in ("train", "t10k") for kind in _IDX]
    paths = [path for name in names if (path := find_file(root, name, prefer="mnist")) is not None]
    if len(paths) == len(names):
        train = findings.attempt("idx files of MNIST", _idx_pair, *paths[:2])
        test = findings.attempt("idx files of MNIST", _idx_pair, *paths[2:])
        return joined(train, test, paths, findings)
    return _whole_file(root, "mnist", (("mnist*.npz", npz),), findings)


def _idx_pair(images: Path, labels: Path) -> Half:
    return half(idx(images), idx(labels))


def _usps(root: Path, findings: Findings) -> Found | None:
    paths = find_file(root, ("usps", "usps.bz2")), find_file(root, ("usps.t", "usps.t.bz2"))
    if any(paths):
        return _two_files("usps", "usps.bz2 and usps.t.bz2", paths, libsvm, findings)
    return _whole_file(root, "usps", (("usps*.h5", h5), ("usps*.hdf5", h5), ("usps*.npz", npz)), findings)


def _svhn(root: Path, findings: Findings) -> Found | None:
    paths = find_file(root, ("train_32x32.mat",)), find_file(root, ("test_32x32.mat",))
    return _two_files("svhn", "train_32x32.mat and test_32x32.mat", paths, matlab, findings)


def _syn(root: Path, findings: Findings) -> Found | None:
    found = split_folders(root, ("imgs_train", "imgs_valid"), [str(d) for d in range(10)], findings)
    return _missing("syn", "imgs_train/0..9 and imgs_valid/0..9", findings) if found is None else found


def _two_files(
    name: str,
    what: str,
    paths: tuple[Path | None, Path | None],
    read: Callable[[Path], Half],
    findings: Findings,
) -> Found | None:
    train, test = paths
    if train is None or test is None:
        return _missing(name, what, findings)
    halves = [findings.attempt(f"{name} as {what}", read, path) for path in (train, test)]
    return joined(halves[0], halves[1], (train, test), findings)


def _whole_file(
    root: Path, name: str, kinds: tuple[tuple[str, Callable[[Path], Pair]], ...], findings: Findings
) -> Found | None:
    """Both halves from one file, in the first format that is there."""
    for pattern, read in kinds:
        path = find_file(root, (pattern,), prefer=name)
        if path is not None:
            pair = findings.attempt(f"{name} as {pattern}", read, path)
            return None if pair is None else joined(pair[0], pair[1], (path,), findings)
    return _missing(name, "its files in one of their formats", findings)


def _missing(name: str, what: str, findings: Findings) -> Found | None:
    findings.broken(
        f"{name}: expected {what} below {findings.root}, found none; "
        "`vpdr data list` says where to get it, or name the domains to go without it"
    )
    return None


_SETS = {"mnist": _mnist, "usps": _usps, "svhn": _svhn, "syn": _syn}
