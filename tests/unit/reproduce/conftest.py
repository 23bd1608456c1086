"""Fixtures of the reproduction tests."""

import pytest

from vpdr.cli.output import console


@pytest.fixture
def wide_console(monkeypatch: pytest.MonkeyPatch) -> None:
    """A console of fixed width, whatever the terminal or COLUMNS say."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(console, "size", (200, 50))
