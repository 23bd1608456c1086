"""Arrays of digits in the formats of their publishers: idx, npz, h5, libsvm's text and Matlab's."""

import math
import struct
from pathlib import Path

import numpy as np

from vpdr.data.findings import opened
from vpdr.data.readers.halves import Half, half
from vpdr.errors import InvalidInput

_IDX_BYTES = 0x08


def idx(path: Path) -> np.ndarray:
    """An array of bytes as MNIST has them."""
    content = opened(path)
    kind, axes = struct.unpack(">HBB", content[:4])[1:]
    if kind != _IDX_BYTES:
        raise ValueError("not an idx file of bytes")
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} bytes for {' x '.join(map(str, shape))}")
    return values.reshape(shape)


def npz(path: Path) -> tuple[Half, Half]:
    """`x_train`, `y_train`, `x_test`, `y_test`, as Keras names them."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        train = half(stored["x_train"], stored["y_train"])
        return train, half(stored["x_test"], stored["y_test"])


def h5(path: Path) -> tuple[Half, Half]:
    """Groups `train` and `test`, each with `data` and `target`."""
    try:
        import h5py  # an extra, and slow to import
    except ImportError as error:
        raise InvalidInput(
            f"expected the package h5py to read {path}, found none; run pip install 'vpdr[data]'"
        ) from error
    with h5py.File(path, "r") as file:
        return _flat(file["train"]["data"][:], file["train"]["target"][:]), _flat(
            file["test"]["data"][:], file["test"]["target"][:]
        )


def libsvm(path: Path) -> Half:
    """Lines `label 1:x 2:x ...`; the labels 1 to 10 are the digits 0 to 9, the values go from -1 to 1."""
    lines = [line.split() for line in opened(path).decode("ascii").splitlines() if line.strip()]
    labels = np.array([int(float(line[0])) - 1 for line in lines])
    images = np.zeros((len(lines), 256))
    for row, line in enumerate(lines):
        places, values = zip(*(part.split(":") for part in line[1:]), strict=True)
        images[row, np.array(places, dtype=np.int64) - 1] = np.array(values, dtype=np.float64)
    return _flat(images, labels)


def matlab(path: Path) -> Half:
    """`X` (side, side, 3, n) and `y`, where a 10 is the digit 0, as SVHN has them."""
    from scipy.io import loadmat

    stored = loadmat(path, variable_names=["X", "y"])
    images = np.ascontiguousarray(stored["X"].transpose(3, 0, 1, 2))
    return half(images, stored["y"].astype(np.int64) % 10)


def _flat(images: np.ndarray, labels: np.ndarray) -> Half:
    """Pictures that were stored as rows of numbers, or already as squares."""
    side = math.isqrt(math.prod(images.shape[1:]))
    return half(images.reshape(len(images), side, side), labels)
