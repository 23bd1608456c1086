"""Where on a user's disk a set lies: people unpack archives in many ways."""

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

DEEPEST = 3


def walk(root: Path, deepest: int = DEEPEST) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Folders with their folders and files, in order; nothing hidden, and not too deep."""
    for place, folders, files in os.walk(root, followlinks=True):
        here = Path(place)
        folders[:] = sorted(name for name in folders if shown(name))
        yield here, list(folders), sorted(name for name in files if shown(name))
        if len(here.relative_to(root).parts) >= deepest:
            folders.clear()


def find_file(root: Path, patterns: tuple[str, ...], prefer: str = "") -> Path | None:
    """The file whose name fits one of the patterns; first those in a folder `prefer`, then the least deep.

    An unpacked file comes before its archive, an earlier pattern before a later one.
    """
    found = []
    for here, _, files in walk(root):
        for name in files:
            for rank, pattern in enumerate(patterns):
                if fnmatch(name.lower(), pattern):
                    path = here / name
                    parts = path.relative_to(root).parts
                    elsewhere = prefer not in {part.lower() for part in (root.name, *parts[:-1])}
                    found.append((bool(prefer) and elsewhere, rank, path.suffix == ".gz", len(parts), path))
    return min(found)[-1] if found else None


def find_folder(root: Path, name: str) -> Path | None:
    """The least deep folder of that name; `root` itself may be it."""
    found = [here for here, _, _ in walk(root) if here.name.lower() == name]
    return min(found, key=lambda path: (len(path.parts), path)) if found else None


def shown(name: str) -> bool:
    """Neither hidden nor left behind by an archive."""
    return not name.startswith((".", "__MACOSX"))
