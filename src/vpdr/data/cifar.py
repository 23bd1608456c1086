"""CIFAR-10 in its two formats; the pickled one is read by an unpickler that is restricted to arrays."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from vpdr.data.benchmark import SplitConfig
from vpdr.data.images import LabelledImages, concat_train_test, make_labelled_images
from vpdr.data.spec import BenchmarkSpec, DomainSpec, DownloadFile, IssueLog, RawDomain, find_file

_BATCH_NAMES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_SIZE, _RECORD_SIZE = 32, 3 * 32 * 32 + 1


def _encode_latin1(text: str, encoding: str) -> bytes:
    """What Python 3 calls when it unpickles bytes of Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it uses the encoding {encoding}, which no image needs")
    return text.encode("latin1")


# All that a pickled array needs; numpy has moved the last one to another module.
_ALLOWED_GLOBALS: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _encode_latin1,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
}


class ArrayUnpickler(pickle.Unpickler):
    """Unpickles arrays and plain values; a file with any other class is refused before anything is called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED_GLOBALS:
            raise pickle.UnpicklingError(f"it uses {module}.{name}, which no image needs")
        return _ALLOWED_GLOBALS[module, name]


def read_cifar(root: Path, domain: str, issues: IssueLog) -> RawDomain | None:
    """All batches of the first format of which there is a file, the test batch last."""
    for suffix, read in (("", _read_pickle), (".bin", _read_binary)):
        paths = [find_file(root, (name + suffix,)) for name in _BATCH_NAMES]
        if not any(paths):
            continue
        batches, found = [], []
        for name, path in zip(_BATCH_NAMES, paths, strict=True):
            if path is None:
                issues.error(f"{domain}: expected the batch {name}, found none; download it again")
            elif (batch := issues.try_read("a batch of CIFAR-10", read, path)) is not None:
                batches.append(batch)
                found.append(path)
        if len(batches) < len(_BATCH_NAMES):
            return None
        images, labels = (np.concatenate([batch[part] for batch in batches[:-1]]) for part in (0, 1))
        return concat_train_test((images, labels), batches[-1], found, issues)
    issues.error(
        f"{domain}: expected cifar-10-batches-py or cifar-10-batches-bin below {issues.root}, found none; "
        "`vpdr data list` says where to get it"
    )
    return None


def _read_pickle(path: Path) -> LabelledImages:
    stored = ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    return _planes_to_images(np.asarray(stored["data"], dtype=np.uint8), np.asarray(stored["labels"]))


def _read_binary(path: Path) -> LabelledImages:
    records = np.frombuffer(path.read_bytes(), np.uint8)
    if len(records) % _RECORD_SIZE:
        raise ValueError(f"{len(records)} bytes, not a whole number of records")
    records = records.reshape(-1, _RECORD_SIZE)
    return _planes_to_images(records[:, 1:], records[:, 0])


def _planes_to_images(planes: np.ndarray, labels: np.ndarray) -> LabelledImages:
    images = planes.reshape(-1, 3, _SIZE, _SIZE).transpose(0, 2, 3, 1)
    return make_labelled_images(np.ascontiguousarray(images), labels)


# One pool of small photographs, for label skew.
CIFAR10 = BenchmarkSpec(
    name="cifar10",
    title="CIFAR-10",
    modality="image",
    domains=(DomainSpec(name="cifar10", title="CIFAR-10", train=(5_000,) * 10, test=(1_000,) * 10),),
    class_names=(*("airplane", "automobile", "bird", "cat", "deer"), *("dog", "frog", "horse", "ship", "truck")),
    expected_files="cifar-10-batches-py/ (data_batch_1 to 5, test_batch) or cifar-10-batches-bin/ (*.bin)",
    download_info="https://www.cs.toronto.edu/~kriz/cifar.html",
    licence="none stated; its authors ask to be cited (Krizhevsky, 2009)",
    split_config=SplitConfig(skew="pooled", clients=20),
    allow_flip=True,
    read_domain=read_cifar,
    downloads=(
        DownloadFile(
            path="cifar-10-python.tar.gz",
            urls=("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            domains=("cifar10",),
            size=170_498_071,
            md5="c58f30108f718f92721af3b95e74349a",
            members="cifar-10-batches-py/*",
        ),
    ),
)
