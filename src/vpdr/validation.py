"""Errors that a user can fix, and checks of settings that raise them.

Each has a one-line message: what was expected, what came, what to do.
"""

import difflib
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, get_origin

MAX_ERROR_LENGTH = 300  # characters of the message of a foreign error
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


class VpdrError(Exception):
    """The base of all errors that the command line shows without a traceback."""


class InvalidInput(VpdrError, ValueError):
    """A value that cannot be used as it is."""


class DamagedFile(VpdrError):
    """A file that exists but cannot be trusted; it is never treated as empty."""


def format_error(error: Exception) -> str:
    """The error on one line; an error that is not a `VpdrError` is prefixed by its class."""
    text = " ".join(str(error).split())
    if isinstance(error, VpdrError):
        return text
    kind = type(error).__name__
    return f"{kind}: {text[:MAX_ERROR_LENGTH]}" if text else kind


def positive(**settings: float) -> None:
    """Refuse a setting that is not above zero and finite."""
    for name, value in settings.items():
        if not 0 < value < float("inf"):
            raise InvalidInput(f"{name} must be positive, got {value:g}")


def at_least(least: float, **settings: float) -> None:
    """Refuse a setting below a bound."""
    for name, value in settings.items():
        if not value >= least:
            raise InvalidInput(f"{name} must be at least {least:g}, got {value:g}")


def at_least_0_below_1(**settings: float) -> None:
    """Refuse a setting outside [0, 1)."""
    for name, value in settings.items():
        if not 0 <= value < 1:
            raise InvalidInput(f"{name} must lie in [0, 1), got {value:g}")


def above_0_at_most_1(**settings: float) -> None:
    """Refuse a setting outside (0, 1]."""
    for name, value in settings.items():
        if not 0 < value <= 1:
            raise InvalidInput(f"{name} must lie in (0, 1], got {value:g}")


def one_of(allowed: Sequence[str], **settings: str) -> None:
    """Refuse a value that is not one of the allowed ones."""
    for name, value in settings.items():
        if value not in allowed:
            raise InvalidInput(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def check_known(
    what: str, values: Iterable[str], allowed: Iterable[str], other_suggestions: Iterable[str] = ()
) -> None:
    """Refuse an unknown name, and suggest the closest known one.

    Args:
        what: what the names are called in the message.
        other_suggestions: names that are not allowed here but may be meant.
    """
    names = list(allowed)
    for name in values:
        if name not in names:
            raise InvalidInput(f"unknown {what}: {name!r}; {suggestion(name, [*names, *other_suggestions])}")


def suggestion(name: str, names: Collection[str]) -> str:
    """'did you mean ...?', or the list of all names."""
    if not names:
        return "there are none, leave it out"
    close = difflib.get_close_matches(name, [str(each) for each in names], n=1)
    return f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(sorted(names))}"


def coerce(name: str, value: Any, expected_type: Any) -> Any:
    """Check the type of a setting, if it is a simple one; an integer is converted where a float is expected."""
    if expected_type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = {int: int, float: float, str: str, bool: bool}.get(expected_type)
    wrong_number = isinstance(value, bool) and expected_type in (int, float)
    if plain is not None and (not isinstance(value, plain) or wrong_number):
        raise InvalidInput(f"{name} must be {_TYPE_NAMES[expected_type]}, got {value!r}")
    is_names = isinstance(value, list) and all(isinstance(each, str) for each in value)
    if expected_type == list[str] and not is_names:
        raise InvalidInput(f'{name} must be a list of names such as ["a", "b"], got {value!r}')
    if dict in (expected_type, get_origin(expected_type)) and not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be a table, got {value!r}")
    return value


def parse_override(text: str) -> tuple[list[str], Any]:
    """`section.key=value` as a list of keys and a TOML value; what is not TOML is a string."""
    path, equals, raw = text.partition("=")
    keys = path.strip().split(".")
    if not equals or len(keys) < 2 or not all(keys):
        raise InvalidInput(f"--set needs section.key=value, got {text!r}; for example --set budget.epsilon=1")
    try:
        return keys, tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return keys, raw.strip()


def parse_overrides(settings: Iterable[str]) -> dict[str, Any]:
    """Several `section.key=value` as nested tables; later ones win."""
    tables: dict[str, Any] = {}
    for text in settings:
        keys, value = parse_override(text)
        for key in reversed(keys):
            value = {key: value}
        tables = deep_merge(tables, value)
    return tables


def deep_merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The union of nested tables; `overrides` wins."""
    out = dict(base)
    for key, value in overrides.items():
        inner = out.get(key)
        out[key] = deep_merge(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return out
