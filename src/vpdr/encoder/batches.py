"""Many batches through one frozen network, as the machine that computes them likes it."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

Told: TypeAlias = Callable[[int, int], None]  # progress: how many of how many
Rows: TypeAlias = Int[Tensor, " _"]  # batches differ in size
Compute: TypeAlias = Callable[[Rows], Float[Tensor, "_ p"]]


def in_batches(
    compute: Compute,
    order: Int[Tensor, " n"],
    out: Float[Tensor, "all p"],
    *,
    pace: "Pace",
    progress: Told | None = None,
) -> None:
    """Fill the rows of `out` that `order` names with what `compute` makes of them, a batch at a time."""
    done, batches = 0, list(order.split(pace.size)) if len(order) else []
    for rows, part in zip(batches, pace.way(compute, batches), strict=True):
        out[rows] = part
        done += len(rows)
        if progress is not None:
            progress(done, len(order))


def on_single_threads(compute: Compute, batches: list[Rows]) -> Iterator[Float[Tensor, "_ p"]]:
    """As many workers as torch has threads, each computing alone.

    Threads that share one small layer meet a hundred times a batch, and on a busy machine each meeting
    waits for the slowest: many times slower than workers that never meet.
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            yield from workers.map(compute, batches)
    finally:
        torch.set_num_threads(threads)


class Pace(NamedTuple):
    """How many samples go at once, and who computes: a processor's cache holds few, others idle with few."""

    size: int
    way: Callable[[Compute, list[Rows]], Iterator[Float[Tensor, "_ p"]]]


def pace_on(device: str, size: int = 0) -> Pace:
    """An accelerator is fed from one thread: each new one would plan every convolution anew."""
    usual = Pace(16, on_single_threads) if device == "cpu" else Pace(256, map)
    return usual._replace(size=size or usual.size)
