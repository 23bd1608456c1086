"""How results reach a person or a program."""

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

WIDE = 130  # columns where no terminal says how many there are

console = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else WIDE)


def print_json(content: Mapping[str, Any]) -> None:
    """One JSON object that any parser reads; numbers JSON does not have become null or text."""
    sys.stdout.write(json.dumps(_plain(content), indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("infinity" if value > 0 else "-infinity")
    return value
