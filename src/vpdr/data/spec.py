"""The public benchmarks: their published sizes, and how each is loaded from a user's disk and checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypedDict

import numpy as np

from vpdr.data.benchmark import Benchmark, ImageDomain, LabelledDomain, TextDomain
from vpdr.data.files import IssueLog, RawDomain
from vpdr.data.images import cached_images
from vpdr.data.split import Indices, SplitConfig
from vpdr.errors import InvalidInput
from vpdr.types import ProgressCallback, no_progress
from vpdr.validation import one_of

_MAX_CLASSES_LISTED = 3  # in one line of a report


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


DomainReader: TypeAlias = Callable[[Path, str, IssueLog], RawDomain | None]


class DomainLabels(TypedDict):
    """The arguments of `LabelledDomain`."""

    name: str
    labels: Indices
    official_test: Indices | None
    full_train_size: int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class BenchmarkSpec:
    """A benchmark that is read from files on the user's disk.

    Args:
        name: the name in configurations and on the command line.
        title: the name in reports.
        modality: `image` or `text`.
        domains: the domains, with the published numbers of samples.
        class_names: one name for each class.
        expected_files: the file layouts that `read_domain` understands.
        download_info: where to get the files.
        licence: the licence of the data.
        split_config: how the paper splits the benchmark among clients.
        allow_flip: whether a mirrored image still belongs to its class.
        read_domain: reads one domain below a directory; returns None and logs an error if it cannot.

    >>> from vpdr.data import BENCHMARK_SPECS
    >>> BENCHMARK_SPECS["pacs"].class_names[:3]
    ('dog', 'elephant', 'giraffe')
    """

    name: str
    title: str
    modality: str
    domains: tuple[DomainSpec, ...]
    class_names: tuple[str, ...]
    expected_files: str
    download_info: str
    licence: str
    split_config: SplitConfig
    allow_flip: bool
    read_domain: DomainReader

    def load(
        self,
        root: Path,
        *,
        pixels: int = 224,
        progress: ProgressCallback = no_progress,
        domains: Sequence[str] | None = None,
    ) -> Benchmark:
        """Load the benchmark with its images (decoded once, then from the cache) or texts.

        Args:
            root: the directory with the files.
            pixels: the side of the images that the model takes.
            progress: called with (domain, done, total) while images are decoded.
            domains: the domains to load; None for all.

        Returns:
            The benchmark, with a warning wherever the data differ from the published ones.

        Raises:
            InvalidInput: files are missing, damaged or unknown.
        """
        return self._read_benchmark(
            root, domains, lambda spec, raw: self._make_domain(spec, raw, pixels=pixels, progress=progress)
        )

    def load_labels(self, root: Path, *, domains: Sequence[str] | None = None) -> Benchmark:
        """Load the labels only: enough to draw a split, and no image is decoded. Raises as `load` does."""
        return self._read_benchmark(root, domains, lambda spec, raw: LabelledDomain(**_domain_labels(spec, raw)))

    def check(
        self, root: Path, *, progress: ProgressCallback = no_progress, domains: Sequence[str] | None = None
    ) -> DatasetReport:
        """Count all samples, decode every image, and report all issues instead of stopping at the first.

        Args:
            root: the directory with the files.
            progress: called with (domain, done, total) while images are decoded.
            domains: the domains to check; None for all.

        Returns:
            The counts, and the issues, errors first.

        Raises:
            InvalidInput: the directory does not exist, or a domain is unknown.
        """
        issues = IssueLog(_check_root(root))
        counts: list[ClassCounts] = []
        for spec in self._select_domains(domains):
            raw = self._read_raw_domain(spec, issues)
            if raw is not None:
                counts += self._count_classes(spec, raw, issues)
                _check_images(spec.name, raw, issues, progress)
        lines = (*issues.lines(fatal=True), *issues.lines(fatal=False))
        return DatasetReport(benchmark=self.name, counts=tuple(counts), issues=lines)

    def _read_benchmark(
        self, root: Path, domains: Sequence[str] | None, make_domain: Callable[[DomainSpec, RawDomain], LabelledDomain]
    ) -> Benchmark:
        issues, raw_domains = IssueLog(_check_root(root)), []
        for spec in self._select_domains(domains):
            raw = self._read_raw_domain(spec, issues)
            if raw is not None:
                self._count_classes(spec, raw, issues)
                raw_domains.append((spec, raw))
        if errors := issues.lines(fatal=True):
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            raise InvalidInput(f"{errors[0]}{more}; `vpdr data check {self.name} --root {root}` lists all issues")
        return Benchmark(
            name=self.name,
            classes=len(self.class_names),
            class_names=self.class_names,
            domains=tuple(make_domain(spec, raw) for spec, raw in raw_domains),
            warnings=issues.lines(fatal=False),
        )

    def _read_raw_domain(self, spec: DomainSpec, issues: IssueLog) -> RawDomain | None:
        try:
            return self.read_domain(issues.root, spec.name, issues)
        except OSError as error:
            issues.error(f"{spec.name}: cannot read {error.filename}: {error.strerror}; check its permissions")
            return None

    def _select_domains(self, domains: Sequence[str] | None) -> tuple[DomainSpec, ...]:
        if domains is None:
            return self.domains
        for name in domains:
            one_of([spec.name for spec in self.domains], domain=name)
        return tuple(spec for spec in self.domains if spec.name in domains)

    def _count_classes(self, spec: DomainSpec, raw: RawDomain, issues: IssueLog) -> list[ClassCounts]:
        """The number of samples of each class, with a warning wherever the published number differs."""
        if raw.test_size is None:
            parts = [("all", raw.labels, spec.train)]
        else:
            train_size = len(raw.labels) - raw.test_size
            parts = [("train", raw.labels[:train_size], spec.train), ("test", raw.labels[train_size:], spec.test)]
        counts = []
        for part, labels, expected in parts:
            sizes = np.bincount(labels, minlength=len(self.class_names))
            counts.append(ClassCounts(spec.name, part, tuple(sizes.tolist()), expected))
            for line in counts[-1].differences(self.class_names):
                issues.warning(line)
        return counts

    def _make_domain(
        self, spec: DomainSpec, raw: RawDomain, *, pixels: int, progress: ProgressCallback
    ) -> LabelledDomain:
        labels = _domain_labels(spec, raw)
        if isinstance(raw.content, tuple):
            return TextDomain(texts=raw.content, **labels)
        images = cached_images(
            raw.content, f"{self.name}/{spec.name}", pixels=pixels, progress=partial(progress, spec.name)
        )
        return ImageDomain(images=images, **labels)


def _domain_labels(spec: DomainSpec, raw: RawDomain) -> DomainLabels:
    train_size = len(raw.labels) - (raw.test_size or 0)
    incomplete = raw.test_size is not None and train_size < sum(spec.train)
    return DomainLabels(
        name=spec.name,
        labels=raw.labels,
        official_test=raw.official_test,
        full_train_size=sum(spec.train) if incomplete else None,
    )


def _check_images(name: str, raw: RawDomain, issues: IssueLog, progress: ProgressCallback) -> None:
    if isinstance(raw.content, tuple):
        return
    for row in range(len(raw.content)):
        raw.content.check(row, issues)
        progress(name, row + 1, len(raw.content))


def _check_root(root: Path) -> Path:
    root = Path(root).expanduser()
    if not root.is_dir():
        raise InvalidInput(f"expected a directory with the data, got {root}; give one that exists")
    return root
