"""Where plans come from: names that are built in, and files of the user's own."""

import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from vpdr.errors import InvalidInput
from vpdr.plan.values import suggestion

KEYS: dict[str, tuple[type, str]] = {
    "title": (str, "a text"),
    "preset": (str, "the name of a preset"),
    "seeds": (list, "a list of whole numbers"),
    "methods": (list, "a list of names"),
    "baseline": (str, "the name of a method"),
    "settings": (dict, "a table of tables"),
    "arms": (dict, "a table of tables"),
}
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def read_source(source: str) -> dict[str, Any]:
    """The content of a built-in name or of a file."""
    path = Path(source)
    if path.suffix == ".toml" or path.is_file():
        return _parsed(path)
    if source in presets():
        return {"preset": source}
    if source in experiments():
        return read_builtin("experiments", source)
    names = [*presets(), *experiments()]
    raise InvalidInput(f"no plan or file named {source!r}; {suggestion(source, names)}")


def presets() -> list[str]:
    """The built-in presets."""
    return _names("presets")


def experiments() -> list[str]:
    """The built-in experiments."""
    return [name for name in _names("experiments") if name != "methods"]


def _names(folder: str) -> list[str]:
    files = (resources.files("vpdr.plan") / folder).iterdir()
    return sorted(Path(file.name).stem for file in files if file.name.endswith(".toml"))


def read_builtin(folder: str, name: str) -> dict[str, Any]:
    """A TOML file that comes with the package."""
    return tomllib.loads((resources.files("vpdr.plan") / folder / f"{name}.toml").read_text())


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not valid TOML: {error}") from error


def checked(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of a file whose top-level keys are of the right kind; sections are checked by the plan."""
    for key, (kind, words) in KEYS.items():
        if key in content and not isinstance(content[key], kind):
            raise InvalidInput(f"{key} must be {words}, got {content[key]!r}")
    for name in content.get("methods", []):
        if not isinstance(name, str):
            raise InvalidInput(f"methods must be a list of names, got {name!r} among them")
    for key in ("settings", "arms"):
        for name, table in content.get(key, {}).items():
            _check_arm(key, name, table)
    return content


def _check_arm(key: str, name: str, table: object) -> None:
    """A part of a comparison: its name becomes a folder, its content changes sections of the plan."""
    if not _FOLDER_NAME.fullmatch(name):
        raise InvalidInput(f"{key}: {name!r} names a folder; use letters, digits, '.', '_' and '-'")
    if not isinstance(table, Mapping) or not all(isinstance(part, Mapping) for part in table.values()):
        raise InvalidInput(f"[{key}.{name}] must hold tables of settings, got {table!r}")
