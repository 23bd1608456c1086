"""Images in directories: one for each domain and class, possibly with other directories in between."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vpdr.data.benchmark import IssueLog, RawDomain
from vpdr.data.images import ImageFiles
from vpdr.data.readers._common import MAX_DEPTH, find_directory, is_visible

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff")

# Directories between a domain and its classes: all of them are read as one.
INTERMEDIATE_DIRECTORIES = ("train", "test", "val", "valid", "validation", "crossval", "images", "kfold", "raw_images")


@dataclass(frozen=True, kw_only=True)
class ImageFolderReader:
    """Reads `domain/class/*` below any directory; names are compared without case, blanks and hyphens.

    Rows are ordered by class and file name, so that a split means the same images in every layout.
    """

    domains: Mapping[str, Sequence[str]]  # each name with its aliases
    classes: Mapping[str, Sequence[str]]

    def __call__(self, root: Path, domain: str, issues: IssueLog) -> RawDomain | None:
        """One domain; None and an error if it is missing."""
        names = _canonical_names({domain: self.domains[domain]})
        directories = _domain_directories(root, names)
        if not directories:
            issues.error(
                f"{domain}: expected a directory {' or '.join(names)} below {issues.root}, found none; "
                "download it, or name the domains to go without it"
            )
            return None
        class_names, files = _canonical_names(self.classes), []
        for directory in directories:
            files += _collect_images(directory, class_names, issues)
        labels = {name: label for label, name in enumerate(self.classes)}
        rows = [(labels[name], path) for name, path in files]
        rows.sort(key=lambda row: (row[0], row[1].name, str(row[1])))
        return _make_raw_domain(rows, domain, issues)


def read_train_test_directories(
    root: Path, parts: tuple[str, str], classes: Sequence[str], issues: IssueLog
) -> RawDomain | None:
    """Reads `train/class/*` and `test/class/*`, with the names of both in `parts`; None if one is missing."""
    directories = [find_directory(root, part) for part in parts]
    class_names, rows, test_size = {name: name for name in classes}, [], 0
    for number, directory in enumerate(directories):
        if directory is None:
            return None
        files = _collect_images(directory, class_names, issues)
        rows += [(number, classes.index(name), path.name, path) for name, path in files]
        test_size = len(files)
    rows.sort()
    return _make_raw_domain([(label, path) for _, label, _, path in rows], parts[0], issues, test_size=test_size)


def _make_raw_domain(
    rows: list[tuple[int, Path]], what: str, issues: IssueLog, *, test_size: int | None = None
) -> RawDomain | None:
    if not rows:
        issues.error(f"{what}: expected images in its class directories, found none; download them again")
        return None
    labels = np.array([label for label, _ in rows], dtype=np.int64)
    return RawDomain(labels=labels, content=ImageFiles([path for _, path in rows]), test_size=test_size)


def _domain_directories(root: Path, names: Mapping[str, str], depth: int = 0) -> list[Path]:
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


def _canonical_names(names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Every name and alias with the name that it stands for."""
    return {alias: name for name, aliases in names.items() for alias in (name, *aliases)}


def _normalise_name(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")
