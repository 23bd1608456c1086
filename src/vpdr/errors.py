"""Mistakes that a user can mend, each told in one line: what was expected, what came, what to do."""


class VpdrError(Exception):
    """The base of all errors that the command line shows without a traceback."""


class InvalidInput(VpdrError, ValueError):
    """A value that cannot be used as it is."""


class DamagedFile(VpdrError):
    """A file that exists but cannot be trusted; it is never treated as empty."""
