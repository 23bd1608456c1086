"""Errors that a user can fix, each with a one-line message: what was expected, what came, what to do."""

MAX_ERROR_LENGTH = 300  # characters of the message of a foreign error


class VpdrError(Exception):
    """The base of all errors that the command line shows without a traceback."""


class InvalidInput(VpdrError, ValueError):
    """A value that cannot be used as it is."""


class DamagedFile(VpdrError):
    """A file that exists but cannot be trusted; it is never treated as empty."""


def format_error(error: Exception) -> str:
    """The error on one line; an error that is not a `VpdrError` is prefixed by its class."""
    text = " ".join(str(error).split())
    if isinstance(error, VpdrError):
        return text
    kind = type(error).__name__
    return f"{kind}: {text[:MAX_ERROR_LENGTH]}" if text else kind
