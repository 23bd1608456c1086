"""Membership inference: were these samples among those behind the prototype?

Three adversaries look at the same uploads. `distance` is the paper's: members are nearer to their prototype.
Two stronger ones join where they are asked for: `likelihood` is the Gaussian likelihood ratio of one round,
`accumulated` adds the ratios of all rounds, which is what somebody who keeps every upload can do.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from vpdr.attacks.base import AttackOrder, Moment, seen_through
from vpdr.attacks.candidates import Candidates, candidates_of
from vpdr.attacks.likelihood import Seen, Shapes, log_ratios, shapes_of
from vpdr.attacks.mia_result import Scores, result_of
from vpdr.client import Client
from vpdr.mechanisms import Identity
from vpdr.rng import Streams
from vpdr.types import Prototypes


@dataclass(slots=True)
class _Target:
    """One client: whom to ask about, how to judge them, and what was found so far."""

    who: Candidates
    shapes: Shapes | None  # only for likelihood ratios
    rounds: list[int] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)  # of each round: [a s], by adversary
    told: list[Tensor] = field(default_factory=list)  # of each round: which classes had a prototype
    fresh: list[bool] = field(default_factory=list)  # whether the upload was a new one
    last: Tensor | None = None

    def kept(self) -> Scores:
        """For the result."""
        return Scores(self.who, self.rounds, torch.stack(self.scores), torch.stack(self.told), self.fresh)


class Mia:
    """The membership attack on every client, over the rounds that it is asked for.

    It reads private samples to know the truth; what it finds is for simulations. While the run goes on it
    only scores, and all metrics are computed together at the end.
    """

    def __init__(self, order: AttackOrder, streams: Streams) -> None:
        self.order, self.streams = order, streams.apart("mia")
        self.targets: dict[str, _Target | None] = {}
        self.seconds = 0.0
        self._saved: Mapping[str, Any] = {}

    def observe(self, moment: Moment) -> None:
        """Score every candidate against what its client has just sent."""
        begin = time.perf_counter()
        for name, told in moment.uploads.items():
            target = self._target(moment.clients[name])
            if target is not None and bool(torch.isin(target.who.classes, told.labels).any()):
                self._judge(moment.clients[name], target, told, moment.t)
        self.seconds += time.perf_counter() - begin

    def _target(self, client: Client) -> _Target | None:
        if client.id not in self.targets:
            who = candidates_of(client.shard, client.id, self.streams)
            self.targets[client.id] = None if who is None else self._prepared(client, who)
        return self.targets[client.id]

    def _prepared(self, client: Client, who: Candidates) -> _Target:
        """The public shape of the features, and what was found before a stop."""
        target = _Target(who, _shapes(client, who) if self.order.stronger else None)
        saved = self._saved.get(client.id)
        if saved is not None:
            target.rounds, target.fresh = list(saved["rounds"]), list(saved["fresh"])
            target.scores, target.told = list(saved["scores"]), list(saved["told"])
            target.last = saved["last"]
        return target

    def _judge(self, client: Client, target: _Target, told: Prototypes, t: int) -> None:
        who, phi = target.who, self.order.phi
        sides = (client.shard.train, who.members), (client.shard.test, who.others)
        seen = [seen_through(client, samples, phi) for samples, _ in sides]
        near = [nearness(z, samples.labels, told) for z, (samples, _) in zip(seen, sides, strict=True)]
        scores = [torch.cat([each[rows] for each, (_, rows) in zip(near, sides, strict=True)])]
        if target.shapes is not None:
            features = torch.cat([each[rows] for each, (_, rows) in zip(seen, sides, strict=True)])
            norms = features.square().sum(1)
            scale = _scale(client, norms)
            met = Seen(features, scale, norms * scale.square())
            scores.append(log_ratios(who, target.shapes, met, told).double())
        target.rounds.append(t)
        target.scores.append(torch.stack(scores))
        target.told.append(torch.isin(who.classes, told.labels))
        target.fresh.append(target.last is None or not torch.equal(target.last, told.vectors))
        target.last = told.vectors

    def state(self) -> dict[str, Any]:
        """Scores of every client and round."""
        found = {
            name: {
                "rounds": target.rounds,
                "fresh": target.fresh,
                "scores": target.scores,
                "told": target.told,
                "last": target.last,
            }
            for name, target in self.targets.items()
            if target is not None
        }
        return {"seconds": self.seconds, "targets": {**self._saved, **found}}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Candidates and labellings are drawn again from the same streams."""
        self.seconds, self._saved = float(state["seconds"]), state["targets"]

    def result(self) -> dict[str, Any]:
        """Means and spreads over rounds beside what chance gives, for every adversary."""
        begin = time.perf_counter()
        kept = {name: each.kept() for name, each in self.targets.items() if each is not None and each.rounds}
        found = result_of(kept)
        seconds = self.seconds + time.perf_counter() - begin
        return {"phi": self.order.phi, **found, "seconds": seconds}


def nearness(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], told: Prototypes
) -> Float64[Tensor, " n"]:
    """-|φ(x) - p|² to the nearest prototype of each sample's own class; -inf where there is none."""
    products = (features @ told.vectors.T).double()  # noise makes the rest so large that it would hide them
    nearer = 2 * products - told.vectors.double().square().sum(1)
    nearest: Tensor = nearer.masked_fill(labels[:, None] != told.labels, -torch.inf).amax(1)
    return nearest - features.square().sum(1)


def _shapes(client: Client, who: Candidates) -> Shapes:
    public = client.shard.test.public[who.others]
    return shapes_of(who, public * _scale(client, public.square().sum(1))[:, None])


def _scale(client: Client, norms: Float[Tensor, " s"]) -> Float[Tensor, " s"]:
    """What clipping does to features with these squared norms; nothing where nothing is clipped."""
    if isinstance(client.promise.mechanism, Identity):
        return torch.ones(len(norms))
    return (client.promise.clip_norm / norms.sqrt().clamp(min=1e-12)).clamp(max=1)
