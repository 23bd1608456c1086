"""Named methods: the settings of one column of a comparison."""

import inspect
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from vpdr.config import rules
from vpdr.config.config import check_sections
from vpdr.registry import Registry
from vpdr.validation import InvalidInput

Tables = Mapping[str, Any]

MEANINGS = {
    "local": "training alone, nothing is sent: the control of every comparison",
    "none": "prototypes without noise, as the framework sends them",
    "none-public": "prototypes without noise, of the frozen encoder",
    "igpp": "the baseline: equal Gaussian noise on every coordinate",
    "igpp-dcr": "the baseline with the paper's regulariser",
    "vpp": "the paper's mechanism: less noise on selected coordinates",
    "vpdr": "the paper's method: vpp with dcr; what a single run of preset paper is",
    "vpp-random": "vpp with coordinates drawn by a coin: the control of its selection",
    "vpdr-random": "vpdr with coordinates drawn by a coin: the control of its selection",
    "vpp-oracle": "vpp with the truly best coordinates: not private, an upper line",
    "none-weighted": "none-public, weighted by public class counts: an upper line where clients lack classes",
    "igpp-accumulated": "proved: igpp on the frozen encoder, mean of all releases",
    "rapp": "proved: five stages around released centres, class counts private",
    "strict": "another name for rapp",
}


def check_names(key: str, names: Iterable[str]) -> None:
    """Refuse a name of a method or scenario that cannot name the directory of its runs."""
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise InvalidInput(f"{key}: {name!r} names a folder; use letters, digits, '.', '_' and '-'")


def check_method(name: str, tables: Tables) -> None:
    """Refuse what is not a table of sections, each a table of settings."""
    check_names("methods", [name])
    if not isinstance(tables, Mapping) or not all(isinstance(each, Mapping) for each in tables.values()):
        raise InvalidInput(
            f'method {name!r} must hold tables of settings, such as {{"mechanism": {{"kind": "igpp"}}}}, got {tables!r}'
        )
    check_sections(tables)


def builtin_methods() -> dict[str, Tables]:
    """The methods of this package, from methods.toml."""
    return tomllib.loads((resources.files("vpdr.config") / "experiments" / "methods.toml").read_text())


METHODS: Registry[Tables] = Registry("method", builtin_methods(), check_method)


def describe_method(name: str) -> str:
    """What a method is: one line, with the kinds that it names and how many other settings.

    Of a method without a line of its own it is what its plug-ins say of themselves.
    """
    tables = METHODS[name]
    kinds = [(section, content["kind"]) for section, content in tables.items() if "kind" in content]
    others = sum(key != "kind" for content in tables.values() for key in content)
    own = [
        describe_plug_in(rules.PLUGINS[section][kind])
        for section, kind in kinds
        if kind in rules.PLUGINS.get(section, ())
    ]
    settings = [f"{section}.kind={kind}" for section, kind in kinds] + ([f"{others} more"] if others else [])
    return f"{MEANINGS.get(name) or ' '.join(own)} ({', '.join(settings)})".strip()


def describe_plug_in(plug_in: object) -> str:
    """The first sentence of the docstring of a plug-in."""
    return " ".join((inspect.getdoc(plug_in) or "").split("\n\n")[0].split())
