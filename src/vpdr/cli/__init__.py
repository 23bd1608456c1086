"""The command line: parses options, calls the library, and prints the results."""

from vpdr.cli.app import main
