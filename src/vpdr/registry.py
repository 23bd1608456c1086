"""One registry for each kind of plug-in, open to other people's packages through entry points."""

from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import TypeVar

from vpdr.validation import InvalidInput

T = TypeVar("T")


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
        if not self._loaded:
            self._loaded = True  # first: a plug-in may read the registry while it is imported
            for point in metadata.entry_points(group=self.group):
                if point.name in self._entries:
                    raise InvalidInput(
                        f"{self.kind} {point.name!r} of {point.value} is registered already; "
                        "rename the entry point, or remove the package"
                    )
                self._entries[point.name] = point.load()
        return self._entries

    def __getitem__(self, name: str) -> T:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
