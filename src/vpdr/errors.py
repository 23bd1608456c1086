"""Mistakes that a user can mend, each told in one line: what was expected, what came, what to do."""


class VpdrError(Exception):
    """The base of all errors that the command line shows without a traceback."""


class InvalidInput(VpdrError, ValueError):
    """A value that cannot be used as it is."""


class DamagedFile(VpdrError):
    """A file that exists but cannot be trusted; it is never treated as empty."""


LONGEST = 300  # characters of what a foreign error says


def one_line(error: Exception) -> str:
    """What went wrong on one line; an error that is not a user's mistake says its kind."""
    text = " ".join(str(error).split())
    if isinstance(error, VpdrError):
        return text
    kind = type(error).__name__
    return f"{kind}: {text[:LONGEST]}" if text else kind
