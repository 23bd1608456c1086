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
    """One file a round, written before the server answers; a long run never holds them in memory."""

    def __init__(self, run: Path) -> None:
        self.path = Path(run) / FOLDER

    def _file(self, t: int) -> Path:
        return self.path / f"round-{t:04d}.npz"

    def keep(self, t: int, uploads: Mapping[str, Prototypes]) -> None:
        """Write one round down."""
        arrays: dict[str, np.ndarray] = {"clients": np.array(list(uploads), dtype=np.str_)}
        for index, upload in enumerate(uploads.values()):
            arrays |= {f"{index}.{name}": array.numpy() for name, array in upload.arrays().items()}
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        write_atomically(self._file(t), buffer.getvalue(), mode=0o600)

    def rounds(self) -> tuple[int, ...]:
        """Which rounds are there."""
        return tuple(sorted(int(path.stem.split("-")[1]) for path in self.path.glob("round-*.npz")))

    def heard(self, t: int) -> dict[str, Prototypes]:
        """The uploads of one round by client."""
        path = self._file(t)
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
