"""The mean of all releases of a client so far: each was paid for, so their mean costs nothing."""

import torch

from vpdr.errors import InvalidInput
from vpdr.mechanisms.base import Occasion
from vpdr.mechanisms.perturb import NoisyRows
from vpdr.types import Memory, Summary


def averaged(told: NoisyRows, summary: Summary, occasion: Occasion) -> tuple[NoisyRows, Memory]:
    """The mean of this release and the remembered ones, and what is to be remembered.

    Only the noise is averaged out, so the encoder must be the same at every release.
    """
    rows, sizes, count = told.rows, told.sizes, 1
    kept = occasion.memory
    if kept:
        if not torch.equal(kept["labels"], summary.labels):
            raise InvalidInput(
                f"{occasion.client}: releases can be averaged only if all have the same rows; "
                "use class means or class sums"
            )
        rows, sizes, count = rows + kept["rows"], sizes + kept["sizes"], 1 + int(kept["count"])
    memory = {"rows": rows, "sizes": sizes, "count": torch.tensor(count), "labels": summary.labels}
    return NoisyRows(rows / count, sizes / count, told.stds / count**0.5), memory
