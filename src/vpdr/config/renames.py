"""Settings that were renamed: old names and values are read for one more version, with a hint."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from vpdr.validation import InvalidInput

logger = logging.getLogger("vpdr.config")  # prints hints on stderr unless the application configures logging

RENAMED_SETTINGS = {
    "framework.fedpcl.absent": "framework.fedpcl.missing_class_rule",
    "framework.fedpcl.sharpness": "framework.fedpcl.temperature",
    "framework.fpl.sharpness": "framework.fpl.temperature",
    "framework.fedplvm.sharpness": "framework.fedplvm.temperature",
    "framework.fedplvm.normalised": "framework.fedplvm.mean_correction",
    "framework.fedplvm.variant": "framework.fedplvm.positive_reduction",
}
RENAMED_VALUES = {"release.encoder": {"transcript": "broadcast"}, "regulariser.kind": {"plain": "none"}}
RENAMED_KEYS = {"settings": "scenarios", "arms": "custom_methods"}  # top-level keys of experiment files
RETIRED_SETTINGS = {"mechanism.metric": "plain"}  # the only value that is still read, and ignored


def modernise(data: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of settings in the present spelling; renamed and retired settings give a hint, or InvalidInput."""
    for path, ignored in RETIRED_SETTINGS.items():
        section, key = path.split(".")
        table = data.get(section)
        if isinstance(table, Mapping) and key in table:
            if table[key] != ignored:
                raise InvalidInput(f"{path}={table[key]} was removed, only {path}={ignored} is left; leave it out")
            logger.warning("%s has no effect any more; leave it out", path)
            data = {**data, section: {name: value for name, value in table.items() if name != key}}
    return rename_settings(data, hint=_log_rename)


def rename_settings(
    data: Mapping[str, Any], *, hint: Callable[[str, str], None] = lambda _old, _new: None
) -> dict[str, Any]:
    """Tables of settings with present names and values, as in a stored record; retired ones are left."""
    return _mapped(data, RENAMED_SETTINGS, RENAMED_VALUES, hint)


def legacy_spelling(data: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of settings with the old names and values: what a config's hash is computed from."""
    values = {path: {new: old for old, new in names.items()} for path, names in RENAMED_VALUES.items()}
    return _mapped(data, {new: old for old, new in RENAMED_SETTINGS.items()}, values, lambda _old, _new: None)


def rename_keys(content: Mapping[str, Any], names: Mapping[str, str] = RENAMED_KEYS) -> dict[str, Any]:
    """A table, such as an experiment file, with the present names of its top-level keys."""
    out = dict(content)
    for old, new in names.items():
        if old in out:
            if new in out:
                raise InvalidInput(f"{old} is the old name of {new}; give only {new}")
            _log_rename(old, new)
            out[new] = out.pop(old)
    return out


def _log_rename(old: str, new: str) -> None:
    logger.warning("%s is now %s; the old spelling is accepted for one more version", old, new)


def _mapped(
    data: Mapping[str, Any],
    names: Mapping[str, str],
    values: Mapping[str, Mapping[str, str]],
    hint: Callable[[str, str], None],
    prefix: str = "",
) -> dict[str, Any]:
    """Nested tables with other names and values; `hint` is called with the old and the new one of each."""
    out: dict[str, Any] = {}
    for key, value in data.items():
        path = f"{prefix}{key}"
        new_path = names.get(path, path)
        new_key = new_path.rpartition(".")[2]
        if new_key != key and new_key in data:
            raise InvalidInput(f"{path} and {new_path} are one setting under two names; give only {new_path}")
        new_value = values.get(path, {}).get(value, value) if isinstance(value, str) else value
        if isinstance(value, Mapping):
            new_value = _mapped(value, names, values, hint, f"{path}.")
        elif new_key != key:
            hint(path, new_path)
        elif new_value != value:
            hint(f"{path}={value}", f"{path}={new_value}")
        out[new_key] = new_value
    return out
