"""Three ways to add up what was spent, each also finding the noise that a budget allows."""

from vpdr.errors import InvalidInput
from vpdr.privacy.accountants.base import Accountant
from vpdr.privacy.accountants.exact import Exact
from vpdr.privacy.accountants.joint import Joint
from vpdr.privacy.accountants.rdp import Rdp

ACCOUNTANTS: dict[str, Accountant] = {"exact": Exact(), "rdp": Rdp(), "joint": Joint()}


def accountant_named(name: str) -> Accountant:
    """The accountant that a plan, a file or a command line asks for."""
    if name not in ACCOUNTANTS:
        raise InvalidInput(f"unknown accountant {name!r}; choose one of {', '.join(ACCOUNTANTS)}")
    return ACCOUNTANTS[name]


__all__ = ["ACCOUNTANTS", "Accountant", "Exact", "Joint", "Rdp", "accountant_named"]
