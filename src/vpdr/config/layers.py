"""A plan as layers of settings: preset, file, scenario, command line, method; the last that names a setting wins."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from vpdr.config import effects
from vpdr.config.config import RunConfig
from vpdr.validation import InvalidInput, deep_merge

logger = logging.getLogger("vpdr.config")
Tables = Mapping[str, Any]

_NOT_HASHED = {"run.name", "benchmark.root"}  # the identity of a plan does not cover them


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """Settings of one origin."""

    tables: Tables
    is_checked: bool = True  # whether its settings must count
    harmless: Tables | None = None  # values that need not count even where they differ from those below


def merged(layers: Sequence[Layer]) -> dict[str, Any]:
    """All settings; those of later layers win."""
    return reduce(deep_merge, (each.tables for each in layers), {})


def named_settings(layers: Sequence[Layer]) -> set[str]:
    """The paths of all settings that layers name."""
    return {path for each in layers for path, _ in effects.flatten(each.tables)}


def given_settings(layers: Sequence[Layer]) -> Iterator[tuple[int, str]]:
    """What must count, as (layer, path): set to another value than below, and not set again by a later layer."""
    for index, layer in enumerate(layers):
        if not layer.is_checked:
            continue
        changed = effects.changed_settings(layer.tables, merged(layers[:index]))
        if layer.harmless is not None:
            changed &= effects.changed_settings(layer.tables, layer.harmless)
        yield from ((index, path) for path in sorted(changed - named_settings(layers[index + 1 :])))


class GivenSettings:
    """The settings that were given to an experiment, with the configs that they decide."""

    def __init__(self) -> None:
        self._configs: dict[tuple[str, str], list[RunConfig]] = {}

    def add(self, layers: Mapping[str, Layer], config: RunConfig) -> None:
        """Add the layers of one config, by the name of their origin."""
        origins = list(layers)
        for index, path in given_settings(list(layers.values())):
            self._configs.setdefault((origins[index], path), []).append(config)

    def check(self) -> None:
        """Refuse a setting that counts in none of its configs."""
        effects.check_settings_count([(path, configs) for (_, path), configs in self._configs.items()])


def stored_values(tables: Tables, identity: str | None, presets: Sequence[Tables], source: str) -> Tables | None:
    """The values of a stored plan that need not count; None for tables that somebody wrote by hand.

    A stored plan names every setting, also those that its run did not read. Its identity tells whether it
    is as it was stored; version 0.1 stored none. In a plan that was changed since, values of a preset are
    accepted.
    """
    if not effects.is_complete(tables):
        return None
    by_presets = [effects.changed_settings(tables, preset) for preset in presets]
    own = set.intersection(*by_presets)
    if identity is not None:
        if RunConfig.from_tables(tables).config_hash == identity:
            return _only(tables, {path for path, _ in effects.flatten(tables)} - _NOT_HASHED)
        return _only(tables, {path for path, _ in effects.flatten(tables)} - own)
    if unread := sorted(own - effects.settings_read(RunConfig.from_tables(tables))):
        logger.warning("%s: no effect of %s; plans of this version refuse such settings", source, ", ".join(unread))
    return tables


def _only(tables: Tables, paths: set[str]) -> Tables:
    """The settings at these paths."""
    out: dict[str, Any] = {}
    for path, value in effects.flatten(tables):
        if path in paths:
            for key in reversed(path.split(".")):
                value = {key: value}
            out = deep_merge(out, value)
    return out


class DataDirs:
    """The directories of `--data`, by benchmark; each must be used by a config."""

    def __init__(self, directories: Mapping[str, str]) -> None:
        self._directories = directories
        self._used: set[str] = set()
        self._named: set[str] = set()

    def layer(self, named: Tables) -> Layer:
        """The benchmark and its directory, given what the plan names: its own benchmark, or that of --data."""
        kind = named.get("benchmark", {}).get("kind")
        if kind is None and len(self._directories) > 1:
            first = min(self._directories)
            raise InvalidInput(f"--data names several benchmarks, the plan none; add --set benchmark.kind={first}")
        kind = str(next(iter(self._directories), "") if kind is None else kind)
        self._named.add(kind)
        if kind not in self._directories:
            return Layer(tables={})
        self._used.add(kind)
        return Layer(tables={"benchmark": {"kind": kind, "root": self._directories[kind]}})

    def check(self) -> None:
        """Refuse a benchmark that no config uses."""
        for kind in self._directories.keys() - self._used:
            named = " and ".join(sorted(self._named))
            raise InvalidInput(
                f"--data {kind}=DIR has no effect: the plan names benchmark.kind={named}; "
                f"set benchmark.kind={kind}, or leave --data out"
            )
