"""Images in directories: one for each domain and class, possibly with other directories in between."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vpdr.data.benchmark import SplitConfig
from vpdr.data.images import ImageFiles
from vpdr.data.spec import MAX_DEPTH, BenchmarkSpec, DomainSpec, DownloadFile, IssueLog, RawDomain, is_visible

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff")

# Directories between a domain and its classes: all of them are read as one.
INTERMEDIATE_DIRECTORIES = ("train", "test", "val", "valid", "validation", "crossval", "images", "kfold", "raw_images")


@dataclass(frozen=True, kw_only=True)
class ImageFolderReader:
    """Reads `domain/class/*` below any directory; names are compared without case, blanks and hyphens."""

    domains: Mapping[str, Sequence[str]]  # each name with its aliases
    classes: Mapping[str, Sequence[str]]

    def __call__(self, root: Path, domain: str, issues: IssueLog) -> RawDomain | None:
        """One domain; None and an error if it is missing."""
        names = (domain, *self.domains[domain])
        directories = _domain_directories(root, names)
        if not directories:
            issues.error(
                f"{domain}: expected a directory {' or '.join(names)} below {issues.root}, found none; "
                "download it, or name the domains to go without it"
            )
            return None
        return read_class_directories(domain, [directories], self.classes, issues)


def read_class_directories(
    what: str, parts: Sequence[Sequence[Path]], classes: Mapping[str, Sequence[str]], issues: IssueLog
) -> RawDomain | None:
    """The images of all class directories; a second part is the official test set.

    Rows are ordered by part, class and file name, so that a split means the same images in every layout.
    """
    class_names = {alias: name for name, aliases in classes.items() for alias in (name, *aliases)}
    labels = {name: label for label, name in enumerate(classes)}
    rows = []
    for part, directories in enumerate(parts):
        for directory in directories:
            files = _collect_images(directory, class_names, issues)
            rows += [(part, labels[name], path.name, str(path), path) for name, path in files]
    rows.sort()
    if not rows:
        issues.error(f"{what}: expected images in its class directories, found none; download them again")
        return None
    return RawDomain(
        labels=np.array([label for _, label, *_ in rows], dtype=np.int64),
        content=ImageFiles([path for *_, path in rows]),
        test_size=sum(part for part, *_ in rows) if len(parts) > 1 else None,
    )


def _domain_directories(root: Path, names: Sequence[str], depth: int = 0) -> list[Path]:
    """All directories of a domain; one inside another is not listed again."""
    directories = []
    for directory in _subdirectories(root):
        if _normalise_name(directory.name) in names:
            directories.append(directory)
        elif depth < MAX_DEPTH:
            directories += _domain_directories(directory, names, depth + 1)
    return directories


def _collect_images(directory: Path, class_names: Mapping[str, str], issues: IssueLog) -> list[tuple[str, Path]]:
    """The images of all class directories, each with the name of its class."""
    files: list[tuple[str, Path]] = []
    for inner in _subdirectories(directory):
        name = _normalise_name(inner.name)
        if name in class_names:
            files += [(class_names[name], path) for path in _image_files(inner, issues)]
        elif name in INTERMEDIATE_DIRECTORIES:
            files += _collect_images(inner, class_names, issues)
        else:
            classes = ", ".join(dict.fromkeys(class_names.values()))
            issues.error(
                f"{issues.relative_path(inner)}: expected a class directory ({classes}), "
                "got another name; rename it or move it away"
            )
    return files


def _image_files(directory: Path, issues: IssueLog) -> list[Path]:
    images = []
    for path in sorted(path for path in directory.iterdir() if is_visible(path.name)):
        if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
            images.append(path)
        else:
            issues.warning(f"{issues.relative_path(path)}: expected an image, got another kind of file; left out")
    if not images:
        issues.error(f"{issues.relative_path(directory)}: expected images, found none; download them again")
    return images


def _subdirectories(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if is_visible(path.name) and path.is_dir()]


def _normalise_name(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")


def _repository_archive(repository: str, commit: str, members: str, domains: tuple[str, ...]) -> DownloadFile:
    """One commit of a public repository: the files never change, the bytes of the archive around them may."""
    url = f"https://github.com/{repository}/archive/{commit}.zip"
    return DownloadFile(path=f"{commit}.zip", urls=(url,), domains=domains, members=members)


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
    download_info="https://github.com/ZhangJUJU/OfficeCaltechDomainAdaptation (images/), a copy by others",
    licence="none stated; from Office-31 and Caltech-256, for research",
    split_config=SplitConfig(train_fraction=0.3),
    allow_flip=True,
    has_places=False,
    read_domain=ImageFolderReader(
        domains={"amazon": (), "caltech": ("caltech10", "caltech_10"), "dslr": (), "webcam": ()},
        classes=_OFFICE_CALTECH_CLASSES,
    ),
    downloads=(
        _repository_archive(
            "ZhangJUJU/OfficeCaltechDomainAdaptation",
            "01532fd8d1c7140f4836f6877fac8f80fd0bebfa",
            members="*/images/*",
            domains=("amazon", "caltech", "dslr", "webcam"),
        ),
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
    download_info="https://domaingeneralization.github.io (Li et al., 2017); a copy by others: "
    "https://github.com/MachineLearning2020/Homework3-PACS",
    licence="none stated; for research",
    split_config=SplitConfig(train_fraction=0.3),
    allow_flip=True,
    has_places=False,
    read_domain=ImageFolderReader(
        domains={"photo": (), "art_painting": ("art",), "cartoon": (), "sketch": ()},
        classes=dict.fromkeys(_PACS_CLASSES, ()),
    ),
    downloads=(
        _repository_archive(
            "MachineLearning2020/Homework3-PACS",
            "d586a6cf3db84896fb6cc465c7bf51bdaf6d65d8",
            members="*/PACS/*",
            domains=("photo", "art_painting", "cartoon", "sketch"),
        ),
    ),
)
