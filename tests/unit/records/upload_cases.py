"""Uploads of a round that was repeated after a crash."""

from pathlib import Path
from tempfile import TemporaryDirectory

from vpdr.records import UploadStore
from vpdr.types import Prototypes


def load_attempts(store: UploadStore, round: int) -> list[dict[str, Prototypes]]:
    """The uploads of every attempt at a round, in order: each file is read as the only one of its run."""
    first = store.path / f"round-{round:04d}.npz"
    again = sorted(store.path.glob(f"{first.stem}-again-*.npz"), key=lambda path: int(path.stem.rsplit("-", 1)[1]))
    attempts = []
    for path in (first, *again):
        with TemporaryDirectory() as directory:
            alone = UploadStore(Path(directory))
            alone.path.mkdir()
            (alone.path / first.name).write_bytes(path.read_bytes())
            attempts.append(alone.load(round))
    return attempts
