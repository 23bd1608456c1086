"""What a self-check is: it says what it saw, or why that is wrong."""

from dataclasses import dataclass


class Failed(Exception):
    """A check that did not find what must be there."""


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the doctor's report."""

    name: str
    ok: bool
    words: str


def must(true: bool, otherwise: str) -> None:
    """Fail with a reason, unless it is true."""
    if not true:
        raise Failed(otherwise)
