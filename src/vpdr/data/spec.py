"""The public benchmarks: their published sizes, and how each is read from a user's disk, checked and cached."""

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
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from vpdr.data.benchmark import Benchmark, FeatureDomain, ImageDomain, Indices, LabelledDomain, SplitConfig, TextDomain
from vpdr.io import atomic_writer, cache_key, default_cache_dir, write_error
from vpdr.types import Float32, ProgressCallback, UInt8, no_progress
from vpdr.validation import InvalidInput, one_of

T = TypeVar("T")

PIXELS_VERSION = 1  # increase it whenever the same files give other pixels than before
# All that the readers of the public formats are known to raise on damaged files.
READ_ERRORS = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, IndexError, NotImplementedError, SyntaxError),
    *(struct.error, zlib.error, zipfile.BadZipFile, pickle.UnpicklingError, csv.Error),
)
MAX_DEPTH = 3  # of the directories below the user's that are searched
_CHUNK_SIZE = 64  # images decoded at a time
_MAX_CLASSES_LISTED = 3  # in one line of a report

DecodeProgress = Callable[[int, int], None]  # images done, images in total


@dataclass(slots=True)
class IssueLog:
    """All issues of a dataset, collected so that one does not hide the next; paths are relative to `root`."""

    root: Path
    errors: list[str] = field(default_factory=list)  # must be fixed before the data are used
    warnings: list[str] = field(default_factory=list)  # the user should know them
    remedy: str = "download it again"  # for a file that cannot be read

    def __post_init__(self) -> None:
        self.root = Path(self.root).expanduser()

    def error(self, text: str) -> None:
        self.errors.append(" ".join(text.split()))

    def warning(self, text: str) -> None:
        self.warnings.append(" ".join(text.split()))

    def relative_path(self, path: Path) -> str:
        """A path as it is shown in an issue."""
        if path == self.root:
            return path.name
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def try_read(self, what: str, read: Callable[..., T], *paths: Path) -> T | None:
        """The result of `read`, or None and an error that names the first file."""
        try:
            return read(*paths)
        except InvalidInput as error:
            self.error(f"{self.relative_path(paths[0])}: {error}")
        except READ_ERRORS as error:
            reason = str(error) or type(error).__name__
            self.error(f"{self.relative_path(paths[0])}: expected {what}, got something else ({reason}); {self.remedy}")
        return None


@runtime_checkable
class ImageSource(Protocol):
    """Images on disk that can be read in blocks, at any size."""

    def __len__(self) -> int: ...

    def fingerprint(self) -> str:
        """A digest that changes whenever the files change."""

    def stored_size(self, pixels: int) -> int:
        """The side at which images are cached for a model that takes `pixels`."""

    def read(self, start: int, stop: int, size: int) -> UInt8[np.ndarray, "b s s 3"]:
        """The images from `start` to `stop`, resized."""

    def check(self, row: int, issues: IssueLog) -> None:
        """Decode one image and log what is wrong with it."""

    def take(self, rows: Indices) -> "ImageSource":
        """The same source with these images only, in this order."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RawDomain:
    """What a reader returns for one domain; the last `test_size` rows are the official test set, if any.

    The content is images, texts, or the features of a frozen encoder.
    """

    labels: Indices
    content: ImageSource | tuple[str, ...] | Float32[np.ndarray, "n d"]
    test_size: int | None = None


def read_decompressed(path: Path) -> bytes:
    """The content of a file, decompressed if its suffix is .gz or .bz2."""
    decompress = {".gz": gzip.decompress, ".bz2": bz2.decompress}.get(path.suffix, bytes)
    return decompress(path.read_bytes())


def files_digest(paths: Sequence[Path]) -> str:
    """A digest of names, sizes and modification times: cheap, and different for other files."""
    return cache_key([(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths])


def _walk_visible(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Directories with the names of their files, sorted; nothing hidden, and not too deep."""
    for path, directories, files in os.walk(root, followlinks=True):
        directory = Path(path)
        directories[:] = sorted(name for name in directories if is_visible(name))
        yield directory, sorted(name for name in files if is_visible(name))
        if len(directory.relative_to(root).parts) >= MAX_DEPTH:
            directories.clear()


def is_visible(name: str) -> bool:
    """Neither hidden nor left behind by an archive."""
    return not name.startswith((".", "__MACOSX"))


def find_file(root: Path, patterns: tuple[str, ...], prefer: str = "") -> Path | None:
    """The file whose name fits one of the patterns; first those in a directory `prefer`, then the least deep.

    An earlier pattern comes before a later one, an uncompressed file before its archive.
    """
    candidates = []
    for directory, files in _walk_visible(root):
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
    candidates = [directory for directory, _ in _walk_visible(root) if directory.name.lower() == name]
    return min(candidates, key=lambda path: (len(path.parts), path), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainSpec:
    """One domain as published: the number of samples of each class, or one total if only that is known.

    Without an official test set, `train` counts all samples.
    """

    name: str
    title: str
    train: tuple[int, ...]
    test: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadFile:
    """A file that `vpdr data get` downloads; an archive is also unpacked beside itself."""

    path: str  # below the user's directory
    urls: tuple[str, ...]  # tried in this order
    domains: tuple[str, ...]  # which need it
    size: int = 0  # in bytes; 0: not known beforehand
    md5: str = ""  # a published one; "": only `vpdr data check` verifies the content
    members: str = ""  # a pattern of the files that are unpacked; "": no archive


def download_files(domain: str, addresses: tuple[str, ...], *files: tuple[str, int, str]) -> tuple[DownloadFile, ...]:
    """Files of one domain (name, size, MD5), which lie side by side at each of these addresses."""
    return tuple(
        DownloadFile(
            path=f"{domain}/{name}",
            urls=tuple(f"{address}/{name}" for address in addresses),
            domains=(domain,),
            size=size,
            md5=md5,
        )
        for name, size, md5 in files
    )


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

    def difference(self, class_names: tuple[str, ...]) -> str:
        """One line if the counts differ from the published ones, with the classes that differ if known, or ""."""
        if self.expected in {self.counts, (self.total,)}:
            return ""
        line = f"{self.domain}: expected {sum(self.expected):,} samples in {self.part}, got {self.total:,}"
        if len(self.expected) != len(self.counts):
            return line
        rows = zip(class_names, self.expected, self.counts, strict=True)
        classes = [f"{name} {got:,} for {expected:,}" for name, expected, got in rows if expected != got]
        more = len(classes) - _MAX_CLASSES_LISTED
        suffix = f" and {more} more" if more > 0 else ""
        return f"{line} ({', '.join(classes[:_MAX_CLASSES_LISTED])}{suffix})"


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """All counts of a dataset on disk, and one line for each issue, errors first."""

    benchmark: str
    counts: tuple[ClassCounts, ...]
    issues: tuple[str, ...]


# Reads one domain below a directory; returns None and logs an error if it cannot.
DomainReader = Callable[[Path, str, IssueLog], RawDomain | None]
# Makes one domain, also from the fields of a `LabelledDomain`.
DomainMaker = Callable[[DomainSpec, RawDomain, dict[str, Any]], LabelledDomain]


@dataclass(frozen=True, kw_only=True, eq=False)
class BenchmarkSpec:
    """A benchmark that is read from files on the user's disk.

    >>> from vpdr.data import BENCHMARK_SPECS
    >>> BENCHMARK_SPECS["pacs"].class_names[:3]
    ('dog', 'elephant', 'giraffe')
    """

    name: str  # in configurations and on the command line
    title: str  # in reports
    modality: str  # image, text or features
    domains: tuple[DomainSpec, ...]
    class_names: tuple[str, ...]
    expected_files: str  # the file layouts that `read_domain` understands
    download_info: str  # where to get the files
    licence: str
    split_config: SplitConfig  # how the paper splits the benchmark among clients
    allow_flip: bool  # whether a mirrored image still belongs to its class
    read_domain: DomainReader
    has_places: bool = True  # whether a sample that is replaced leaves all others in their rows; not in class folders
    downloads: tuple[DownloadFile, ...] = ()
    is_own: bool = False  # the user's own data, which have no published sizes

    def load(
        self,
        root: Path,
        *,
        pixels: int = 224,
        progress: ProgressCallback = no_progress,
        domains: Sequence[str] | None = None,
    ) -> Benchmark:
        """Load domains (None: all) with their texts, or their images: decoded once, then from the cache.

        `pixels` is the side of the images that the model takes, and `progress` is called with (domain, done,
        total) while they are decoded. The benchmark has a warning wherever the data differ from the published
        ones; InvalidInput if files are missing, damaged or unknown.
        """

        def make_domain(spec: DomainSpec, raw: RawDomain, fields: dict[str, Any]) -> LabelledDomain:
            if isinstance(raw.content, tuple):
                return TextDomain(texts=raw.content, **fields)
            if isinstance(raw.content, np.ndarray):
                return FeatureDomain(features=raw.content, **fields)
            label, report = f"{self.name}/{spec.name}", partial(progress, spec.name)
            try:
                images = cached_images(raw.content, label, pixels=pixels, progress=report)
            except InvalidInput as error:
                issues = IssueLog(root)
                for row in range(len(raw.content)):
                    raw.content.check(row, issues)
                if len(issues.errors) < 2:
                    raise
                raise InvalidInput(f"{error} (and {len(issues.errors) - 1} more; {self._check_hint(root)})") from error
            return ImageDomain(images=images, **fields)

        return self._read_benchmark(root, domains, make_domain)

    def load_labels(self, root: Path, *, domains: Sequence[str] | None = None) -> Benchmark:
        """Load the labels only: enough to draw a split, and no image is decoded. Raises as `load` does."""
        return self._read_benchmark(root, domains, lambda _spec, _raw, fields: LabelledDomain(**fields))

    def check(
        self, root: Path, *, progress: ProgressCallback = no_progress, domains: Sequence[str] | None = None
    ) -> DatasetReport:
        """Count all samples, decode every image, and report all issues instead of stopping at the first."""
        issues, counts = self._open(root), []
        for spec, raw, class_counts in self._read_domains(issues, domains):
            counts += class_counts
            if isinstance(raw.content, ImageSource):
                for row in range(len(raw.content)):
                    raw.content.check(row, issues)
                    progress(spec.name, row + 1, len(raw.content))
        if self.is_own and not issues.errors:
            try:
                self.load_labels(root).check_every_class()
            except InvalidInput as error:
                issues.error(str(error))
        return DatasetReport(self.name, tuple(counts), (*issues.errors, *issues.warnings))

    def _open(self, root: Path) -> IssueLog:
        """An empty log for this directory; InvalidInput if there is none."""
        issues = IssueLog(root)
        if not self.is_own and not issues.root.is_dir():
            raise InvalidInput(f"expected a directory with the data, got {issues.root}; give one that exists")
        return issues

    def _check_hint(self, root: Path) -> str:
        return f"`vpdr data check {self.name} --root {root}` lists all issues"

    def _read_benchmark(self, root: Path, domains: Sequence[str] | None, make_domain: DomainMaker) -> Benchmark:
        """All domains as `make_domain` makes them."""
        issues = self._open(root)
        raw_domains = [(spec, raw) for spec, raw, _ in self._read_domains(issues, domains)]
        if issues.errors:
            more = f" (and {len(issues.errors) - 1} more)" if len(issues.errors) > 1 else ""
            raise InvalidInput(f"{issues.errors[0]}{more}; {self._check_hint(root)}")
        made = []
        for spec, raw in raw_domains:
            train_size = len(raw.labels) - (raw.test_size or 0)
            has_test = raw.test_size is not None
            fields = {
                "name": spec.name,
                "labels": raw.labels,
                "official_test": np.arange(train_size, len(raw.labels)) if has_test else None,
                "full_train_size": sum(spec.train) if has_test and train_size < sum(spec.train) else None,
            }
            made.append(make_domain(spec, raw, fields))
        return Benchmark(
            name=self.name,
            classes=len(self.class_names),
            class_names=self.class_names,
            domains=tuple(made),
            warnings=tuple(issues.warnings),
        )

    def _read_domains(
        self, issues: IssueLog, domains: Sequence[str] | None
    ) -> Iterator[tuple[DomainSpec, RawDomain, list[ClassCounts]]]:
        """Each domain that can be read, with a warning wherever the number of samples is not the published one."""
        for name in domains or ():
            one_of([spec.name for spec in self.domains], domain=name)
        for spec in self.domains if domains is None else [spec for spec in self.domains if spec.name in domains]:
            try:
                raw = self.read_domain(issues.root, spec.name, issues)
            except OSError as error:
                issues.error(f"{spec.name}: cannot read {error.filename}: {error.strerror}; check its permissions")
                continue
            if raw is None:
                continue
            parts = [("all", raw.labels, spec.train)]
            if raw.test_size is not None:
                train_size = len(raw.labels) - raw.test_size
                parts = [("train", raw.labels[:train_size], spec.train), ("test", raw.labels[train_size:], spec.test)]
            counts = []
            for part, labels, expected in parts:
                sizes = np.bincount(labels, minlength=len(self.class_names))
                counts.append(ClassCounts(spec.name, part, tuple(sizes.tolist()), expected))
                if line := counts[-1].difference(self.class_names):
                    issues.warning(line)
            yield spec, raw, counts


def cached_images(
    source: ImageSource, label: str, *, pixels: int, progress: DecodeProgress, cache_dir: Path | None = None
) -> UInt8[np.ndarray, "n h w 3"]:
    """All images of a source as one array, memory-mapped from the cache.

    The name of the cache file depends on the source's files, the `label` of benchmark and domain, and the
    side in `pixels` that the model takes. Images are never enlarged here: small ones keep their size and are
    enlarged batch by batch. The file gets its name only when it is complete, so an interrupted call leaves
    nothing behind.
    """
    side = source.stored_size(pixels)
    shape = (len(source), side, side, 3)
    name = cache_key("pictures", PIXELS_VERSION, label, shape, source.fingerprint())
    path = (default_cache_dir() if cache_dir is None else cache_dir) / f"{name}.npy"
    if (mapped := _open_mapped(path, shape)) is not None:
        progress(len(source), len(source))
        return mapped
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error
    with atomic_writer(path, mode=0o600) as file:  # private data: readable by the owner only
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(source), _CHUNK_SIZE):
            stop = min(start + _CHUNK_SIZE, len(source))
            file.write(np.ascontiguousarray(source.read(start, stop, side)).data)
            progress(stop, len(source))
    if (mapped := _open_mapped(path, shape)) is None:
        raise write_error(path, OSError(0, "the file is not what was written"))
    return mapped


def _open_mapped(path: Path, shape: tuple[int, int, int, int]) -> UInt8[np.ndarray, "n h w 3"] | None:
    """The cache file, or None if it is missing, damaged or of another shape."""
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return stored if stored.shape == shape and stored.dtype == np.uint8 else None
