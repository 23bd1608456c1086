"""How results reach a person or a program."""

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from vpdr.records.store import json_bytes

WIDE = 130  # columns where no terminal says how many there are

console = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else WIDE)


def print_json(content: Mapping[str, Any]) -> None:
    """One JSON object, as in the files."""
    sys.stdout.write(json_bytes(content).decode())
