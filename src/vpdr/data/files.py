"""Finding and reading files below a directory, and the log of what is wrong with them; no file is trusted."""

import bz2
import csv
import gzip
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from vpdr.data.split import Indices
from vpdr.errors import InvalidInput
from vpdr.io import cache_key

T = TypeVar("T")

# All that the readers of the public formats are known to raise on damaged files.
READ_ERRORS = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, IndexError, NotImplementedError, SyntaxError),
    *(struct.error, zlib.error, zipfile.BadZipFile, pickle.UnpicklingError, csv.Error),
)
MAX_DEPTH = 3


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


def read_decompressed(path: Path) -> bytes:
    """The content of a file, decompressed if its suffix is .gz or .bz2."""
    decompress = {".gz": gzip.decompress, ".bz2": bz2.decompress}.get(path.suffix)
    content = path.read_bytes()
    return content if decompress is None else decompress(content)


def files_digest(paths: Sequence[Path]) -> str:
    """A digest of names, sizes and modification times: cheap, and different for other files."""
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return cache_key(stats)


def walk_visible(root: Path, max_depth: int = MAX_DEPTH) -> Iterator[tuple[Path, list[str]]]:
    """Directories with the names of their files, sorted; nothing hidden, and not too deep."""
    for path, directories, files in os.walk(root, followlinks=True):
        directory = Path(path)
        directories[:] = sorted(name for name in directories if is_visible(name))
        yield directory, sorted(name for name in files if is_visible(name))
        if len(directory.relative_to(root).parts) >= max_depth:
            directories.clear()


def is_visible(name: str) -> bool:
    """Neither hidden nor left behind by an archive."""
    return not name.startswith((".", "__MACOSX"))


def find_file(root: Path, patterns: tuple[str, ...], prefer: str = "") -> Path | None:
    """The file whose name fits one of the patterns; first those in a directory `prefer`, then the least deep.

    An earlier pattern comes before a later one, an uncompressed file before its archive.
    """
    candidates = []
    for directory, files in walk_visible(root):
        for name in files:
            for rank, pattern in enumerate(patterns):
                if fnmatch(name.lower(), pattern):
                    path = directory / name
                    parts = path.relative_to(root).parts
                    elsewhere = prefer not in {part.lower() for part in (root.name, *parts[:-1])}
                    candidates.append((bool(prefer) and elsewhere, rank, path.suffix == ".gz", len(parts), path))
    return min(candidates)[-1] if candidates else None


def find_directory(root: Path, name: str) -> Path | None:
    """The least deep directory of that name; it may be `root` itself."""
    candidates = [directory for directory, _ in walk_visible(root) if directory.name.lower() == name]
    return min(candidates, key=lambda path: (len(path.parts), path)) if candidates else None
