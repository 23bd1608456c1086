"""Files: atomic writes, a cache of arrays, TOML and JSON."""

import hashlib
import io
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vpdr.validation import InvalidInput

_DIGEST_SIZE = hashlib.sha256().digest_size


def write_atomically(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Replace `path` by `content` so that a reader or a crash sees the old file or the new one, never a part.

    The content is on disk before the name is, and the name before this function returns. InvalidInput if the
    file cannot be written.
    """
    with atomic_writer(path, mode=mode) as file:
        file.write(content)


@contextmanager
def atomic_writer(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """`write_atomically` for content that does not fit into memory: the name appears after the last byte."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # so that the rename survives a power failure
        finally:
            os.close(directory)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_error(path: Path, error: OSError) -> InvalidInput:
    """The error for a full disk, a missing directory or a read-only one."""
    return InvalidInput(f"cannot write {path}: {error.strerror}; choose a folder that exists and is writable")


def write_with_digest(path: Path, payload: bytes) -> None:
    """Write a payload preceded by its SHA-256 digest, readable by the user alone."""
    write_atomically(path, hashlib.sha256(payload).digest() + payload, mode=0o600)


def read_with_digest(path: Path) -> bytes | None:
    """The payload of `write_with_digest`, or None where it does not match its digest."""
    content = path.read_bytes()
    digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def default_cache_dir() -> Path:
    """`$VPDR_CACHE`, or `~/.cache/vpdr`."""
    configured = os.environ.get("VPDR_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "vpdr"


def cache_key(*parts: object) -> str:
    """A file name for these parts: other parts give another name."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays with a digest of their bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error
    write_with_digest(path, buffer.getvalue())


def load_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of `save_arrays`, or None where the file is missing or does not match its digest."""
    try:
        payload = read_with_digest(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}; choose another cache folder") from error
    if payload is None:
        return None
    with np.load(io.BytesIO(payload), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """JSON text; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(json_safe(content), indent=1, allow_nan=False).encode() + b"\n"


def json_safe(value: Any) -> Any:
    """Nested dicts and lists that `json.dumps` accepts; NaN and infinity become None."""
    if isinstance(value, Mapping):
        return {str(key): json_safe(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def dump_toml(data: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """Nested tables of strings, numbers, booleans and lists as TOML; `tomllib` reads back an equal value."""
    plain = {key: value for key, value in data.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    lines = [f"[{'.'.join(map(_toml_key, path))}]"] if path and (plain or not tables) else []
    lines += [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in plain.items()]
    parts = ["\n".join(lines)] if lines else []
    parts += [dump_toml(value, (*path, key)) for key, value in tables.items()]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _toml_key(key: str) -> str:
    bare = key.replace("-", "").replace("_", "")
    return key if bare.isalnum() and bare.isascii() else _toml_string(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(inner) for inner in value) + "]"
    return _toml_string(value) if isinstance(value, str) else repr(value)


def _toml_string(text: str) -> str:
    """JSON strings are TOML strings, except for surrogate pairs and one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
