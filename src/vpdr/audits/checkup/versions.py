"""Which versions compute here."""

import platform
import re
from importlib import metadata

from vpdr.audits.checkup.base import must

SHOWN = ("torch", "numpy", "scipy", "scikit-learn")


def installed() -> str:
    """Every dependency that cannot be left out is there, at least as new as the package asks for."""
    for wish in metadata.requires("vpdr") or []:
        if "extra ==" in wish:
            continue
        name, least = _parsed(wish)
        found = metadata.version(name)
        must(_numbers(found) >= _numbers(least), f"{name} {found} is older than {least}; install it anew")
    shown = ", ".join(f"{name} {metadata.version(name)}" for name in SHOWN)
    return f"python {platform.python_version()}, vpdr {metadata.version('vpdr')}, {shown}"


def _parsed(wish: str) -> tuple[str, str]:
    name = re.split(r"[\s<>=!~;\[(]", wish, maxsplit=1)[0]
    least = re.search(r">=\s*([0-9.]+)", wish)
    return name, least.group(1) if least else "0"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])
