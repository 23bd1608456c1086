"""The public benchmarks of the paper, and how each is loaded from a user's disk and checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypedDict

import numpy as np

from vpdr.data.benchmark import (
    Benchmark,
    ClassCounts,
    DatasetReport,
    DomainSpec,
    ImageDomain,
    IssueLog,
    LabelledDomain,
    RawDomain,
    TextDomain,
)
from vpdr.data.images import cached_images
from vpdr.data.partition import Indices
from vpdr.data.readers.agnews import read_agnews
from vpdr.data.readers.cifar import read_cifar
from vpdr.data.readers.digits import read_digits
from vpdr.data.readers.image_folders import ImageFolderReader
from vpdr.data.split import SplitConfig
from vpdr.errors import InvalidInput
from vpdr.registry import Registry
from vpdr.types import ProgressCallback, no_progress
from vpdr.validation import one_of

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
)


# Ten office objects in four domains; each class with its other directory names.
_OFFICE_CALTECH_CLASSES = {
    "backpack": ("back_pack",),
    "bike": ("touring_bike",),
    "calculator": (),
    "headphones": ("head_phones",),
    "keyboard": ("computer_keyboard",),
    "laptop": ("laptop_computer", "laptop_101"),
    "monitor": ("computer_monitor",),
    "mouse": ("computer_mouse",),
    "mug": ("coffee_mug",),
    "projector": ("video_projector",),
}

OFFICE_CALTECH = BenchmarkSpec(
    name="office_caltech",
    title="Office-Caltech-10",
    modality="image",
    domains=(
        DomainSpec(name="amazon", title="Amazon", train=(92, 82, 94, 99, 100, 100, 99, 100, 94, 98)),
        DomainSpec(name="caltech", title="Caltech", train=(151, 110, 100, 138, 85, 128, 133, 94, 87, 97)),
        DomainSpec(name="dslr", title="DSLR", train=(12, 21, 12, 13, 10, 24, 22, 12, 8, 23)),
        DomainSpec(name="webcam", title="Webcam", train=(29, 21, 31, 27, 27, 30, 43, 30, 27, 30)),
    ),
    class_names=tuple(_OFFICE_CALTECH_CLASSES),
    expected_files="<domain>/<class>/*.jpg with the domains amazon, caltech (or caltech10), dslr and webcam",
    download_info="https://github.com/ZhangJUJU/OfficeCaltechDomainAdaptation (images/)",
    licence="none stated; from Office-31 and Caltech-256, for research",
    split_config=SplitConfig(train_fraction=0.3),
    allow_flip=True,
    read_domain=ImageFolderReader(
        domains={"amazon": (), "caltech": ("caltech10", "caltech_10"), "dslr": (), "webcam": ()},
        classes=_OFFICE_CALTECH_CLASSES,
    ),
)


# Seven classes as photographs, paintings, cartoons and sketches.
_PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")

PACS = BenchmarkSpec(
    name="pacs",
    title="PACS",
    modality="image",
    domains=(
        DomainSpec(name="photo", title="Photo", train=(189, 202, 182, 186, 199, 280, 432)),
        DomainSpec(name="art_painting", title="Art", train=(379, 255, 285, 184, 201, 295, 449)),
        DomainSpec(name="cartoon", title="Cartoon", train=(389, 457, 346, 135, 324, 288, 405)),
        DomainSpec(name="sketch", title="Sketch", train=(772, 740, 753, 608, 816, 80, 160)),
    ),
    class_names=_PACS_CLASSES,
    expected_files="<domain>/<class>/*.jpg with the domains photo, art_painting (or art), cartoon and "
    "sketch; train and test directories above or below a domain are read as one",
    download_info="https://domaingeneralization.github.io (Li et al., 2017)",
    licence="none stated; for research",
    split_config=SplitConfig(train_fraction=0.3),
    allow_flip=True,
    read_domain=ImageFolderReader(
        domains={"photo": (), "art_painting": ("art",), "cartoon": (), "sketch": ()},
        classes=dict.fromkeys(_PACS_CLASSES, ()),
    ),
)


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
)


# Four topics of short news texts.
AGNEWS = BenchmarkSpec(
    name="agnews",
    title="AG News",
    modality="text",
    domains=(DomainSpec(name="agnews", title="AG News", train=(30_000,) * 4, test=(1_900,) * 4),),
    class_names=("world", "sports", "business", "sci/tech"),
    expected_files="a train and a test file, *.csv or *.csv.gz, with or without a header: "
    "label (0-3 or 1-4) and text, or label, title and description",
    download_info="https://github.com/mhjabreel/CharCnn_Keras (data/ag_news_csv), or fancyzhx/ag_news on the hub",
    licence="for research and other non-commercial use",
    split_config=SplitConfig(skew="pooled", clients=20),
    allow_flip=False,
    read_domain=read_agnews,
)


# Another package adds a benchmark through the entry points `vpdr.benchmarks`.
BENCHMARK_SPECS: Registry[BenchmarkSpec] = Registry(
    "benchmark", {spec.name: spec for spec in (DIGITS, OFFICE_CALTECH, PACS, CIFAR10, AGNEWS)}
)
