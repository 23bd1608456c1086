"""Many searches on the cores of this machine, with their cost told before the first one."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.attacks.base import AttackOrder, Scene
from vpdr.attacks.inversion import Found, Search, invert
from vpdr.attacks.spaces import Space, path_of
from vpdr.client import Client
from vpdr.types import Prototypes

TRIAL = 3  # steps that are timed


@dataclass(frozen=True, slots=True)
class Job:
    """Some targets of one client."""

    client: Client
    space: Space
    targets: Prototypes
    starts: Float[Tensor, "b *shape"]


class Workshop:
    """Searches for all jobs of a round, one a core."""

    def __init__(self, scene: Scene, search: Search) -> None:
        self.scene, self.order, self.search = scene, scene.order, search
        self._told = False

    def made(self, jobs: list[Job], t: int) -> list[Found]:
        """All jobs, one a core; what it will cost is said before the first one."""
        with _single_threads(_workers(self.order)) as workers:
            if not self._told:
                self._told = True
                self.scene.tell(self._estimate(jobs, workers))
            found = []
            for made in workers.map(lambda job: self._run(job, self.search), jobs):
                found.append(made)
                self.scene.progress(f"reconstructions of round {t}", len(found), len(jobs))
        return found

    def _run(self, job: Job, search: Search) -> Found:
        device = self.order.device
        path = path_of(job.client, job.space, self.order.phi, device)
        found = invert(path, job.space, job.targets.vectors.to(device), job.starts.to(device), search)
        return Found(found.inputs.cpu(), found.losses.cpu(), found.steps.cpu())

    def _estimate(self, jobs: list[Job], workers: ThreadPoolExecutor) -> str:
        """From a few steps of one batch on every core at once: the time if nothing stops early."""
        count = _workers(self.order)
        trial = Search(steps=TRIAL)
        list(workers.map(lambda job: self._run(job, Search(steps=1)), jobs[:1]))  # the first pass is slow
        begin = time.perf_counter()
        list(workers.map(lambda job: self._run(job, trial), (jobs * count)[:count]))
        seconds = (time.perf_counter() - begin) / TRIAL * self.search.steps * -(-len(jobs) // count)
        rounds = len(self.order.rounds) or self.scene.rounds
        targets = sum(len(job.targets.labels) for job in jobs)
        return (
            f"fsh: {targets} targets a round, at most {self.search.steps} steps, {rounds} "
            f"round{'s'[: rounds > 1]}: at most about {_duration(seconds * rounds)} on {count} "
            f"worker{'s'[: count > 1]}"
        )


def _workers(order: AttackOrder) -> int:
    """One a core; a device of its own takes one batch after the other."""
    return 1 if order.device != "cpu" else order.workers or len(os.sched_getaffinity(0))


@contextmanager
def _single_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Workers that compute alone: threads that share one small layer wait for each other."""
    threads = torch.get_num_threads()
    limit: Callable[[int], None] = torch.set_num_threads
    try:
        with ThreadPoolExecutor(count, initializer=limit, initargs=(1,)) as workers:
            yield workers
    finally:
        torch.set_num_threads(threads)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
