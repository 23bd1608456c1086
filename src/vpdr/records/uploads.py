"""What the server saw, round by round: the evidence that an attack is run on.

Guarantee: these files hold only what left the clients. They are still kept for their owner alone, because a
run without privacy uploads class means as they are.
"""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from vpdr.errors import DamagedFile, InvalidInput
from vpdr.files import cannot_write, write_atomically
from vpdr.types import Prototypes

FOLDER = "uploads"


class UploadFolder:
    """One file a round, written before the server answers; a long run never holds them in memory.

    A round that a crash made happen again has more files: what was heard before the crash was paid for and
    is out, so it is kept. The last one is what the server answered and the run went on with.
    """

    def __init__(self, run: Path) -> None:
        self.path = Path(run) / FOLDER

    def keep(self, t: int, uploads: Mapping[str, Prototypes]) -> None:
        """Write one round down, beside an earlier attempt at it unless they are the same."""
        content = _packed(uploads)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            earlier = self._files(t)
            if earlier and earlier[-1].read_bytes() == content:
                return
        except OSError as error:
            raise cannot_write(self.path, error) from error
        name = f"round-{t:04d}-again-{len(earlier)}.npz" if earlier else f"round-{t:04d}.npz"
        write_atomically(self.path / name, content, mode=0o600)

    def rounds(self) -> tuple[int, ...]:
        """Which rounds are there."""
        return tuple(sorted({int(path.stem.split("-")[1]) for path in self.path.glob("round-*.npz")}))

    def heard(self, t: int) -> dict[str, Prototypes]:
        """The uploads of one round by client, as the server answered them: the last attempt."""
        return _read((self._files(t) or [self.path / f"round-{t:04d}.npz"])[-1])

    def attempts(self, t: int) -> list[dict[str, Prototypes]]:
        """All that was ever heard in a round, in order; more than one only after a crash."""
        return [_read(path) for path in self._files(t)]

    def _files(self, t: int) -> list[Path]:
        first = self.path / f"round-{t:04d}.npz"
        again = self.path.glob(f"{first.stem}-again-*.npz")
        ordered = sorted(again, key=lambda path: int(path.stem.rsplit("-", 1)[1]))
        return [first, *ordered] if first.exists() else ordered


def _packed(uploads: Mapping[str, Prototypes]) -> bytes:
    arrays: dict[str, np.ndarray] = {"clients": np.array(list(uploads), dtype=np.str_)}
    for index, upload in enumerate(uploads.values()):
        arrays |= {f"{index}.{name}": array.numpy() for name, array in upload.arrays().items()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _read(path: Path) -> dict[str, Prototypes]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: torch.from_numpy(stored[name]) for name in stored.files if name != "clients"}
            clients = [str(name) for name in stored["clients"]]
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} is missing; run the plan again with its uploads kept") from error
    except (OSError, ValueError, KeyError) as error:
        raise DamagedFile(f"{path} is not a whole file of uploads; run the plan again") from error
    return {client: Prototypes.from_arrays(_of(arrays, index)) for index, client in enumerate(clients)}


def _of(arrays: Mapping[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    prefix = f"{index}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
