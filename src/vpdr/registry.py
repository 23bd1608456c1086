"""One registry for each kind of plug-in, open to other people's packages through entry points."""

import multiprocessing
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import TypeVar

from vpdr.validation import InvalidInput, format_error, suggestion

T = TypeVar("T")


class UnknownPlugIn(InvalidInput, KeyError):
    """A name that a registry does not have."""

    __str__ = Exception.__str__  # a KeyError would put the message into quotes


class Registry(Mapping[str, T]):
    """Named plug-ins of one kind: those of this package, registered ones, and those of installed packages.

    Another package adds a plug-in without any change here:

        [project.entry-points."vpdr.mechanisms"]
        mine = "my_package:MyMechanism"

    Entry points are loaded when the registry is first read, so that importing vpdr imports nobody else.

    Args:
        kind: what one entry is called in messages, such as `mechanism`; the entry point group is its plural.
        entries: the built-in plug-ins by name.

    >>> colours = Registry("colour", {"red": 1})
    >>> colours.register("blue", 2)
    2
    >>> sorted(colours), colours["blue"]
    (['blue', 'red'], 2)
    """

    def __init__(self, kind: str, entries: Mapping[str, T]) -> None:
        self.kind, self.group = kind, f"vpdr.{kind}s"
        self._entries = dict(entries)
        self._loaded = False

    def register(self, name: str, entry: T) -> T:
        """Add a plug-in under a new name and return it.

        Raises:
            InvalidInput: the name is taken.
        """
        if name in self._all():
            raise InvalidInput(f"{self.kind} {name!r} is registered already; choose another name")
        self._entries[name] = entry
        return entry

    def unregister(self, name: str) -> None:
        """Remove a plug-in, for tests and notebooks that register one again."""
        self._all().pop(name)

    def _all(self) -> dict[str, T]:
        loaded: dict[str, T] = {}
        for point in () if self._loaded else metadata.entry_points(group=self.group):
            self._loaded = True  # first: a plug-in may read the registry while it is imported
            try:
                if point.name in self._entries or point.name in loaded:
                    raise InvalidInput("its name is registered already")
                loaded[point.name] = point.load()
            except Exception as error:
                self._loaded = False
                raise InvalidInput(
                    f"{self.kind} {point.name!r} of {point.value} cannot be loaded ({format_error(error)}); "
                    "change or remove its package"
                ) from error
        self._loaded = True
        self._entries |= loaded
        return self._entries

    def __getitem__(self, name: str) -> T:
        entries = self._all()
        if name in entries:
            return entries[name]
        message = f"unknown {self.kind}: {name!r}; {suggestion(name, entries)}"
        if multiprocessing.parent_process() is not None:
            message = f"{self.kind} {name!r} is registered in another process only; use jobs=1 or an entry point"
        raise UnknownPlugIn(message)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
