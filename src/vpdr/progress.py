"""How long work says how far it is."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]  # what, how much is done, how much there is


def quiet(name: str, done: int, total: int) -> None:
    """Progress that nobody watches."""
