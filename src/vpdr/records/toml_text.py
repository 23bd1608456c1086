"""Plans as TOML text, so that what ran can be run again."""

import json
from collections.abc import Mapping
from typing import Any


def toml_text(data: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """Nested tables of texts, numbers, booleans and lists; what `tomllib` reads back is equal."""
    plain = {key: value for key, value in data.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    lines = [f"[{'.'.join(map(_key, path))}]"] if path and (plain or not tables) else []
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    parts = ["\n".join(lines)] if lines else []
    parts += [toml_text(value, (*path, key)) for key, value in tables.items()]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _key(key: str) -> str:
    bare = key.replace("-", "").replace("_", "")
    return key if bare.isalnum() and bare.isascii() else _quoted(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """JSON's quotes are TOML's, but for pairs of surrogates and for one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
