"""Downloads of public files: resumed after an interruption, verified, and never over a file that exists."""

import hashlib
import http.client
import os
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO

from vpdr.data.spec import READ_ERRORS, DownloadFile
from vpdr.io import atomic_writer, write_error
from vpdr.types import ProgressCallback, no_progress
from vpdr.validation import InvalidInput

# urllib of the standard library is enough: what a client library adds (retries of whole requests, sessions) does not
# include going on in the middle of a file.
TIMEOUT = 30.0  # seconds without an answer
ATTEMPTS = 5  # of one address without a new byte
_FIRST_PAUSE = 1.0  # seconds between two attempts; doubled each time
_CHUNK_SIZE = 1 << 16
_NOT_SATISFIABLE, _TRY_AGAIN = 416, (408, 429)


class _NotThere(Exception):
    """An address that does not have the file: no use trying it again."""


def download(
    file: DownloadFile, root: Path, progress: ProgressCallback = no_progress, pause: float = _FIRST_PAUSE
) -> Path:
    """Download one file below `root` and unpack it if it is an archive; a complete one is left as it is.

    What has arrived is kept in a `.part` file beside it, and the next call goes on from there.

    Raises:
        InvalidInput: no address answers, the content is not the published one, or another file has its name.
    """
    target = root / file.path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            part = target.with_name(f"{target.name}.part")
            _download_part(file, part, progress, pause)
            if problem := _difference(file, part):
                part.unlink()
                raise InvalidInput(f"expected {file.path} as published, got {problem}; try again later")
            if target.exists():
                raise InvalidInput(f"{target} appeared during the download; remove it or {part}")
            os.rename(part, target)
        elif problem := _difference(file, target):
            raise InvalidInput(f"{target} exists and has {problem}; it is not overwritten: move it away")
    except OSError as error:
        raise write_error(target, error) from error
    if file.members:
        _unpack(target, file.members)
    return target


def _difference(file: DownloadFile, path: Path) -> str:
    """How a file differs from the published one, as far as that is known, or ""."""
    size = path.stat().st_size
    if file.size and size != file.size:
        return f"{size:,} bytes instead of {file.size:,}"
    if file.md5:
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if digest != file.md5:
            return f"the checksum {digest} instead of {file.md5}"
    return ""


def _download_part(file: DownloadFile, part: Path, progress: ProgressCallback, pause: float) -> None:
    """Fill the `.part` file from the first address that has it, and go on where a connection broke off."""
    if file.md5 and part.exists() and not _difference(file, part):
        return
    reason = "it has no address"
    for url in file.urls:
        failures = 0
        while failures < ATTEMPTS:
            before = part.stat().st_size if part.exists() else 0
            try:
                if _receive(url, part, before, file, progress):
                    return
                reason = "the connection ended early"
            except _NotThere as error:
                reason = str(error)
                break
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                reason = str(error.reason) if isinstance(error, urllib.error.URLError) else str(error)
            failures = 0 if part.exists() and part.stat().st_size > before else failures + 1
            time.sleep(pause * 2**failures if failures < ATTEMPTS else 0)
    raise InvalidInput(
        f"cannot download {file.path} from {' or '.join(file.urls)}: {reason or 'no answer'}; check the network, "
        "then give the same command again: it goes on where it stopped"
    )


def _receive(url: str, part: Path, offset: int, file: DownloadFile, progress: ProgressCallback) -> bool:
    """Append what one request returns; whether the file is complete."""
    request = urllib.request.Request(url, headers={"User-Agent": "vpdr", "Accept-Encoding": "identity"})
    if offset:
        request.add_header("Range", f"bytes={offset}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == _NOT_SATISFIABLE and offset:
            if offset == file.size:
                return True
            part.unlink()  # longer than the file: begin again
            return False
        if error.code < http.client.INTERNAL_SERVER_ERROR and error.code not in _TRY_AGAIN:
            raise _NotThere(f"{error.code} {error.reason}") from error
        raise
    with response:
        if response.status != http.client.PARTIAL_CONTENT:
            offset = 0  # the server sends everything
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
            raise _NotThere("another range than the one that was asked for")
        length = response.headers.get("Content-Length")
        total = file.size or (offset + int(length) if length else 0)
        with part.open("ab" if offset else "wb") as out:
            while chunk := _read(response):
                out.write(chunk)
                progress(file.path, out.tell(), max(total, out.tell()))
            received = out.tell()
    return not length or received >= offset + int(length)


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK_SIZE)
    except OSError as error:  # of the network, which must not be taken for one of the disk
        raise ConnectionError(str(error)) from error


def _unpack(archive: Path, pattern: str) -> None:
    """Write the members of an archive that fit the pattern beside it; files that exist are left as they are."""
    try:
        for name, content in _members(archive, pattern):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                continue
            target = archive.parent / path
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                with content as source, atomic_writer(target) as out:
                    shutil.copyfileobj(source, out)
    except (tarfile.TarError, *READ_ERRORS) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"cannot unpack {archive} ({error}); move it away and download it again") from error


def _members(archive: Path, pattern: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of the plain files in an archive that fit the pattern: links and devices are left out."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                if not entry.is_dir() and fnmatch(entry.filename, pattern):
                    yield entry.filename, zipped.open(entry)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            is_wanted = member.isfile() and fnmatch(member.name, pattern)
            if is_wanted and (content := tar.extractfile(member)) is not None:
                yield member.name, content
