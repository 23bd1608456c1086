"""Which settings the code reads: copies of a config that note each setting, and values that are computed when read."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

T = TypeVar("T")
Note = Callable[[str], None]


class _Noting:
    """The base of noting copies; what a copy needs is kept beside its fields."""

    __slots__ = ()


@lru_cache(maxsize=64)
def _noting_class(cls: Any) -> Any:
    names = _field_names(cls)

    def read(self: Any, name: str) -> Any:
        if name in names:
            object.__getattribute__(self, "_note")(name)
        return object.__getattribute__(self, name)

    return type("NotingCopy", (_Noting, cls), {"__getattribute__": read})


def _field_names(cls: Any) -> frozenset[str]:
    return frozenset(each.name for each in dataclasses.fields(cls))


def _noting_copy(original: T, values: Mapping[str, Any], note: Note) -> T:
    copy = object.__new__(_noting_class(cast(Any, type(original))))
    for name, value in {**values, "_note": note, "_original": original}.items():
        object.__setattr__(copy, name, value)
    return cast(T, copy)


def noting(config: T, note: Note) -> T:
    """A copy of a config that calls `note` with each setting that is read, such as `budget.epsilon`.

    The options of a plug-in are noted one by one (`framework.fedproto.weight`); `without_notes` is the way
    back. The copy is not checked again.
    """

    def section_copy(name: str) -> Any:
        section = getattr(config, name)
        fields = {each.name: getattr(section, each.name) for each in dataclasses.fields(section)}
        if "options" in fields:
            tables = fields["options"].items()
            options = {kind: _NotingTable(table, f"{name}.{kind}", note) for kind, table in tables}
            fields["options"] = options
        return _noting_copy(section, fields, lambda setting: note(f"{name}.{setting}"))

    names = [each.name for each in dataclasses.fields(cast(Any, config))]
    return _noting_copy(config, {name: section_copy(name) for name in names}, lambda _section: None)


def without_notes(config: T) -> T:
    """The config itself: for what is recorded or only checked, and decides no result."""
    return cast(T, object.__getattribute__(config, "_original")) if isinstance(config, _Noting) else config


class _NotingTable(Mapping[str, Any]):
    """A table of options that notes the names that are read."""

    def __init__(self, table: Mapping[str, Any], path: str, note: Note) -> None:
        self._table, self._path, self._note = table, path, note

    def __getitem__(self, name: str) -> Any:
        value = self._table[name]
        self._note(f"{self._path}.{name}")
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class PlugInOptions(Mapping[str, Any]):
    """The options of one plug-in: the settings of its section, and those in the table of its name.

    A setting is read when its option is. `names` limits the options; None: all.
    """

    def __init__(self, section: Any, kind: str, names: Collection[str] | None = None) -> None:
        self._section, self._own = section, section.options.get(kind, {})
        shared = [
            each.name for each in dataclasses.fields(section) if each.name not in {"kind", "options", "clip_norm"}
        ]
        self._names = [
            name for name in {**dict.fromkeys(shared), **dict.fromkeys(self._own)} if names is None or name in names
        ]
        self.names_read: set[str] = set()  # or asked for

    def __getitem__(self, name: str) -> Any:
        self.names_read.add(name)
        if name not in self._names:
            raise KeyError(name)
        return self._own[name] if name in self._own else getattr(self._section, name)

    def __contains__(self, name: object) -> bool:
        self.names_read.add(str(name))
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@lru_cache(maxsize=8)
def _lazy_class(cls: Any) -> Any:
    names = _field_names(cls)

    def read(self: Any, name: str) -> Any:
        if name in names:
            return object.__getattribute__(self, "_sources")[name]()
        return object.__getattribute__(self, name)

    return type("Lazy", (cls,), {"__getattribute__": read})


def lazily(cls: type[T], **sources: Callable[[], Any]) -> T:
    """An instance of a dataclass whose fields, all of them given here, are computed when they are read.

    So a plug-in reads only those settings that it uses.
    """
    instance = object.__new__(_lazy_class(cast(Any, cls)))
    object.__setattr__(instance, "_sources", sources)
    return cast(T, instance)
