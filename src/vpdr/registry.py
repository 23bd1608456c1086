"""One registry for each kind of plug-in, open to other people's packages (entry points) and to single files."""

import hashlib
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from vpdr.validation import InvalidInput, format_error, suggestion

T = TypeVar("T")
PLUGINS_VAR = "VPDR_PLUGINS"  # the files of this process and of those that it starts, separated as in PATH


class UnknownPlugIn(InvalidInput, KeyError):
    """A name that a registry does not have."""

    __str__ = Exception.__str__  # a KeyError would put the message into quotes


class Registry(Mapping[str, T]):
    """Named plug-ins of one kind: those of this package, of installed packages and of plug-in files, registered ones.

    Another package adds a plug-in without any change here:

        [project.entry-points."vpdr.mechanisms"]
        mine = "my_package:MyMechanism"

    So does a Python file that calls `register`: see `load_plugin`. Entry points, and the files that the
    environment variable VPDR_PLUGINS names, are loaded when the registry is first read, so that importing vpdr
    imports nobody else.

    Args:
        kind: what one entry is called in messages, such as `mechanism`; the entry point group is its plural.
        entries: the built-in plug-ins by name.
        check: called with the name and the entry of others' plug-ins; raises InvalidInput for one that cannot work.

    >>> colours = Registry("colour", {"red": 1})
    >>> colours.register("blue", 2)
    2
    >>> sorted(colours), colours["blue"]
    (['blue', 'red'], 2)
    """

    def __init__(self, kind: str, entries: Mapping[str, T], check: Callable[[str, T], None] | None = None) -> None:
        self.kind, self.group, self._check = kind, f"vpdr.{kind}s", check
        self.builtin = tuple(entries)  # the names of this package
        self._entries = dict(entries)
        self._loaded = False

    def register(self, name: str, entry: T) -> T:
        """Add a plug-in under a new name and return it.

        Raises:
            InvalidInput: the name is taken, or the plug-in lacks what its kind needs.
        """
        if name in self._all():
            raise InvalidInput(f"{self.kind} {name!r} is registered already; choose another name")
        if self._check is not None:
            self._check(name, entry)
        self._entries[name] = entry
        if _files_being_loaded:
            _files_being_loaded[-1].entries.append((self, name))
        return entry

    def unregister(self, name: str) -> None:
        """Remove a plug-in, for tests and notebooks that register one again."""
        (self._entries if name in self._entries else self._all()).pop(name)

    def _all(self) -> dict[str, T]:
        _load_files_of_environment()
        loaded: dict[str, T] = {}
        for point in () if self._loaded else metadata.entry_points(group=self.group):
            self._loaded = True  # first: a plug-in may read the registry while it is imported
            try:
                if point.name in self._entries or point.name in loaded:
                    raise InvalidInput("its name is registered already")
                entry = point.load()
                if self._check is not None:
                    self._check(point.name, entry)
                loaded[point.name] = entry
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
            message = (
                f"{self.kind} {name!r} is registered in another process only; "
                "use jobs=1 or an entry point, or load it from a file (vpdr.load_plugin)"
            )
        raise UnknownPlugIn(message)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


@dataclass(frozen=True, slots=True)
class PluginFile:
    """A Python file that registers plug-ins, as it was loaded."""

    path: Path
    digest: str  # SHA-256 of its content, in hexadecimal digits
    entries: list[tuple[Registry[Any], str]]  # what it has registered

    @property
    def description(self) -> str:
        """What the file registers: `mechanism mine, method mine`."""
        return ", ".join(f"{registry.kind} {name}" for registry, name in self.entries)


_files: dict[Path, PluginFile] = {}
_files_being_loaded: list[PluginFile] = []
_variable_read = ""  # the last value of the environment variable whose files were loaded


def load_plugin(file: Path | str) -> PluginFile:
    """Load a Python file that registers plug-ins, here and in the processes that this one starts.

    It is what `--plugin FILE` does. The file calls `register` of a registry at its top level, such as
    `vpdr.MECHANISMS.register("mine", Mine)`. A file that was changed since is loaded again.

    Args:
        file: the path of the file.

    Returns:
        The file with its digest, and what it has registered.

    Raises:
        InvalidInput: it cannot be read, fails, or registers nothing; the message names the line.

    Guarantee: none. The file is code that runs with all rights of this process, and what a mechanism in it states of
    its privacy is its author's statement.

    >>> import tempfile
    >>> text = "import vpdr\\nvpdr.METHODS.register('quiet', {'budget': {'epsilon': 0.5}})"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "quiet.py"
    ...     _ = path.write_text(text)
    ...     plugin = load_plugin(path)
    >>> plugin.description
    'method quiet'
    >>> unload_plugin(path)
    """
    path = Path(file).expanduser().resolve()
    content = _read_plugin(path)
    digest = hashlib.sha256(content).hexdigest()
    if path not in _files or _files[path].digest != digest:
        if path in _files:
            unload_plugin(path)
        _files[path] = _execute(path, content, digest)
    names = _files_in_variable()
    if str(path) not in names:
        os.environ[PLUGINS_VAR] = os.pathsep.join([*names, str(path)])
    return _files[path]


def unload_plugin(file: Path | str) -> None:
    """Remove what a plug-in file has registered, for tests and notebooks.

    Args:
        file: the path that was given to `load_plugin`; one that is not loaded is ignored.
    """
    path = Path(file).expanduser().resolve()
    names = [name for name in _files_in_variable() if Path(name).resolve() != path]
    os.environ[PLUGINS_VAR] = os.pathsep.join(names)
    if path in _files:
        _remove_entries(_files.pop(path))


def loaded_plugins() -> list[PluginFile]:
    """The plug-in files of this process, in the order in which they were loaded."""
    _load_files_of_environment()
    return list(_files.values())


def load_stored_plugins(files: Mapping[str, str]) -> None:
    """Load the plug-in files that a stored plan names, by path, if they are those that it was run with.

    A file that is loaded from another path counts by its content. A changed file is not executed.
    """
    for name, digest in files.items():
        if digest in {each.digest for each in loaded_plugins()}:
            continue
        if not Path(name).is_file():
            raise InvalidInput(f"plug-in {name} of this plan is missing; put it back, or name its copy: --plugin FILE")
        found = hashlib.sha256(_read_plugin(Path(name))).hexdigest()
        if found != digest:
            raise InvalidInput(
                f"plug-in {name} was changed since this plan was stored (SHA-256 {found[:12]}, then {digest[:12]}); "
                "put the old file back, or start a new run with --plugin"
            )
        load_plugin(name)


def _files_in_variable() -> list[str]:
    return [name for name in os.environ.get(PLUGINS_VAR, "").split(os.pathsep) if name]


def _load_files_of_environment() -> None:
    global _variable_read
    value = os.environ.get(PLUGINS_VAR, "")
    if value == _variable_read:
        return
    before, _variable_read = _variable_read, value  # first: a plug-in reads registries while it is imported
    try:
        for name in _files_in_variable():
            if Path(name).resolve() not in _files:
                load_plugin(name)
    except InvalidInput:
        _variable_read = before  # so that the next read fails in the same way
        raise


def _read_plugin(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read plug-in {path}: {error.strerror}; expected a Python file") from error


def _execute(path: Path, content: bytes, digest: str) -> PluginFile:
    """Run a plug-in file as a module. What runs is what the digest is of: no compiled copy of another version."""
    module = ModuleType(f"vpdr_plugin_{path.stem}_{digest[:8]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    plugin = PluginFile(path, digest, [])
    _files[path] = plugin  # a registry that it reads must not load it again
    _files_being_loaded.append(plugin)
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
        if not plugin.entries:
            raise InvalidInput('it registers nothing; call vpdr.MECHANISMS.register("mine", Mine) or the like')
    except (Exception, SystemExit) as error:
        _remove_entries(_files.pop(path))
        message = error.msg if isinstance(error, SyntaxError) else format_error(error)  # type: ignore[arg-type]
        raise InvalidInput(f"plug-in {path}{_line_of(error, path)}: {message}") from error
    finally:
        _files_being_loaded.pop()
    return plugin


def _line_of(error: BaseException, path: Path) -> str:
    """The last line of the file that an error passed through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f", line {lines[-1]}" if lines else ""


def _remove_entries(plugin: PluginFile) -> None:
    for registry, name in plugin.entries:
        registry.unregister(name)
    plugin.entries.clear()
