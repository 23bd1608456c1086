"""Files: atomic writes, a cache of arrays, TOML, and JSON of dataclasses."""

import fcntl
import hashlib
import io
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from vpdr.validation import DamagedFile, InvalidInput

T = TypeVar("T")
_DIGEST_SIZE = hashlib.sha256().digest_size
_UNFINISHED = ".part"  # the end of the name of a file that is being written


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
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{_UNFINISHED}")
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


def remove_unfinished(path: Path) -> None:
    """Remove what writers of `path` that were killed have left; call it where no other writer can be at work."""
    prefix = f".{path.name}."
    for name in os.listdir(path.parent):
        if name.startswith(prefix) and name.endswith(_UNFINISHED) and len(name) == len(prefix) + 12 + len(_UNFINISHED):
            (path.parent / name).unlink(missing_ok=True)


@contextmanager
def exclusive_lock(path: Path, *, create: bool = True, blocking: bool = True) -> Iterator[None]:
    """Hold `flock` on the file that this path names; BlockingIOError where another process has it.

    A file that was removed or replaced while this process waited is not what others lock: then it is opened anew.
    """
    flags = os.O_RDWR | (os.O_CREAT if create else 0)
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
            if _names(path, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _names(path: Path, descriptor: int) -> bool:
    """Whether the path still names the file that is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


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


def json_bytes(content: object) -> bytes:
    """JSON text; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(json_safe(content), indent=1, allow_nan=False).encode() + b"\n"


def json_safe(value: Any) -> Any:
    """Nested dicts and lists that `json.dumps` accepts; NaN and infinity become None.

    A dataclass becomes a dict of its fields in their order; a field whose default is None is left out where it is None.
    """
    if is_dataclass(value):
        optional = {field.name for field in fields(value) if field.default is None}
        members = {field.name: getattr(value, field.name) for field in fields(value)}
        value = {key: inner for key, inner in members.items() if inner is not None or key not in optional}
    if isinstance(value, Mapping):
        return {str(key): json_safe(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> Any:
    """The content of a JSON file; InvalidInput if it cannot be read, DamagedFile if it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DamagedFile(f"{path} is not whole; remove it and run again") from error


def from_json(kind: type[T], data: object, name: str) -> T:
    """The inverse of `json_safe` for a dataclass, by the types of its fields; `name` is what error messages call it.

    Raises InvalidInput where a key is missing or unknown, or a value has another type.
    """
    parsed: T = _parse(kind, data, name)
    return parsed


def _parse(kind: Any, value: Any, name: str) -> Any:
    """A value of a dataclass, `Mapping[str, X]`, `tuple[X, ...]`, `X | None` or a plain type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else _parse(arguments[0], value, name)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        types = _field_types(kind)
        required = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
        wrong = [f"lacks {key}" for key in required if key not in value]
        wrong += [f"has the unknown key {key}" for key in value if key not in types]
        if wrong:
            raise InvalidInput(f"{name} {wrong[0]}: it is damaged or of another version; make it again")
        return kind(**{key: _parse(types[key], inner, f"{name}: {key}") for key, inner in value.items()})
    if origin is Mapping and isinstance(value, Mapping):
        return {key: _parse(arguments[1], inner, f"{name}: {key}") for key, inner in value.items()}
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_parse(arguments[0], inner, name) for inner in value)
    if kind is float and value is None:
        return math.nan  # as which it was written
    if kind is Any or (origin is None and isinstance(value, int | float if kind is float else kind)):
        return value
    raise InvalidInput(f"{name} is {str(value)[:40]!r}: it is damaged or of another version; make it again")


_field_types = cache(get_type_hints)


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
