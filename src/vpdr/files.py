"""Files that are written whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from vpdr.errors import InvalidInput


def write_atomically(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Replace `path` by `content` so that a reader or a crash sees the old file or the new one, never a part.

    The content reaches the disk before the name does, and the name before this function returns. `mode` is
    what the user's umask is taken from.
    """
    with writing_atomically(path, mode=mode) as file:
        file.write(content)


@contextmanager
def writing_atomically(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """The same for content that is too much to hold at once: the name appears after the last byte."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _settle(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError) -> InvalidInput:
    """The one line for a full disk, a missing folder or a read-only one."""
    return InvalidInput(f"cannot write {path}: {error.strerror}; choose a folder that exists and is writable")


def _settle(folder: Path) -> None:
    """Make a rename survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
