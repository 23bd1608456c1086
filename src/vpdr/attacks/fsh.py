"""Feature-space hijacking: reconstruct an input whose feature matches an uploaded prototype.

In substance it is inversion by feature matching. With `phi = client` the adversary has the client's own
encoder, which never leaves the client: it is stronger than any server. With `phi = initial` it has what a
server has; its reconstructions are then still judged by the client's own path.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.attacks.base import AttackOrder, Gallery, Moment, Scene
from vpdr.attacks.fsh_metrics import Values, averaged, judged, summary
from vpdr.attacks.inversion import Found, Search, invert
from vpdr.attacks.spaces import Space, path_of
from vpdr.client import Client
from vpdr.types import Features, Prototypes

BATCH, CLASSES = 16, 10
TRIAL = 3  # steps that are timed


@dataclass(frozen=True, slots=True)
class _Job:
    """Some targets of one client."""

    client: Client
    targets: Prototypes
    starts: Float[Tensor, "b *shape"]


class Fsh:
    """The reconstruction attack on every client, over the rounds that it is asked for.

    It reads private samples to judge what it made; what it finds is for simulations.
    """

    def __init__(self, scene: Scene, space: Space) -> None:
        self.scene, self.order = scene, scene.order
        self.space = space.to(scene.order.device)
        self.streams = scene.streams.apart("fsh")
        self.search = Search(steps=scene.order.steps)
        self.rounds: list[dict[str, Any]] = []
        self.seconds = 0.0
        self._told = False

    def observe(self, moment: Moment) -> None:
        """Reconstruct from everything that was sent, and judge it."""
        begin = time.perf_counter()
        names = [name for name, told in moment.uploads.items() if len(told.labels)]
        targets = {name: chosen(moment.uploads[name]) for name in names}
        jobs = [job for name in names for job in self._jobs(moment.clients[name], targets[name], moment.t)]
        if not jobs:
            return
        found = self._searched(jobs, moment.t)
        clients: dict[str, Values] = {}
        made = {
            name: [f for job, f in zip(jobs, found, strict=True) if job.client.id == name] for name in names
        }
        for name in names:
            inputs = torch.cat([each.inputs for each in made[name]])
            clients[name] = self._judged(moment.clients[name], targets[name], inputs)
            self._keep(moment.t, name, targets[name], inputs)
        steps = torch.cat([each.steps for each in found]).double()
        entry = {"round": moment.t, "targets": len(steps), "steps": float(steps.mean())}
        self.rounds.append({**entry, "mean": averaged(list(clients.values())), "clients": clients})
        self.seconds += time.perf_counter() - begin

    def _jobs(self, client: Client, targets: Prototypes, t: int) -> list[_Job]:
        """Batches of targets; every start has a stream of its own, so that batches do not matter."""
        starts = torch.stack(
            [
                self.search.start
                * torch.randn(
                    self.space.shape, generator=self.streams.draw(f"start {label}", client=client.id, t=t)
                )
                for label in targets.labels.tolist()
            ]
        )
        cuts = [slice(first, first + BATCH) for first in range(0, len(starts), BATCH)]
        return [
            _Job(client, Prototypes(targets.vectors[cut], targets.labels[cut]), starts[cut]) for cut in cuts
        ]

    def _searched(self, jobs: list[_Job], t: int) -> list[Found]:
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

    def _run(self, job: _Job, search: Search) -> Found:
        device = self.order.device
        path = path_of(job.client, self.space, self.order.phi, device)
        found = invert(path, self.space, job.targets.vectors.to(device), job.starts.to(device), search)
        return Found(found.inputs.cpu(), found.losses.cpu(), found.steps.cpu())

    def _estimate(self, jobs: list[_Job], workers: ThreadPoolExecutor) -> str:
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

    @torch.no_grad()
    def _judged(self, client: Client, targets: Prototypes, inputs: Float[Tensor, "p *shape"]) -> Values:
        device = self.order.device
        ways = [path_of(client, self.space, phi, device) for phi in (self.order.phi, "client")]
        matched, shown = (
            torch.cat([way(part.to(device)).cpu() for part in inputs.split(BATCH)]) for way in ways
        )
        train = client.shard.train
        return judged(targets, matched, shown, Features(client.released_features(train), train.labels))

    def _keep(self, t: int, client: str, targets: Prototypes, inputs: Float[Tensor, "p *shape"]) -> None:
        self.scene.keep(Gallery(t, client, targets.labels, inputs, self.space.pictures))

    def state(self) -> dict[str, Any]:
        """What was measured so far."""
        return {"rounds": self.rounds, "seconds": self.seconds}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Nothing but what was measured outlives a round."""
        self.rounds, self.seconds = list(state["rounds"]), float(state["seconds"])

    def result(self) -> dict[str, Any]:
        """Means and spreads over rounds, beside what an aimless reconstruction would score."""
        return {
            "phi": self.order.phi,
            "space": "pictures" if self.space.pictures else "embeddings",
            "steps": self.search.steps,
            "rounds": self.rounds,
            "summary": summary(self.rounds) if self.rounds else {},
            "seconds": self.seconds,
        }


def chosen(told: Prototypes) -> Prototypes:
    """One prototype (the first) of each of the first classes, in rising order."""
    labels = told.labels.unique()[:CLASSES]
    rows = torch.stack([(told.labels == label).nonzero()[0, 0] for label in labels])
    return Prototypes(told.vectors[rows], labels)


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
