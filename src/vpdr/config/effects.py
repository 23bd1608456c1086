"""Every setting counts or is refused: a value that nothing reads, and what would make it count.

Which settings count follows from what `vpdr.config.resolve` reads, and what would make one count is found by
trying other values of those settings that have few. No setting is named here.
"""

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any, TypeAlias

from vpdr.config import reading, resolve, rules
from vpdr.config.config import DEFAULTED_LATER, RunConfig, SettingInfo, all_settings
from vpdr.validation import InvalidInput

_NO_DEFAULT = object()
_MAX_REMEDIES, _MAX_VALUES = 2, 4  # that one line names
_MAX_CONFIGS = 8  # of a comparison, in which a remedy is searched

Remedy: TypeAlias = tuple[tuple[str, Any], ...]  # settings to change, with their values


def settings_read(config: RunConfig) -> set[str]:
    """The settings that decide a run of this config, such as `budget.epsilon` or `framework.fedproto.weight`."""
    read: set[str] = set()
    resolve.resolve(reading.noting(config, read.add))
    return read


def _settings_read_if_possible(config: RunConfig) -> set[str]:
    """As `settings_read`, as far as a config that may not fit together can be resolved."""
    read: set[str] = set()
    with suppress(InvalidInput, ValueError, LookupError):
        resolve.resolve(reading.noting(config, read.add))
    return read


def is_complete(data: Mapping[str, Any]) -> bool:
    """Whether tables name every setting, as a stored plan does; settings of later versions may be missing."""
    later = {f"{section}.{name}" for section, name, _ in DEFAULTED_LATER}
    return all(each.name in (data.get(each.section) or {}) for each in all_settings() if each.path not in later)


def changed_settings(data: Mapping[str, Any], below: Mapping[str, Any]) -> set[str]:
    """The paths of settings whose value is another than in the tables below, or than the default."""
    return {path for path, value in flatten(data) if value != _value_below(path, below)}


def flatten(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each setting of some tables with its path; options of plug-ins have three parts."""
    known = {each.path for each in all_settings()}
    for section, table in data.items():
        for key, value in table.items():
            path = f"{section}.{key}"
            if path not in known and isinstance(value, Mapping):
                yield from ((f"{path}.{name}", inner) for name, inner in value.items())
            else:
                yield path, value


def _value_below(path: str, below: Mapping[str, Any]) -> Any:
    value: Any = below
    for key in path.split("."):
        value = value.get(key, _NO_DEFAULT) if isinstance(value, Mapping) else _NO_DEFAULT
    return _default(path) if value is _NO_DEFAULT else value


def _default(path: str) -> Any:
    """The value of a setting that nobody names."""
    section, *names = path.split(".")
    if len(names) == 1:
        return next((each.default for each in all_settings() if each.path == path), _NO_DEFAULT)
    plug_in, name = rules.PLUGINS[section][names[0]], names[1]
    with suppress(TypeError, ValueError):
        parameter = inspect.signature(plug_in).parameters.get(name)
        return _NO_DEFAULT if parameter is None else parameter.default
    return _NO_DEFAULT


def check_settings_count(given: Iterable[tuple[str, Sequence[RunConfig]]]) -> None:
    """Refuse a setting that none of the configs in which it was given reads, with a remedy in one line."""
    read: dict[int, set[str]] = {}
    for path, configs in given:
        for config in configs:
            if id(config) not in read:
                read[id(config)] = settings_read(config)
        if not any(path in read[id(config)] for config in configs):
            raise InvalidInput(no_effect(path, configs))


def no_effect(path: str, configs: Sequence[RunConfig]) -> str:
    """Why a setting changes nothing in these configs, and which other settings would make it count in one of them."""
    found = [(config, remedies) for config in configs[:_MAX_CONFIGS] if (remedies := _remedies(path, config))]
    if not found:
        return f"{path} has no effect on this run; leave it out"
    config, remedies = min(found, key=lambda each: len(each[1][0]))  # the fewest changes
    names = list(dict.fromkeys(name for remedy in remedies for name, _ in remedy))[:_MAX_REMEDIES]
    now = [f"{name}={value}" for name in names if (value := _value_of(config, name)) not in ("", [], {})]
    because = f" with {' and '.join(now)}" if now else ""
    return f"{path} has no effect{because}; {_describe(remedies)}, or leave it out"


def _describe(remedies: Sequence[Remedy]) -> str:
    """`it counts with a=1 or 2, or with b=3`; a remedy of two changes is `with a=1 and b=3`."""
    if len(remedies[0]) > 1:
        return f"it counts with {' and '.join(f'{name}={value}' for name, value in remedies[0])}"
    values: dict[str, list[str]] = {}
    for ((name, value),) in remedies:
        values.setdefault(name, []).append("" if value in ("", [], {}) else str(value))
    texts = []
    for name, listed in list(values.items())[:_MAX_REMEDIES]:
        more = " or others" if len(listed) > _MAX_VALUES else ""
        texts.append(f"with {name}={' or '.join(listed[:_MAX_VALUES])}{more}" if all(listed) else f"without {name}")
    return f"it counts {', or '.join(texts)}"


def _remedies(path: str, config: RunConfig) -> list[Remedy]:
    """Changes of one other setting under which this one is read, or else the first change of two."""
    changes = [change for change in _changes(config) if change[0] != path]
    section = path.partition(".")[0]
    # its own section first, and there what changes less than the kind
    changes.sort(key=lambda change: (not change[0].startswith(f"{section}."), change[0].endswith(".kind")))
    single: list[Remedy] = [(change,) for change in changes if _counts(path, config, (change,))]
    if single:
        return single
    pairs = (pair for pair in combinations(changes, 2) if pair[0][0] != pair[1][0])
    return next(([pair] for pair in pairs if _counts(path, config, pair)), [])


def _changes(config: RunConfig) -> Iterator[tuple[str, Any]]:
    """Other values of the settings that have few, and the default of those that have another value."""
    for each in all_settings():
        value = getattr(getattr(config, each.section), each.name)
        others = each.choices or ([each.default] if _is_text_or_table(each) else [])
        yield from ((each.path, other) for other in others if other != value)


def _is_text_or_table(setting: SettingInfo) -> bool:
    return not isinstance(setting.default, int | float)


def _counts(path: str, config: RunConfig, changes: Iterable[tuple[str, Any]]) -> bool:
    sections = {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}
    try:
        for name, value in changes:
            section, key = name.split(".")
            sections[section] = dataclasses.replace(sections[section], **{key: value})
    except InvalidInput:
        return False
    changed = object.__new__(RunConfig)  # not checked: a remedy may need another one beside it
    for name, section_value in sections.items():
        object.__setattr__(changed, name, section_value)
    return path in _settings_read_if_possible(changed)


def _value_of(config: RunConfig, path: str) -> Any:
    section, key = path.split(".")
    return getattr(getattr(config, section), key)
