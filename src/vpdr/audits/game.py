"""The distinguishing game: runs of one client on two datasets, beside the runs of each without noise."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

import torch

from vpdr.audits.pairs import NeighbourPair
from vpdr.audits.target import AuditTarget, StaticClient, Transcript, UploadSequence, ZeroNoise
from vpdr.client import Client, Samples
from vpdr.mechanisms import NoiseSource, SeededNoise, SystemNoise
from vpdr.rng import Streams
from vpdr.types import Prototypes
from vpdr.validation import at_least

NoiseFactory: TypeAlias = Callable[[], NoiseSource]
Hypothesis: TypeAlias = tuple[Client, list[Prototypes]]  # a client without noise, and its uploads


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: its world, its transcript, and the transcript of each world without noise."""

    world: int
    transcript: Transcript
    expected: tuple[Transcript, Transcript]


@dataclass(frozen=True, kw_only=True)
class DistinguishingGame:
    """A pair of neighbouring datasets, ready to be run."""

    target: AuditTarget
    pair: NeighbourPair
    static_clients: tuple[StaticClient, StaticClient] | None = None  # if training does not change releases
    fixed_expectations: tuple[Transcript, Transcript] | None = None  # if they are the same in all runs

    @classmethod
    def prepare(cls, target: AuditTarget, pair: NeighbourPair) -> "DistinguishingGame":
        """Compute the expectations once if neither training nor the server matters, else in every run."""
        if any(features_depend_on_training(target, samples) for samples in pair.datasets):
            return cls(target=target, pair=pair)
        clients = (StaticClient.from_samples(target, pair.first), StaticClient.from_samples(target, pair.second))
        if any(client.depends_on_server or client.has_public_state for client in clients):
            return cls(target=target, pair=pair, static_clients=clients)
        expectations = clients[0].run(ZeroNoise()), clients[1].run(ZeroNoise())
        return cls(target=target, pair=pair, static_clients=clients, fixed_expectations=expectations)

    @property
    def replays_training(self) -> bool:
        """Whether every run replays the training under both hypotheses."""
        return self.static_clients is None

    @property
    def depends_on_server(self) -> bool:
        """Whether a release depends on the broadcasts."""
        return self.static_clients is None or any(client.depends_on_server for client in self.static_clients)

    def run(self, world: int, noise: NoiseFactory) -> Trial:
        """One run in one of the worlds.

        With replayed training both hypotheses train on the broadcasts of this very run, and the run itself is
        the true hypothesis with noise: the difference of the two is the exact adaptive likelihood ratio.
        Private training is random and cannot be replayed: the run then trains by itself, and the hypotheses
        train without noise.
        """
        if self.static_clients is not None and self.fixed_expectations is not None:
            return Trial(world, self.static_clients[world].run(noise()), self.fixed_expectations)
        if self.static_clients is not None:
            transcript, first, second = self.static_clients[world].run_with_expectations(noise(), self.static_clients)
            return Trial(world, transcript, (first, second))
        clients = [self.target.make_client(samples, ZeroNoise()) for samples in self.pair.datasets]
        shared_model = None if self.target.client.dpsgd_trainer else clients[world].model
        sender = self.target.make_client(self.pair.datasets[world], noise(), shared_model)
        expected: tuple[list[Prototypes], list[Prototypes]] = ([], [])
        uploads = run_client(self.target, sender, list(zip(clients, expected, strict=True)))
        return Trial(world, Transcript(uploads), (Transcript(tuple(expected[0])), Transcript(tuple(expected[1]))))


def run_client(target: AuditTarget, client: Client, hypotheses: list[Hypothesis]) -> UploadSequence:
    """All releases of one client; hypotheses train on the same broadcasts and record their own uploads.

    The client shares its model with the true hypothesis, so that nothing is trained twice. A client with
    private training trains by itself.
    """
    server_state = target.framework.init_state(target.server_context(0))
    uploads = []
    for round in range(1, target.releases + 1):
        for hypothesis, expected in hypotheses:
            expected.append(hypothesis.release(round) or target.empty_upload())
        upload = client.release(round) or target.empty_upload()
        uploads.append(upload)
        if round < target.releases:
            broadcast, server_state = target.aggregate(round, upload, server_state)
            if client.dpsgd_trainer:
                client.finetune(broadcast, round)
            client.last_broadcast = broadcast
            for hypothesis, _ in hypotheses:
                hypothesis.finetune(broadcast, round)
    return tuple(uploads)


def features_depend_on_training(target: AuditTarget, samples: Samples) -> bool:
    """Whether training changes the released features, by comparison: declared traits are not trusted."""
    client = target.make_client(samples, ZeroNoise())
    before = client.released_features(samples)
    upload = client.release(1) or target.empty_upload()
    broadcast, _ = target.aggregate(1, upload, target.framework.init_state(target.server_context(0)))
    client.finetune(broadcast, 1)
    return not torch.equal(before, client.released_features(samples))


def make_noise_factory(seed: int | None) -> NoiseFactory:
    """A fresh noise source for every run: the system's, or a seeded one that makes the audit repeatable."""
    if seed is None:
        return SystemNoise
    at_least(0, seed=seed)
    streams, runs = Streams(seed).fork("audit"), count()
    return lambda: SeededNoise(streams.generator("noise", round=next(runs)))
