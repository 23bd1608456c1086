"""The life of one client, round by round."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client.encoding import Encoding
from vpdr.client.error import relative_error
from vpdr.client.parts import Habits, Model, Promise, Samples, Shard
from vpdr.client.paths import path_heard, through
from vpdr.client.private_training import trainer_of
from vpdr.client.sleep import packed, woken
from vpdr.client.usual import usual
from vpdr.encoder import seed_dropout
from vpdr.finetune import Guide, Regulariser
from vpdr.frameworks import Framework, Path
from vpdr.mechanisms import Occasion
from vpdr.privacy import Adjacency, BudgetExceeded, Ledger, Purpose
from vpdr.rng import Streams
from vpdr.types import Features, Memory, Prototypes, Step


@dataclass(kw_only=True)
class Client:
    """It owns its data, encoder, head, teacher, optimiser, ledger and random streams.

    Guarantee: what leaves it is what `release` returns, and that was charged to the ledger before the
    samples were looked at.
    """

    id: str
    shard: Shard
    model: Model
    framework: Framework[Any]
    promise: Promise
    regulariser: Regulariser
    ledger: Ledger
    habits: Habits
    streams: Streams
    sent: Prototypes | None = None  # the last upload: public, so it may be sent again for nothing
    heard: Any = None  # the last broadcast
    kept: Memory = field(default_factory=dict)  # what the mechanism wants to remember

    def __post_init__(self) -> None:
        self.guide: Guide = self.regulariser.guide(self.model.head)
        self.encoding = Encoding(self.model.encoder)
        dim, rng = self.shard.train.public.shape[1], self.streams.draw("training-head")
        self.trainer = trainer_of(self.promise, self.model.encoder, self.habits, dim, rng)
        freely = [self.model.head] if self.trainer else [self.model.encoder, self.model.head]
        self.optimiser = self.habits.optimiser(*freely)
        self.diagnosis: dict[str, float] = {}  # of this round's release; private

    def release(self, t: int) -> Prototypes | None:
        """Pay, and only then encode, privatise and hand over (Alg. 1, lines 4-11).

        Paying comes first because a server watches: a failure on the way would tell it what it did not pay.
        A client whose releases are used up sends its last upload again: it is public already.
        """
        self.diagnosis = {}
        if not self.framework.uploads or self._silent:
            return None
        if len(self.ledger.releases) >= self.promise.releases and self.sent is not None:
            return self.sent
        occasion = self._occasion(t)
        planned = self.promise.mechanism.planned(occasion)
        try:
            self.ledger.charge(planned, round=t)
        except BudgetExceeded:
            if self.sent is None:
                raise
            return self.sent
        seen = Features(self.released_features(self.shard.train), self.shard.train.labels)
        made = self.promise.mechanism.release(seen.vectors, seen.labels, occasion)
        self.sent = replace(made.paid_with(planned), on_path=self.path is not None)
        self.kept = made.memory
        self.diagnosis = {**made.diagnostics, "relative_error": relative_error(self.sent, seen)}
        return self.sent

    @property
    def _silent(self) -> bool:
        """Without a sample there is nothing to send, unless having none is itself to stay private."""
        return not len(self.shard.train.labels) and self.promise.mechanism.adjacency != Adjacency.ADD_REMOVE

    def _occasion(self, t: int) -> Occasion:
        return Occasion(
            client=self.id,
            round=t,
            classes=self.habits.classes,
            summarise=self.promise.summarise,
            encoder=self.trainer.kind(self.ledger) if self.trainer else self.promise.encoder,
            noise=self.promise.noise(self.id, t, Purpose.RELEASE),
            heard=self.anchors,
            memory=self.kept,
        )

    def finetune(self, broadcast: Any, t: int) -> Mapping[str, float]:
        """E epochs on the client's own data (Alg. 1, lines 17-21); the mean of each term of the loss."""
        self.heard, train = broadcast, self.shard.train
        if self.trainer and not self._silent:
            loss = partial(self.framework.losses, broadcast=broadcast)
            noise = self.promise.noise(self.id, t, Purpose.TRAINING)
            self.trainer.learn(train, loss, noise, self.ledger, t)
        if not len(train.labels):
            return {}
        self._learning(True, t)
        totals: dict[str, float] = {}
        steps = 0
        for epoch in range(self.habits.epochs):
            rng = self.streams.draw(f"shuffle/{epoch}", client=self.id, t=t)
            change = self.streams.draw(f"augment/{epoch}", client=self.id, t=t)
            for rows in torch.randperm(len(train.labels), generator=rng).split(self.habits.batch):
                terms = self._step(rows, change, broadcast)
                totals = {name: totals.get(name, 0.0) + value for name, value in terms.items()}
                steps += 1
        self.guide.settle(self.model.head)
        self._learning(False, t)
        return {name: value / steps for name, value in totals.items()}

    def _step(self, rows: Int[Tensor, " b"], change: torch.Generator, broadcast: Any) -> Mapping[str, float]:
        """One optimiser step on L = L_BASE + λ₁ L_KD (Eq. 18)."""
        train = self.shard.train
        raw = self.encoding.batch(train, rows, change)
        raw = raw.detach() if self.trainer else raw  # a head that is not private must not move the encoder
        shaped = self.guide.reshape(raw)
        weights = torch.ones(len(rows))
        step = Step(shaped, self.model.head(shaped), train.labels[rows], train.public[rows], weights)
        terms = dict(self.framework.losses(step, broadcast))
        terms["guide"] = self.guide.loss(raw, step.logits, weights)
        if (total := torch.stack(list(terms.values())).sum()).requires_grad:
            total.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.guide.follow(self.model.head)
        return {name: float(value.detach()) for name, value in terms.items()}

    def personal_features(self, samples: Samples) -> Float[Tensor, "n d"]:
        """What the client's own encoder sees, without dropout (Z_m)."""
        return self.encoding.all(samples)

    def released_features(self, samples: Samples) -> Float[Tensor, "n d"]:
        """The same samples on the path whose prototypes are shared; what training did cannot make it fail."""
        if self.trainer and self.trainer.rows == 1:  # as in training, a place must not be felt
            return through(self.model.encoder, samples.public)
        if self.promise.encoder.trained:
            return usual(self.personal_features(samples))
        return samples.public if self.path is None else through(self.path, samples.public)

    @property
    def anchors(self) -> Prototypes | None:
        """The global prototypes in the last broadcast; None before there was one, or where it has none."""
        return None if self.heard is None else self.framework.anchors(self.heard)

    @property
    def path(self) -> Path | None:
        """From public features to released ones as the last broadcast has it; None: there is no such path."""
        return path_heard(self.promise.encoder, self.framework, self.heard)

    def _learning(self, on: bool, t: int) -> None:
        rng = self.streams.draw("dropout", client=self.id, t=t) if on else None
        self.encoding.forget()
        for part in (self.model.encoder, self.model.head):
            part.train(on)
            seed_dropout(part, rng)

    def state(self) -> dict[str, Any]:
        """All that must survive between two rounds, for checkpoints and for stateless engines."""
        return packed(self)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; the ledger never forgets a release that it already knows."""
        woken(self, state)
