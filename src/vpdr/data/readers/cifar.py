"""CIFAR-10 in its two versions; the pickled one is read by an unpickler that can make arrays and no more."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vpdr.data.findings import Findings
from vpdr.data.found import Found
from vpdr.data.readers.halves import Half, half, joined
from vpdr.data.readers.search import find_file

_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_SIDE, _RECORD = 32, 3 * 32 * 32 + 1


def _as_bytes(text: str, encoding: str) -> bytes:
    """How Python 3 pickles bytes for Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for letters in {encoding}, which no picture needs")
    return text.encode("latin1")


# All that a pickled array is made of; numpy has moved the last one.
_PARTS: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _as_bytes,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{
        (module, "_reconstruct"): np.zeros(0).__reduce__()[0]
        for module in ("numpy.core.multiarray", "numpy._core.multiarray")
    },
}


class ArrayUnpickler(pickle.Unpickler):
    """Reads arrays and plain values; a file that wants anything else is refused before it runs."""

    def find_class(self, module: str, name: str) -> Any:
        """The few things that arrays need."""
        if (module, name) not in _PARTS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no picture needs")
        return _PARTS[module, name]


def read_cifar(root: Path, domain: str, findings: Findings) -> Found | None:
    """All batches of the version that is there, the test batch last."""
    for suffix, read in _VERSIONS.items():
        paths = [find_file(root, (name + suffix,)) for name in _BATCHES]
        present = [path for path in paths if path is not None]
        if present:
            return _batches(domain, paths, read, findings)
    findings.broken(
        f"{domain}: expected cifar-10-batches-py or cifar-10-batches-bin below {findings.root}, found none; "
        "`vpdr data list` says where to get it"
    )
    return None


def _batches(
    domain: str, paths: list[Path | None], read: Callable[[Path], Half], findings: Findings
) -> Found | None:
    halves: list[Half] = []
    for name, path in zip(_BATCHES, paths, strict=True):
        if path is None:
            findings.broken(f"{domain}: expected the batch {name}, found none; fetch it again")
            continue
        batch = findings.attempt("a batch of CIFAR-10", read, path)
        halves += [] if batch is None else [batch]
    if len(halves) < len(_BATCHES):
        return None
    images, labels = (np.concatenate([batch[part] for batch in halves[:-1]]) for part in (0, 1))
    return joined((images, labels), halves[-1], [path for path in paths if path is not None], findings)


def _pickled(path: Path) -> Half:
    stored = ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    return _half(np.asarray(stored["data"], dtype=np.uint8), np.asarray(stored["labels"]))


def _binary(path: Path) -> Half:
    records = np.frombuffer(path.read_bytes(), np.uint8)
    if len(records) % _RECORD:
        raise ValueError(f"{len(records)} bytes, which are no whole number of records")
    records = records.reshape(-1, _RECORD)
    return _half(records[:, 1:], records[:, 0])


def _half(planes: np.ndarray, labels: np.ndarray) -> Half:
    images = planes.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return half(np.ascontiguousarray(images), labels)


_VERSIONS = {"": _pickled, ".bin": _binary}
