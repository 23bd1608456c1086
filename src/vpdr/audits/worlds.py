"""Runs of the same client on two datasets, and what an attacker expects of each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from vpdr.audits.fixed import Fixed
from vpdr.audits.pairs import Pair
from vpdr.audits.silence import Silence
from vpdr.audits.subject import Subject, Told, Transcript
from vpdr.client import Client, Samples
from vpdr.mechanisms import NoiseSource
from vpdr.types import Prototypes

NoiseMaker: TypeAlias = Callable[[], NoiseSource]
Guess: TypeAlias = tuple[Client, list[Prototypes]]


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: which world it was, what was told, and what each world would have told without noise."""

    world: int
    told: Told
    expected: tuple[Told, Told]


def learns(subject: Subject, samples: Samples) -> bool:
    """Whether training changes what is released: the features are compared, no declaration is believed."""
    client = subject.with_data(samples, Silence())
    before = client.released_features(samples)
    upload = client.release(1) or subject.nothing()
    broadcast, _ = subject.answer(1, upload, subject.framework.start(subject.now(0)))
    client.finetune(broadcast, 1)
    return not torch.equal(before, client.released_features(samples))


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Two worlds ready to be run."""

    subject: Subject
    pair: Pair
    fixed: tuple[Fixed, Fixed] | None = None  # where nothing is learnt
    quiet: tuple[Told, Told] | None = None  # expectations, where they hold for all runs

    @classmethod
    def of(cls, subject: Subject, pair: Pair) -> "Stage":
        """Expectations are made once where neither client nor mechanism learns, and else in every run."""
        if any(learns(subject, samples) for samples in pair.worlds):
            return cls(subject=subject, pair=pair)
        fixed = Fixed.of(subject, pair.first), Fixed.of(subject, pair.second)
        if any(each.listens or each.is_open for each in fixed):
            return cls(subject=subject, pair=pair, fixed=fixed)
        quiet = fixed[0].play(Silence()), fixed[1].play(Silence())
        return cls(subject=subject, pair=pair, fixed=fixed, quiet=quiet)

    @property
    def replays(self) -> bool:
        """Whether training is replayed under both hypotheses in every run."""
        return self.fixed is None

    @property
    def listens(self) -> bool:
        """Whether a release depends on what the server says."""
        return self.fixed is None or any(each.listens for each in self.fixed)

    def run(self, world: int, noise: NoiseMaker) -> Trial:
        """One run in one of the worlds.

        With replay: both hypotheses are trained on the broadcasts of this very run, and the run itself is
        the hypothesis that is true, with noise. Their difference is the exact adaptive likelihood ratio.
        Where training is private nobody can repeat it: the run trains by itself, and the hypotheses say what
        it would have come to without noise.
        """
        if self.fixed is not None and self.quiet is not None:
            return Trial(world, self.fixed[world].play(noise()), self.quiet)
        if self.fixed is not None:
            told, first, second = self.fixed[world].followed(noise(), self.fixed)
            return Trial(world, told, (first, second))
        guesses = [self.subject.with_data(samples, Silence()) for samples in self.pair.worlds]
        shared = None if self.subject.client.trainer else guesses[world].model
        sender = self.subject.with_data(self.pair.worlds[world], noise(), shared)
        guessed: tuple[list[Prototypes], list[Prototypes]] = ([], [])
        sent = play(self.subject, sender, list(zip(guesses, guessed, strict=True)))
        return Trial(world, Told(sent), (Told(tuple(guessed[0])), Told(tuple(guessed[1]))))


def play(subject: Subject, sender: Client, guesses: list[Guess]) -> Transcript:
    """All releases of one client; guesses train on the same broadcasts and tell what they would send.

    The sender shares its model with the guess that is right, so that nothing is trained twice; one that is
    trained with noise trains by itself.
    """
    memory = subject.framework.start(subject.now(0))
    sent = []
    for t in range(1, subject.releases + 1):
        for guess, told in guesses:
            told.append(guess.release(t) or subject.nothing())
        upload = sender.release(t) or subject.nothing()
        sent.append(upload)
        if t < subject.releases:
            broadcast, memory = subject.answer(t, upload, memory)
            if sender.trainer:
                sender.finetune(broadcast, t)
            sender.heard = broadcast
            for guess, _ in guesses:
                guess.finetune(broadcast, t)
    return tuple(sent)
