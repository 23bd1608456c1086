"""A client that learns nothing: its features are computed once, and only the releases are repeated."""

from dataclasses import dataclass
from typing import Any

import torch

from vpdr.audits.silence import Silence
from vpdr.audits.subject import Subject, Transcript
from vpdr.client import Samples
from vpdr.mechanisms import NoiseSource, Occasion
from vpdr.types import Features, Memory, Prototypes


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
        return loud if _differ(loud.play(Silence()), deaf.play(Silence())) else deaf

    def play(self, noise: NoiseSource) -> Transcript:
        """All releases, in the order of the rounds."""
        subject = self.subject
        heard: Prototypes | None = None
        memory: Memory = {}
        server = subject.framework.start(subject.now(0)) if self.listens else {}
        sent = []
        for t in range(1, subject.releases + 1):
            made = subject.client.promise.mechanism.release(
                self.features.vectors, self.features.labels, self._occasion(t, noise, heard, memory)
            )
            sent.append(made.prototypes)
            memory = made.memory
            if self.listens and t < subject.releases:
                broadcast, server = subject.answer(t, made.prototypes, server)
                heard = subject.framework.anchors(broadcast)
        return tuple(sent)

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
