"""The command line: everything that prints."""

from vpdr.cli.main import main

__all__ = ["main"]
