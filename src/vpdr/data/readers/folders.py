"""Pictures in folders: a folder for each domain and class, with whatever lies between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vpdr.data.findings import Findings
from vpdr.data.found import Found
from vpdr.data.rasters import PictureFiles
from vpdr.data.readers.search import DEEPEST, find_folder, shown

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff")

# Folders that divide a domain in ways that do not concern us: all of them are read as one.
THROUGH = ("train", "test", "val", "valid", "validation", "crossval", "images", "kfold", "raw_images")


@dataclass(frozen=True, kw_only=True)
class FolderReader:
    """`domain/class/*` below any folder; names are compared without case, blanks and hyphens.

    Rows are ordered by class and file name, wherever the files lie, so that a split means the same pictures
    in every layout.
    """

    domains: Mapping[str, Sequence[str]]  # each name with its other names
    classes: Mapping[str, Sequence[str]]

    def __call__(self, root: Path, domain: str, findings: Findings) -> Found | None:
        """One domain, or None with a line that says that it is missing."""
        names = _known({domain: self.domains[domain]})
        places = _places(root, names)
        if not places:
            findings.broken(
                f"{domain}: expected a folder {' or '.join(names)} below {findings.root}, found none; "
                "fetch it, or name the domains to go without it"
            )
            return None
        known, files = _known(self.classes), []
        for place in places:
            files += _collect(place, known, findings)
        labels = {name: label for label, name in enumerate(self.classes)}
        return _found([(labels[name], path) for name, path in files], domain, findings)


def split_folders(
    root: Path, parts: tuple[str, str], classes: Sequence[str], findings: Findings
) -> Found | None:
    """`train/class/*` and `test/class/*` under their own names; None where a part is missing."""
    places = [find_folder(root, part) for part in parts]
    known, rows, tested = {name: name for name in classes}, [], 0
    for number, place in enumerate(places):
        if place is None:
            return None
        files = _collect(place, known, findings)
        rows += [(number, classes.index(name), path.name, path) for name, path in files]
        tested = len(files)
    rows.sort()
    found = _found([(label, path) for _, label, _, path in rows], parts[0], findings, ordered=True)
    return None if found is None else Found(labels=found.labels, content=found.content, tested=tested)


def _found(
    files: list[tuple[int, Path]], what: str, findings: Findings, *, ordered: bool = False
) -> Found | None:
    if not files:
        findings.broken(f"{what}: expected pictures in its class folders, found none; fetch them again")
        return None
    if not ordered:
        files = sorted(files, key=lambda file: (file[0], file[1].name, str(file[1])))
    labels = np.array([label for label, _ in files], dtype=np.int64)
    return Found(labels=labels, content=PictureFiles([path for _, path in files]))


def _places(root: Path, names: Mapping[str, str], depth: int = 0) -> list[Path]:
    """All folders of a domain, not looking into one that was found."""
    found = []
    for folder in _folders(root):
        if _plain(folder.name) in names:
            found.append(folder)
        elif depth < DEEPEST:
            found += _places(folder, names, depth + 1)
    return found


def _collect(folder: Path, known: Mapping[str, str], findings: Findings) -> list[tuple[str, Path]]:
    """The pictures of all class folders, each with the name of its class."""
    files: list[tuple[str, Path]] = []
    for inner in _folders(folder):
        name = _plain(inner.name)
        if name in known:
            files += [(known[name], path) for path in _pictures(inner, findings)]
        elif name in THROUGH:
            files += _collect(inner, known, findings)
        else:
            classes = ", ".join(dict.fromkeys(known.values()))
            findings.broken(
                f"{findings.place(inner)}: expected a class folder ({classes}), "
                "got another name; rename it or move it away"
            )
    return files


def _pictures(folder: Path, findings: Findings) -> list[Path]:
    pictures = []
    for path in sorted(path for path in folder.iterdir() if shown(path.name)):
        if path.suffix.lower() in SUFFIXES and path.is_file():
            pictures.append(path)
        else:
            findings.remark(f"{findings.place(path)}: expected a picture, got another kind of file; left out")
    if not pictures:
        findings.broken(f"{findings.place(folder)}: expected pictures, found none; fetch them again")
    return pictures


def _folders(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if shown(path.name) and path.is_dir()]


def _known(names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Every spelling with the name that it stands for."""
    return {spelling: name for name, others in names.items() for spelling in (name, *others)}


def _plain(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")
