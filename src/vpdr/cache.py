"""Things that are slow to make, kept on disk; what cannot be trusted is made again."""

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vpdr.errors import InvalidInput
from vpdr.files import cannot_write, write_atomically

_DIGEST_SIZE = hashlib.sha256().digest_size


def default_folder() -> Path:
    """`$VPDR_CACHE`, or `~/.cache/vpdr`."""
    chosen = os.environ.get("VPDR_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "vpdr"


def name_of(*parts: object) -> str:
    """A name for what these parts make: other parts give another name."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def store(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Keep named arrays, behind a digest of what they are."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    payload = buffer.getvalue()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    write_atomically(path, hashlib.sha256(payload).digest() + payload, mode=0o600)  # features are private


def fetch(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays that were kept, or None where there are none that can be trusted."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}; choose another cache folder") from error
    digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    with np.load(io.BytesIO(payload), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
