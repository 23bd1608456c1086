"""Values from files and command lines: are they of the right kind, and are their names known?"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from vpdr.errors import InvalidInput


def known(what: str, given: Iterable[str], allowed: Iterable[str], also: Iterable[str] = ()) -> None:
    """Refuse a name that nobody knows, and suggest the one that was probably meant (`also` among others)."""
    names = list(allowed)
    for name in given:
        if name not in names:
            raise InvalidInput(f"unknown {what}: {name!r}; {suggestion(name, [*names, *also])}")


def suggestion(name: str, names: Iterable[str]) -> str:
    """'did you mean ...?' or the whole list."""
    close = difflib.get_close_matches(name, [str(each) for each in names], n=1)
    return f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(sorted(names))}"


def fitted(name: str, value: Any, kind: Any) -> Any:
    """The value as its field wants it; an integer is fine where a float is expected."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = {int: int, float: float, str: str, bool: bool}.get(kind)
    wrong_number = isinstance(value, bool) and kind in (int, float)
    if plain is not None and (not isinstance(value, plain) or wrong_number):
        raise InvalidInput(f"{name} must be {_WORDS[kind]}, got {value!r}")
    if kind == list[str]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidInput(f'{name} must be a list of names such as ["a", "b"], got {value!r}')
        return value
    if plain is None and not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be a table, got {value!r}")
    return value


_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def assigned(text: str) -> tuple[list[str], Any]:
    """`section.key=value` as a path and a value; a bare word is a text."""
    path, equals, raw = text.partition("=")
    keys = path.strip().split(".")
    if not equals or len(keys) < 2 or not all(keys):
        raise InvalidInput(f"--set needs section.key=value, got {text!r}; for example --set budget.epsilon=1")
    try:
        return keys, tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return keys, raw.strip()


def wished(settings: Iterable[str]) -> dict[str, Any]:
    """Several `section.key=value` as nested tables, the last one winning."""
    wanted: dict[str, Any] = {}
    for text in settings:
        keys, value = assigned(text)
        wanted = merged(wanted, nested(keys, value))
    return wanted


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables, the second winning."""
    out = dict(base)
    for key, value in over.items():
        inner = out.get(key)
        out[key] = (
            merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
        )
    return out


def nested(keys: list[str], value: Any) -> dict[str, Any]:
    """A value at the end of a path of tables."""
    for key in reversed(keys):
        value = {key: value}
    return dict(value)
