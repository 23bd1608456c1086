"""What is wrong with data on a user's disk, collected so that one mistake does not hide the next."""

import bz2
import csv
import gzip
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from vpdr.errors import InvalidInput

T = TypeVar("T")

# All that the readers of the public formats are known to raise on damaged files.
DAMAGE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, IndexError, NotImplementedError, SyntaxError),
    *(struct.error, zlib.error, zipfile.BadZipFile, pickle.UnpicklingError, csv.Error),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line; a fatal one forbids to train on the data as they are."""

    text: str
    fatal: bool


@dataclass(slots=True)
class Findings:
    """What was found so far; paths are told from `root` on."""

    root: Path
    found: list[Finding] = field(default_factory=list)

    def broken(self, text: str) -> None:
        """Something that must be mended before the data are used."""
        self.found.append(Finding(" ".join(text.split()), fatal=True))

    def remark(self, text: str) -> None:
        """Something that the user should know."""
        self.found.append(Finding(" ".join(text.split()), fatal=False))

    def place(self, path: Path) -> str:
        """A path as it is told."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def attempt(self, what: str, read: Callable[..., T], *paths: Path) -> T | None:
        """What `read` makes of the files, or None with a line that names the first of them."""
        try:
            return read(*paths)
        except InvalidInput as error:
            self.broken(f"{self.place(paths[0])}: {error}")
            return None
        except DAMAGE as error:
            reason = str(error) or type(error).__name__
            self.broken(
                f"{self.place(paths[0])}: expected {what}, got something else ({reason}); fetch it again"
            )
            return None

    def lines(self, *, fatal: bool) -> tuple[str, ...]:
        """The lines of one kind, in the order in which they were found."""
        return tuple(finding.text for finding in self.found if finding.fatal is fatal)


def opened(path: Path) -> bytes:
    """The content of a file, unpacked where its name says that it is packed."""
    unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress}.get(path.suffix)
    content = path.read_bytes()
    return content if unpack is None else unpack(content)
