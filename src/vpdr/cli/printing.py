"""How results reach a person or a program."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from vpdr.records.store import json_bytes

WIDE = 130  # columns where neither a terminal nor COLUMNS says how many there are


class Screen(Console):
    """A console that leaves it to the command line what a reader who left means."""

    def on_broken_pipe(self) -> None:
        """Do not end the program here."""
        raise BrokenPipeError


_TOLD = sys.stdout.isatty() or "COLUMNS" in os.environ
console = Screen(soft_wrap=True, highlight=False, width=None if _TOLD else WIDE)


def print_json(content: Mapping[str, Any]) -> None:
    """One JSON object, as in the files."""
    sys.stdout.write(json_bytes(content).decode())
