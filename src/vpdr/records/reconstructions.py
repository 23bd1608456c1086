"""Reconstructed inputs: arrays for programs, one picture a round for people.

They are computed from private prototypes by an adversary who is given the client's encoder, so they are kept
for the owner of the run alone.
"""

import io
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from vpdr.attacks import Gallery
from vpdr.files import cannot_write, write_atomically

FOLDER = "attacks"
_GAP = 2


class ReconstructionFolder:
    """`attacks/` of a run: one file a client and round, and one contact sheet a round."""

    def __init__(self, run: Path) -> None:
        self.path = Path(run) / FOLDER

    def keep(self, gallery: Gallery) -> None:
        """Write one client's reconstructions down, and draw the sheet of its round again."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        values = gallery.inputs.numpy()
        if gallery.pictures:
            values = (values.transpose(0, 2, 3, 1) * 255).round().clip(0, 255).astype(np.uint8)
        buffer = io.BytesIO()
        named = {"inputs": values, "labels": gallery.labels.numpy(), "client": np.array(gallery.client)}
        np.savez_compressed(buffer, allow_pickle=False, **named)
        name = f"fsh-round-{gallery.t:04d}"
        write_atomically(self.path / f"{name}-{gallery.client}.npz", buffer.getvalue(), mode=0o600)
        if gallery.pictures:
            write_atomically(self.path / f"{name}.png", self._sheet(name), mode=0o600)

    def _sheet(self, name: str) -> bytes:
        """All clients of one round: a row for each, a column for each class."""
        from PIL import Image

        rows = []
        for path in sorted(self.path.glob(f"{name}-*.npz")):
            with np.load(path, allow_pickle=False) as stored:
                rows.append((stored["labels"], stored["inputs"]))
        buffer = io.BytesIO()
        Image.fromarray(_tiled(rows)).save(buffer, format="PNG")
        return buffer.getvalue()

    def sheets(self) -> list[Path]:
        """The contact sheets that are there, by round."""
        return sorted(self.path.glob("fsh-round-*.png"))


def _tiled(rows: list[tuple[np.ndarray, np.ndarray]]) -> UInt8[np.ndarray, "h w 3"]:
    classes = sorted({int(label) for labels, _ in rows for label in labels})
    side = rows[0][1].shape[1]
    step = side + _GAP
    sheet = np.full((len(rows) * step, len(classes) * step, 3), 255, dtype=np.uint8)
    for row, (labels, pictures) in enumerate(rows):
        for label, picture in zip(labels, pictures, strict=True):
            column = classes.index(int(label))
            sheet[row * step : row * step + side, column * step : column * step + side] = picture
    return sheet
