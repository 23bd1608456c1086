"""Refusals of settings that cannot be, each in one line that names the setting."""

from collections.abc import Sequence

from vpdr.errors import InvalidInput


def positive(**settings: float) -> None:
    """Refuse a setting that is not above zero and finite."""
    for name, value in settings.items():
        if not 0 < value < float("inf"):
            raise InvalidInput(f"{name} must be positive, got {value:g}")


def not_negative(**settings: float) -> None:
    """Refuse a setting below zero."""
    at_least(0, **settings)


def at_least(least: float, **settings: float) -> None:
    """Refuse a setting below a bound."""
    for name, value in settings.items():
        if not value >= least:
            raise InvalidInput(f"{name} must be at least {least:g}, got {value:g}")


def fraction(**settings: float) -> None:
    """Refuse a rate outside [0, 1)."""
    for name, value in settings.items():
        if not 0 <= value < 1:
            raise InvalidInput(f"{name} must lie in [0, 1), got {value:g}")


def share(**settings: float) -> None:
    """Refuse a part outside (0, 1]."""
    for name, value in settings.items():
        if not 0 < value <= 1:
            raise InvalidInput(f"{name} must lie in (0, 1], got {value:g}")


def one_of(allowed: Sequence[str], **settings: str) -> None:
    """Refuse a name that is not on the list."""
    for name, value in settings.items():
        if value not in allowed:
            raise InvalidInput(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
