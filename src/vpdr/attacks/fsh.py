"""Feature-space hijacking: reconstruct an input whose feature matches an uploaded prototype.

In substance it is inversion by feature matching. With `phi = client` the adversary has the client's own
encoder, which never leaves the client: it is stronger than any server. With `phi = initial` it has what a
server has, a broadcast path included; its reconstructions are then still judged by the client's own path.
"""

import time
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.attacks.base import Gallery, Moment, Scene
from vpdr.attacks.fsh_metrics import Values, averaged, judged, summary
from vpdr.attacks.inversion import Search
from vpdr.attacks.spaces import Space, path_of
from vpdr.attacks.workshop import Job, Workshop
from vpdr.client import Client
from vpdr.types import Features, Prototypes

BATCH, CLASSES = 16, 10


class Fsh:
    """The reconstruction attack on every client, over the rounds that it is asked for.

    It reads private samples to judge what it made; what it finds is for simulations.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene, self.order = scene, scene.order
        self._spaces: dict[str, Space] = {}
        self.streams = scene.streams.apart("fsh")
        self.search = Search(steps=scene.order.steps)
        self.workshop = Workshop(scene, self.search)
        self.rounds: list[dict[str, Any]] = []
        self.seconds = 0.0

    def observe(self, moment: Moment) -> None:
        """Reconstruct from everything that was sent, and judge it."""
        begin = time.perf_counter()
        names = [name for name, told in moment.uploads.items() if len(told.labels)]
        targets = {name: chosen(moment.uploads[name]) for name in names}
        jobs = [job for name in names for job in self._jobs(moment.clients[name], targets[name], moment.t)]
        if not jobs:
            return
        found = self.workshop.made(jobs, moment.t)
        clients: dict[str, Values] = {}
        made = {
            name: [f for job, f in zip(jobs, found, strict=True) if job.client.id == name] for name in names
        }
        for name in names:
            inputs = torch.cat([each.inputs for each in made[name]])
            clients[name] = self._judged(moment.clients[name], targets[name], inputs)
            pictures = self._space(moment.clients[name]).pictures
            self.scene.keep(Gallery(moment.t, name, targets[name].labels, inputs, pictures))
        steps = torch.cat([each.steps for each in found]).double()
        entry = {"round": moment.t, "targets": len(steps), "steps": float(steps.mean())}
        self.rounds.append({**entry, "mean": averaged(list(clients.values())), "clients": clients})
        self.seconds += time.perf_counter() - begin

    def _space(self, client: Client) -> Space:
        """Where this client's samples live; made once, on the device that searches it."""
        if client.id not in self._spaces:
            self._spaces[client.id] = self.scene.space(client.id).to(self.order.device)
        return self._spaces[client.id]

    def _jobs(self, client: Client, targets: Prototypes, t: int) -> list[Job]:
        """Batches of targets; every start has a stream of its own, so that batches do not matter."""
        space = self._space(client)
        starts = torch.stack(
            [
                self.search.start
                * torch.randn(
                    space.shape, generator=self.streams.draw(f"start {label}", client=client.id, t=t)
                )
                for label in targets.labels.tolist()
            ]
        )
        cuts = [slice(first, first + BATCH) for first in range(0, len(starts), BATCH)]
        return [
            Job(client, space, Prototypes(targets.vectors[cut], targets.labels[cut]), starts[cut])
            for cut in cuts
        ]

    @torch.no_grad()
    def _judged(self, client: Client, targets: Prototypes, inputs: Float[Tensor, "p *shape"]) -> Values:
        device = self.order.device
        ways = [path_of(client, self._space(client), phi, device) for phi in (self.order.phi, "client")]
        matched, shown = (
            torch.cat([way(part.to(device)).cpu() for part in inputs.split(BATCH)]) for way in ways
        )
        train = client.shard.train
        return judged(targets, matched, shown, Features(client.released_features(train), train.labels))

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
            "space": "pictures" if any(s.pictures for s in self._spaces.values()) else "embeddings",
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
