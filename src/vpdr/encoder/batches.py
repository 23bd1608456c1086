"""Many batches through one frozen network, on all threads, without any two of them meeting."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

Told: TypeAlias = Callable[[int, int], None]  # progress: how many of how many


def in_batches(
    compute: Callable[[Int[Tensor, " b"]], Float[Tensor, "b p"]],
    order: Int[Tensor, " n"],
    out: Float[Tensor, "all p"],
    *,
    size: int,
    progress: Told | None = None,
) -> None:
    """Fill the rows of `out` that `order` names with what `compute` makes of them, `size` at a time."""
    done, batches = 0, order.split(size) if len(order) else ()
    with single_threads() as workers:
        for rows, part in zip(batches, workers.map(compute, batches), strict=True):
            out[rows] = part
            done += len(rows)
            if progress is not None:
                progress(done, len(order))


@contextmanager
def single_threads() -> Iterator[ThreadPoolExecutor]:
    """As many workers as torch has threads, each computing alone.

    Threads that share one small layer meet a hundred times a batch, and on a busy machine each meeting
    waits for the slowest: many times slower than workers that never meet.
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            yield workers
    finally:
        torch.set_num_threads(threads)
