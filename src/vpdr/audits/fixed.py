"""A client that learns nothing: its features are computed once, and only the releases are repeated."""

from dataclasses import dataclass
from typing import Any

import torch

from vpdr.audits.remembered import read
from vpdr.audits.silence import Silence
from vpdr.audits.subject import Subject, Told, Transcript
from vpdr.client import Samples
from vpdr.mechanisms import NoiseSource, Occasion
from vpdr.types import Features, Memory, Prototypes, Release


@dataclass(frozen=True, slots=True)
class Fixed:
    """All that such a client releases from, and whether its mechanism listens to the server."""

    subject: Subject
    features: Features
    listens: bool = True

    @classmethod
    def of(cls, subject: Subject, samples: Samples) -> "Fixed":
        """Encode once; a mechanism that releases the same with and without a server need not hear it."""
        client = subject.with_data(samples, Silence())
        features = Features(client.released_features(samples), samples.labels)
        loud, deaf = cls(subject, features), cls(subject, features, listens=False)
        return loud if _differ(loud.play(Silence()).sent, deaf.play(Silence()).sent) else deaf

    @property
    def is_open(self) -> bool:
        """Whether the mechanism keeps released numbers alone, so that an attacker may read its memory."""
        return self.subject.client.promise.mechanism.facts.staged

    def play(self, noise: NoiseSource) -> Told:
        """All releases, in the order of the rounds."""
        return self.followed(noise, ())[0]

    def followed(self, noise: NoiseSource, guesses: tuple["Fixed", ...]) -> list[Told]:
        """All releases, and what each guess would have told without noise in the place of every one of them.

        The past is that of this very run: broadcasts, and the memory where it is public. Noise is then all
        that is between a run and the guess that is right.
        """
        subject, players = self.subject, (self, *guesses)
        sources = [noise, *(Silence() for _ in guesses)]
        told = [Told() for _ in players]
        memories: list[Memory] = [{} for _ in players]
        heard: Prototypes | None = None
        server = subject.framework.start(subject.now(0)) if self.listens else {}
        for t in range(1, subject.releases + 1):
            now = [self._occasion(t, each, heard, kept) for each, kept in zip(sources, memories, strict=True)]
            made = [player._release(at) for player, at in zip(players, now, strict=True)]
            told = [self._with(before, one) for before, one in zip(told, made, strict=True)]
            memories = [made[0].memory if self.is_open else one.memory for one in made]
            if self.listens and t < subject.releases:
                broadcast, server = subject.answer(t, made[0].prototypes, server)
                heard = subject.framework.anchors(broadcast)
        return told

    def _release(self, occasion: Occasion) -> Release:
        mechanism = self.subject.client.promise.mechanism
        return mechanism.release(self.features.vectors, self.features.labels, occasion)

    def _with(self, told: Told, made: Release) -> Told:
        kept = (read(made.memory),) if self.is_open else ()
        return Told((*told.sent, made.prototypes), (*told.kept, *kept))

    def _occasion(self, t: int, noise: NoiseSource, heard: Prototypes | None, memory: Memory) -> Occasion:
        promise = self.subject.client.promise
        return Occasion(
            client="audited",
            round=t,
            classes=self.subject.classes,
            summarise=promise.summarise,
            encoder=promise.encoder,
            noise=noise,
            heard=heard,
            memory=memory,
        )


def _differ(first: Transcript, second: Transcript) -> bool:
    return any(not _same(a.arrays(), b.arrays()) for a, b in zip(first, second, strict=True))


def _same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
