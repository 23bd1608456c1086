"""Pictures, decoded and resized once, then mapped from a file: memory holds what is looked at."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from vpdr.cache import default_folder, name_of
from vpdr.data.found import Raster
from vpdr.files import cannot_write, writing_atomically

# Raise it whenever the same files would give other pixels than before.
PIXELS_VERSION = 1
_AT_ONCE = 64

Progress = Callable[[int, int], None]


def cached_pictures(
    raster: Raster, label: str, *, pixels: int, progress: Progress, folder: Path | None = None
) -> UInt8[np.ndarray, "n h w 3"]:
    """All pictures as one array on disk; another size or other files are another cache file.

    They are never enlarged here: small pictures are kept as they are, and grow when they are used. The file
    gets its name when it is whole, so an interrupted call leaves nothing that could be taken for one.
    """
    side = raster.side(pixels)
    shape = (len(raster), side, side, 3)
    name = name_of("pictures", PIXELS_VERSION, label, shape, raster.fingerprint())
    path = (default_folder() if folder is None else folder) / f"{name}.npy"
    if (mapped := _mapped(path, shape)) is not None:
        progress(len(raster), len(raster))
        return mapped
    _write(path, raster, shape, progress)
    made = _mapped(path, shape)
    if made is None:
        raise cannot_write(path, OSError(0, "the file is not what was written"))
    return made


def _write(path: Path, raster: Raster, shape: tuple[int, int, int, int], progress: Progress) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    with writing_atomically(path, mode=0o600) as file:  # whose pictures they are is not for everybody
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, shape[0], _AT_ONCE):
            stop = min(start + _AT_ONCE, shape[0])
            file.write(np.ascontiguousarray(raster.block(start, stop, shape[1])).data)
            progress(stop, shape[0])


def _mapped(path: Path, shape: tuple[int, int, int, int]) -> UInt8[np.ndarray, "n h w 3"] | None:
    """The file where it is there and whole; anything else is made again."""
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return stored if stored.shape == shape and stored.dtype == np.uint8 else None
