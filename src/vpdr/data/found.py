"""What a reader finds on disk for one domain, before a pixel is resized."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from vpdr.cache import name_of
from vpdr.data.findings import Findings
from vpdr.data.partition import Indices


@runtime_checkable
class Raster(Protocol):
    """Pictures that can be had at any size, some at a time."""

    def __len__(self) -> int: ...

    def fingerprint(self) -> str:
        """Another one whenever the files are others."""
        ...

    def side(self, pixels: int) -> int:
        """At which size they are worth keeping for a model that wants `pixels`."""
        ...

    def block(self, start: int, stop: int, side: int) -> UInt8[np.ndarray, "b s s 3"]:
        """Some pictures, resized."""
        ...

    def check(self, row: int, findings: Findings) -> None:
        """Look at one picture, and tell what is wrong with it."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """Labels, and pictures or texts; the last `tested` rows are the official test set, where there is one."""

    labels: Indices
    content: Raster | tuple[str, ...]
    tested: int | None = None

    @property
    def official_test(self) -> Indices | None:
        """The rows of the official test set."""
        if self.tested is None:
            return None
        return np.arange(len(self.labels) - self.tested, len(self.labels))


def files_digest(paths: Sequence[Path]) -> str:
    """Names, sizes and times of files: cheap, and other files have others."""
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return name_of(stats)
