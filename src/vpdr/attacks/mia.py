"""Membership inference: were these samples among those behind the prototype?

Three adversaries look at the same uploads. `distance` is the paper's: members are nearer to their prototype.
`likelihood` is the Gaussian likelihood ratio of one round. `accumulated` adds the likelihood ratios of all
rounds, which is what somebody who keeps every upload can do.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vpdr.attacks.base import AttackOrder, Moment, seen_through
from vpdr.attacks.candidates import Candidates, candidates_of
from vpdr.attacks.likelihood import Reference, log_ratios, reference_of
from vpdr.attacks.mia_result import Tally, result_of
from vpdr.attacks.roc import Ranking
from vpdr.client import Client
from vpdr.mechanisms import Identity
from vpdr.mechanisms.clipping import clip
from vpdr.rng import Streams
from vpdr.types import Prototypes

_Judged = tuple[
    Candidates, Float[Tensor, " s"], Bool[Tensor, " c"]
]  # whom, with which scores, in which classes


@dataclass(slots=True)
class _Target:
    """One client: whom to ask about, how to judge them, and what was added up so far."""

    who: Candidates
    how: Reference
    total: Float[Tensor, " s"]
    last: Prototypes | None = None

    def news(self, told: Prototypes) -> bool:
        """Whether this is not the same upload once more, which would tell nothing new."""
        old = self.last
        known = old is not None and old.vectors.shape == told.vectors.shape
        return not (known and old is not None and torch.equal(old.vectors, told.vectors))


class Mia:
    """The membership attack on every client, over the rounds that it is asked for.

    Guarantee: none is given or needed; it reads private samples to know the truth, and its result is for
    simulations. Its draws come from its own streams.
    """

    def __init__(self, order: AttackOrder, streams: Streams) -> None:
        self.order, self.streams = order, streams.apart("mia")
        self.targets: dict[str, _Target | None] = {}
        self.tally = Tally()
        self._waiting: Mapping[str, Any] = {}

    def observe(self, moment: Moment) -> None:
        """Score every candidate against what its client has just sent."""
        begin = time.perf_counter()
        self.tally.open(moment.t)
        for name, told in moment.uploads.items():
            target = self._target(moment.clients[name])
            if target is not None and len(told.labels):
                self._judge(moment.clients[name], target, told)
        self.tally.close()
        self.tally.seconds += time.perf_counter() - begin

    def _target(self, client: Client) -> _Target | None:
        if client.id not in self.targets:
            who = candidates_of(client.shard, client.id, self.streams)
            self.targets[client.id] = None if who is None else self._prepared(client, who)
        return self.targets[client.id]

    def _prepared(self, client: Client, who: Candidates) -> _Target:
        """The public shape of the features, the folds, and what was added up before a stop."""
        public = _clipped(client, who.in_a_row(client.shard.train.public, client.shard.test.public))
        sizes = torch.bincount(client.shard.train.labels, minlength=int(who.classes.max()) + 1)
        rng = self.streams.draw("folds", client=client.id)
        how = reference_of(who, sizes[who.classes], public, rng)
        saved = self._waiting.get(client.id)
        if saved is None:
            return _Target(who, how, torch.zeros(len(who.owner)))
        return _Target(who, how, saved["total"], Prototypes.from_arrays(saved["last"]))

    def _judge(self, client: Client, target: _Target, told: Prototypes) -> None:
        who = target.who
        present = torch.isin(who.classes, told.labels)
        if not bool(present.any()):
            return
        shard, phi = client.shard, self.order.phi
        features = who.in_a_row(seen_through(client, shard.train, phi), seen_through(client, shard.test, phi))
        ratios = log_ratios(who, target.how, _clipped(client, features), told)
        if target.news(told):
            target.total += ratios
            target.last = told
        scores = {"distance": _nearness(who, features, told), "likelihood": ratios}
        for name, each in scores.items():
            self._tell(self.tally, name, client.id, (who, each, present))

    def _tell(self, tally: Tally, name: str, client: str, judged: "_Judged") -> None:
        """Macro over the classes that have a prototype, all classes pooled, and a ROC curve."""
        who, scores, present = judged
        table = scores[who.place]
        apart = Ranking(table[present], who.labellings[present], who.present[present])
        tally.add(name, client, apart.metrics().mean(0))
        real = who.present & present[:, None]
        everybody = torch.ones(1, int(real.sum()), dtype=torch.bool)
        pooled = Ranking(table[real][None], who.labellings[real][None], everybody)
        tally.add(f"{name} pooled", client, pooled.metrics()[0])
        tally.draw(name, pooled.curve())

    def state(self) -> dict[str, Any]:
        """Sums over rounds, and every client's accumulated ratios."""
        found = {name: target for name, target in self.targets.items() if target is not None}
        targets = {
            name: {"total": target.total, "last": target.last.arrays()}
            for name, target in found.items()
            if target.last is not None
        }
        return {"tally": self.tally.state(), "targets": {**self._waiting, **targets}}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Candidates and labellings are drawn again from the same streams."""
        self.tally = Tally.resumed(state["tally"])
        self._waiting = state["targets"]

    def result(self) -> dict[str, Any]:
        """Means and spreads over rounds beside what chance gives, for all three adversaries."""
        total = Tally()
        total.open(0)
        others: list[int] = []
        for name, target in self.targets.items():
            if target is not None and target.last is not None:
                others += target.who.others().tolist()
                everywhere = torch.ones(len(target.who.classes), dtype=torch.bool)
                self._tell(total, "accumulated", name, (target.who, target.total, everywhere))
        total.close()
        return result_of(self.tally, total, others, self.order.phi)


def _nearness(who: Candidates, features: Float[Tensor, "s d"], told: Prototypes) -> Float[Tensor, " s"]:
    """-|φ(x) - p|² to the nearest prototype of the candidate's own class."""
    apart = torch.cdist(features, told.vectors).square()
    own = who.classes[who.owner][:, None] == told.labels[None]
    return -torch.where(own, apart, torch.inf).amin(1)


def _clipped(client: Client, features: Float[Tensor, "s d"]) -> Float[Tensor, "s d"]:
    """As they entered the mean: clipped, unless the mechanism does not clip."""
    if isinstance(client.promise.mechanism, Identity):
        return features
    return clip(features, client.promise.clip_norm)
