"""A manifest on disk."""

import json
from pathlib import Path

from vpdr.data.manifest import Manifest
from vpdr.errors import InvalidInput
from vpdr.files import write_atomically


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Keep a division where it can be read and compared by eye."""
    write_atomically(path, json.dumps(manifest.to_data(), indent=1).encode() + b"\n")


def read_manifest(path: Path) -> Manifest:
    """A division that was kept; a file that is none is refused in one line."""
    try:
        return Manifest.from_data(json.loads(Path(path).read_bytes()))
    except OSError as error:
        raise InvalidInput(
            f"cannot read the split {path}: {error.strerror}; give a file that exists"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"expected a split as JSON in {path}, got other bytes; draw it again") from error
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"expected a split as JSON in {path}, got something else; draw it again"
        ) from error
