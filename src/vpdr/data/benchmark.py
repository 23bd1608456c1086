"""Labelled samples grouped by domain, and what a reader returns and reports for files on disk."""

import bz2
import csv
import gzip
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Int64, UInt8

from vpdr.data.partition import Indices
from vpdr.errors import InvalidInput
from vpdr.io import cache_key

T = TypeVar("T")

# All that the readers of the public formats are known to raise on damaged files.
READ_ERRORS = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, IndexError, NotImplementedError, SyntaxError),
    *(struct.error, zlib.error, zipfile.BadZipFile, pickle.UnpicklingError, csv.Error),
)
_MAX_CLASSES_LISTED = 3  # in one line of a report


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledDomain:
    """The labels of one domain: enough to split it among clients.

    Args:
        name: the name of the domain.
        labels: the class of each sample.
        official_test: the rows of the published test set; None if there is none and the split is drawn.
        full_train_size: the size of the published training set, if these samples are only a part of it.
    """

    name: str
    labels: Int64[np.ndarray, " n"]
    official_test: Int64[np.ndarray, " t"] | None = None
    full_train_size: int | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageDomain(LabelledDomain):
    """All images of one domain, not yet split into training and test; they may be mapped from disk.

    Args:
        images: the images, in RGB.

    Raises:
        InvalidInput: the numbers of images and labels differ.
    """

    images: UInt8[np.ndarray, "n h w 3"]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise InvalidInput(
                f"domain {self.name}: expected one label for each image, "
                f"got {len(self.images)} images and {len(self.labels)} labels; check how it was read"
            )

    def take(self, rows: Int64[np.ndarray, " m"]) -> "ImageDomain":
        """The same domain with these samples only, in this order and without an official test set."""
        return ImageDomain(name=self.name, images=self.images[rows], labels=self.labels[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class TextDomain(LabelledDomain):
    """All texts of one domain, not yet split into training and test.

    Args:
        texts: the texts.

    Raises:
        InvalidInput: the numbers of texts and labels differ.
    """

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.labels):
            raise InvalidInput(
                f"domain {self.name}: expected one label for each text, "
                f"got {len(self.texts)} texts and {len(self.labels)} labels; check how it was read"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Benchmark:
    """Several domains that share one set of classes.

    Args:
        name: the name of the benchmark.
        classes: the number of classes.
        class_names: one name for each class.
        domains: the domains, in the order of the clients.
        warnings: what the user should know about the data.

    Raises:
        InvalidInput: class names or labels do not fit the number of classes, or a class has no samples.

    >>> domain = LabelledDomain(name="photo", labels=np.array([0, 1, 1]))
    >>> Benchmark(name="toy", classes=2, class_names=("cat", "dog"), domains=(domain,)).labels
    array([0, 1, 1])
    """

    name: str
    classes: int
    class_names: tuple[str, ...]
    domains: tuple[LabelledDomain, ...]
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.class_names) != self.classes:
            raise InvalidInput(
                f"benchmark {self.name}: expected {self.classes} class names, got {len(self.class_names)}; "
                "give one name for each class"
            )
        for domain in self.domains:
            if len(domain) and not 0 <= domain.labels.min() <= domain.labels.max() < self.classes:
                raise InvalidInput(
                    f"benchmark {self.name}: expected labels from 0 to {self.classes - 1}, got "
                    f"{domain.labels.min()} to {domain.labels.max()} in {domain.name}; check how it was read"
                )
        for label in np.setdiff1d(np.arange(self.classes), np.unique(self.labels)):
            raise InvalidInput(
                f"benchmark {self.name}: class {self.class_names[label]} has no samples in any domain; "
                "ask for more samples, or check how the data were read"
            )

    @property
    def labels(self) -> Int64[np.ndarray, " n"]:
        """The labels of all domains, concatenated: a row of the benchmark is an index into this array."""
        return np.concatenate([domain.labels for domain in self.domains])

    @property
    def image_domains(self) -> tuple[ImageDomain, ...]:
        """The domains of a benchmark of images.

        Raises:
            InvalidInput: a domain has no images.
        """
        domains = tuple(domain for domain in self.domains if isinstance(domain, ImageDomain))
        if len(domains) != len(self.domains):
            raise InvalidInput(f"benchmark {self.name}: expected images, got something else; use another benchmark")
        return domains

    @property
    def text_domains(self) -> tuple[TextDomain, ...]:
        """The domains of a benchmark of texts.

        Raises:
            InvalidInput: a domain has no texts.
        """
        domains = tuple(domain for domain in self.domains if isinstance(domain, TextDomain))
        if len(domains) != len(self.domains):
            raise InvalidInput(f"benchmark {self.name}: expected texts, got something else; use another benchmark")
        return domains


@dataclass(frozen=True, slots=True)
class Issue:
    """One line about data on disk; a fatal issue forbids to train on the data as they are."""

    text: str
    fatal: bool


@dataclass(slots=True)
class IssueLog:
    """All issues of a dataset, collected so that one does not hide the next; paths are relative to `root`."""

    root: Path
    issues: list[Issue] = field(default_factory=list)

    def error(self, text: str) -> None:
        """Add an issue that must be fixed before the data are used."""
        self.issues.append(Issue(" ".join(text.split()), fatal=True))

    def warning(self, text: str) -> None:
        """Add an issue that the user should know."""
        self.issues.append(Issue(" ".join(text.split()), fatal=False))

    def relative_path(self, path: Path) -> str:
        """A path as it is shown in an issue."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def try_read(self, what: str, read: Callable[..., T], *paths: Path) -> T | None:
        """The result of `read`, or None and an error that names the first file."""
        try:
            return read(*paths)
        except InvalidInput as error:
            self.error(f"{self.relative_path(paths[0])}: {error}")
        except READ_ERRORS as error:
            reason = str(error) or type(error).__name__
            self.error(
                f"{self.relative_path(paths[0])}: expected {what}, got something else ({reason}); download it again"
            )
        return None

    def lines(self, *, fatal: bool) -> tuple[str, ...]:
        """The issues of one kind, in the order in which they were added."""
        return tuple(issue.text for issue in self.issues if issue.fatal is fatal)


@runtime_checkable
class ImageSource(Protocol):
    """Images on disk that can be read in blocks, at any size."""

    def __len__(self) -> int: ...

    def fingerprint(self) -> str:
        """A digest that changes whenever the files change."""
        ...

    def stored_size(self, pixels: int) -> int:
        """The side at which images are cached for a model that takes `pixels`."""
        ...

    def read(self, start: int, stop: int, size: int) -> UInt8[np.ndarray, "b s s 3"]:
        """The images from `start` to `stop`, resized."""
        ...

    def check(self, row: int, issues: IssueLog) -> None:
        """Decode one image and log what is wrong with it."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class RawDomain:
    """What a reader returns for one domain; the last `test_size` rows are the official test set, if any."""

    labels: Indices
    content: ImageSource | tuple[str, ...]
    test_size: int | None = None

    @property
    def official_test(self) -> Indices | None:
        """The rows of the official test set."""
        if self.test_size is None:
            return None
        return np.arange(len(self.labels) - self.test_size, len(self.labels))


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainSpec:
    """One domain as published: the number of samples of each class, or one total if only that is known.

    Without an official test set, `train` counts all samples.
    """

    name: str
    title: str
    train: tuple[int, ...]
    test: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """The number of samples of each class in one part of a domain, and the published numbers."""

    domain: str
    part: str  # train, test or all
    counts: tuple[int, ...]
    expected: tuple[int, ...]

    @property
    def total(self) -> int:
        """The number of samples in this part."""
        return sum(self.counts)

    def differences(self, class_names: tuple[str, ...]) -> list[str]:
        """One line if the counts differ from the published ones, with the classes that differ if known."""
        if self.expected in {self.counts, (self.total,)}:
            return []
        line = f"{self.domain}: expected {sum(self.expected):,} samples in {self.part}, got {self.total:,}"
        if len(self.expected) != len(self.counts):
            return [line]
        rows = zip(class_names, self.expected, self.counts, strict=True)
        classes = [f"{name} {got:,} for {expected:,}" for name, expected, got in rows if expected != got]
        more = len(classes) - _MAX_CLASSES_LISTED
        suffix = f" and {more} more" if more > 0 else ""
        return [f"{line} ({', '.join(classes[:_MAX_CLASSES_LISTED])}{suffix})"]


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """All counts of a dataset on disk, and one line for each issue."""

    benchmark: str
    counts: tuple[ClassCounts, ...]
    issues: tuple[str, ...]


def read_decompressed(path: Path) -> bytes:
    """The content of a file, decompressed if its suffix is .gz or .bz2."""
    decompress = {".gz": gzip.decompress, ".bz2": bz2.decompress}.get(path.suffix)
    content = path.read_bytes()
    return content if decompress is None else decompress(content)


def files_digest(paths: Sequence[Path]) -> str:
    """A digest of names, sizes and modification times: cheap, and different for other files."""
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return cache_key(stats)
