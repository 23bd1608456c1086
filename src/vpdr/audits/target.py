"""The audited client, exactly as a run would build it, and the distinguishing game that is played with it.

Pairs of neighbouring datasets differ in a planted sample (a canary) that makes them easy to distinguish.
"""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client import Client, Model, Samples, Shard
from vpdr.config import RunConfig
from vpdr.errors import InvalidInput
from vpdr.federation import build, make_ledger
from vpdr.frameworks import Framework, FrameworkState, ServerContext
from vpdr.mechanisms import NoiseSource, Rapp, RappState, ReleaseContext, SeededNoise, SystemNoise
from vpdr.privacy import Adjacency, Ledger
from vpdr.rng import Streams
from vpdr.types import Features, MechanismState, Prototypes, Release
from vpdr.validation import at_least

_CANARY_SCALE = 8.0  # norm of a canary, in clip norms
_CLASS_STD = 0.3  # standard deviation of samples around their class centre, in clip norms
_RARE_CLASS_SIZE = 4  # samples of the rare class


UploadSequence: TypeAlias = tuple[Prototypes, ...]  # one per round
ServerBehaviour: TypeAlias = Callable[[int, Prototypes], Prototypes]  # round, upload -> upload it works on

_HOSTILE_SCALES = (0.0, 1.0, 1e3, -1.0)  # centres of a hostile server, in multiples of the canary


@dataclass(frozen=True, slots=True)
class ZeroNoise:
    """A noise source without noise: every draw is the median of its distribution.

    Guarantee: none. Releases made with it must never leave the audit.
    """

    @property
    def reproducible(self) -> bool:
        """True: nothing is drawn."""
        return True

    def normal(self, *shape: int) -> Float[Tensor, "..."]:
        """The median of a Gaussian."""
        return torch.zeros(shape, dtype=torch.float64)

    def uniform(self, *shape: int) -> Float[Tensor, "..."]:
        """The median of the unit interval."""
        return torch.full(shape, 0.5, dtype=torch.float64)


@dataclass(frozen=True, slots=True)
class Transcript:
    """What an attacker sees of one run: uploads, and features of a public mechanism state, round by round."""

    uploads: UploadSequence = ()
    state_features: UploadSequence = ()


def honest_server(_: int, upload: Prototypes) -> Prototypes:
    """A server that works on the upload that it received."""
    return upload


@dataclass(frozen=True, kw_only=True)
class AuditTarget:
    """The client, the framework and the number of releases of one config.

    The attacker knows everything except the noise: all other samples, initial weights, the order of batches,
    every broadcast. Differential privacy is meant to hold against such an attacker.

    Args:
        run_config: the config that the client was built from.
        client: the client as a run would build it; audited clients are copies with other data.
        releases: how many releases share the budget.
        server: what the server works on, given the upload of a round.
        streams: random streams of the planted data.

    >>> from vpdr.audits.auditor import AuditOptions, request_from_options
    >>> request_from_options(AuditOptions(mechanism="igpp", rounds=3)).target.releases
    3
    """

    run_config: RunConfig
    client: Client
    releases: int
    server: ServerBehaviour = honest_server
    streams: Streams = field(default_factory=lambda: Streams(0))

    @classmethod
    def from_config(cls, config: RunConfig, releases: int | None = None) -> "AuditTarget":
        """The first client of the federation of a config.

        Args:
            config: any config of a run; the client's own data are not used.
            releases: number of releases, if it differs from the config's.

        Raises:
            InvalidInput: the framework uploads nothing.
        """
        client = build(config).clients[0]
        if not client.framework.has_uploads:
            raise InvalidInput(
                f"framework {config.framework.kind} sends nothing, so there is nothing to audit; choose another"
            )
        streams = Streams(config.run.seed).fork("audit")
        return cls(run_config=config, client=client, releases=releases or config.releases, streams=streams)

    @property
    def framework(self) -> Framework[Any]:
        """The framework of client and server."""
        return self.client.framework

    @property
    def classes(self) -> int:
        """The public number of classes."""
        return self.client.train_config.classes

    @property
    def dim(self) -> int:
        """The dimension of the features."""
        return self.run_config.model.dim

    @property
    def clip_norm(self) -> float:
        """The clip norm R."""
        return self.client.release_config.clip_norm

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency relation of the mechanism."""
        return self.client.release_config.mechanism.adjacency

    def make_client(self, train: Samples, noise: NoiseSource, model: Model | None = None) -> Client:
        """A fresh client with these samples, this noise and a ledger without a budget."""
        no_samples = train.take(torch.zeros(0, dtype=torch.int64))
        return dataclasses.replace(
            self.client,
            id="audited",
            shard=Shard(train, no_samples),
            model=model or copy.deepcopy(self.client.model),
            release_config=dataclasses.replace(self.client.release_config, make_noise=lambda *_: noise),
            ledger=Ledger(client="audited", budget=None, adjacency=self.adjacency),
        )

    def make_client_with_real_ledger(self, train: Samples, noise: NoiseSource) -> Client:
        """A fresh client with the ledger of a real run."""
        return dataclasses.replace(self.make_client(train, noise), ledger=make_ledger(self.run_config, "audited"))

    def make_release_context(
        self,
        round: int,
        noise: NoiseSource,
        *,
        last_broadcast: Prototypes | None = None,
        state: MechanismState | None = None,
    ) -> ReleaseContext:
        """The context of one release of the audited client."""
        release_config = self.client.release_config
        return ReleaseContext(
            client="audited",
            round=round,
            classes=self.classes,
            summariser=release_config.summariser,
            encoder=release_config.encoder_kind,
            noise=noise,
            last_broadcast=last_broadcast,
            state=state or {},
        )

    def aggregate(self, round: int, upload: Prototypes, state: FrameworkState) -> tuple[Any, FrameworkState]:
        """The broadcast that the framework makes of this client's upload alone."""
        return self.framework.aggregate([self.server(round, upload)], state, self.server_context(round))

    def server_context(self, round: int) -> ServerContext:
        """The server's side of one round."""
        return ServerContext(
            round=round, classes=self.classes, dim=self.dim, streams=self.streams, weights=torch.ones(1, self.classes)
        )

    def empty_upload(self) -> Prototypes:
        """An upload without prototypes, for a round without a release."""
        return Prototypes(torch.zeros(0, self.dim), torch.zeros(0, dtype=torch.int64))


def hostile_server(audit_target: AuditTarget, canary: Tensor) -> ServerBehaviour:
    """A server that replaces uploads: all centres at the canary, far behind it, opposite to it, or at 0.

    Centres at 0 show the most of a distant sample. With five releases the last broadcast is that one, in
    front of the release on which rapp spends most.
    """
    labels = torch.arange(audit_target.classes)

    def server(round: int, _: Prototypes) -> Prototypes:
        centre = _HOSTILE_SCALES[round % len(_HOSTILE_SCALES)] * canary.float()
        return Prototypes(centre.expand(len(labels), -1).clone(), labels)

    return server


def rapp_state_features(state: MechanismState) -> Prototypes:
    """Sums, counts and the second moment of all stages so far, in units of their noise.

    An upload is a quotient of sums by noisy counts; here each number has Gaussian noise of its own. The
    second moment is one number, so only the first row has it.
    """
    stages = RappState.from_dict(state)
    counts = stages.counts / stages.counted.sqrt()
    moment = torch.zeros_like(counts)
    moment[0] = stages.moment * stages.moment_weight.sqrt()
    rows = torch.cat([stages.sums / stages.weight.sqrt(), counts[:, None], moment[:, None]], dim=1)
    return Prototypes(rows, torch.arange(len(rows)))


# Mechanisms whose state consists of released numbers alone, so that an attacker may read it as well: it can
# show more than the uploads. The state of every other mechanism is taken to be private.
PUBLIC_STATE_FEATURES: dict[type, Callable[[MechanismState], Prototypes]] = {Rapp: rapp_state_features}


@dataclass(frozen=True, slots=True)
class StaticClient:
    """A client whose features do not change, and whether its releases depend on the server."""

    target: AuditTarget
    features: Features
    depends_on_server: bool = True

    @classmethod
    def from_samples(cls, target: AuditTarget, samples: Samples) -> "StaticClient":
        """Encode the samples once, and try whether releases without noise depend on the broadcasts."""
        client = target.make_client(samples, ZeroNoise())
        features = Features(client.released_features(samples), samples.labels)
        with_server, without_server = (cls(target, features, depends) for depends in (True, False))
        differ = _uploads_differ(with_server.run(ZeroNoise()).uploads, without_server.run(ZeroNoise()).uploads)
        return with_server if differ else without_server

    @property
    def has_public_state(self) -> bool:
        """Whether an attacker may read the state of the mechanism."""
        return type(self.target.client.release_config.mechanism) in PUBLIC_STATE_FEATURES

    def run(self, noise: NoiseSource) -> Transcript:
        """All releases, in the order of the rounds."""
        return self.run_with_expectations(noise, ())[0]

    def run_with_expectations(self, noise: NoiseSource, hypotheses: tuple["StaticClient", ...]) -> list[Transcript]:
        """All releases, and what each hypothesis would have released without noise in place of each of them.

        The hypotheses share the past of this run: its broadcasts, and its mechanism state where that is
        public. Noise is then the only difference between the run and the true hypothesis.
        """
        target, clients = self.target, (self, *hypotheses)
        sources = [noise, *(ZeroNoise() for _ in hypotheses)]
        transcripts = [Transcript() for _ in clients]
        states: list[MechanismState] = [{} for _ in clients]
        last_broadcast: Prototypes | None = None
        server_state = target.framework.init_state(target.server_context(0)) if self.depends_on_server else {}
        for round in range(1, target.releases + 1):
            releases = [
                client._release(target.make_release_context(round, source, last_broadcast=last_broadcast, state=state))
                for client, source, state in zip(clients, sources, states, strict=True)
            ]
            transcripts = [self._append(*pair) for pair in zip(transcripts, releases, strict=True)]
            states = [releases[0].state if self.has_public_state else each.state for each in releases]
            if self.depends_on_server and round < target.releases:
                broadcast, server_state = target.aggregate(round, releases[0].prototypes, server_state)
                last_broadcast = target.framework.global_prototypes(broadcast)
        return transcripts

    def _release(self, context: ReleaseContext) -> Release:
        mechanism = self.target.client.release_config.mechanism
        return mechanism.release(self.features.vectors, self.features.labels, context)

    def _append(self, transcript: Transcript, release: Release) -> Transcript:
        features = transcript.state_features
        if self.has_public_state:
            read = PUBLIC_STATE_FEATURES[type(self.target.client.release_config.mechanism)]
            features = (*features, read(release.state))
        return Transcript((*transcript.uploads, release.prototypes), features)


def _uploads_differ(first: UploadSequence, second: UploadSequence) -> bool:
    return any(not _arrays_equal(a.to_arrays(), b.to_arrays()) for a, b in zip(first, second, strict=True))


def _arrays_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# Pairs of neighbouring datasets, which every mechanism must make hard to tell apart.


@dataclass(frozen=True, slots=True)
class NeighbourPair:
    """Two datasets that differ in one sample."""

    name: str
    description: str
    first: Samples
    second: Samples
    canary: Float[Tensor, " d"]

    @property
    def datasets(self) -> tuple[Samples, Samples]:
        """Both datasets."""
        return self.first, self.second


def pairs_for(target: AuditTarget) -> list[NeighbourPair]:
    """All planted pairs that are neighbours under the target's adjacency."""
    return [make(target) for make in _PAIR_FACTORIES[target.adjacency]]


def background_samples(target: AuditTarget) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Balanced classes of samples around centres on the sphere of the clip norm."""
    rng = target.streams.generator("crowd")
    per_class = max(2, target.run_config.benchmark.samples // target.classes)
    centres = torch.randn(target.classes, target.dim, generator=rng)
    labels = torch.arange(target.classes).repeat_interleave(per_class)
    noise = _CLASS_STD / target.dim**0.5 * torch.randn(len(labels), target.dim, generator=rng)
    vectors: Tensor = target.clip_norm * (torch.nn.functional.normalize(centres)[labels] + noise)
    return vectors, labels


def antipodal_canary(target: AuditTarget) -> NeighbourPair:
    """A distant sample against its opposite in the same class: as far as a clipped mean can move."""
    vectors, labels = background_samples(target)
    vectors[0] = _diagonal_canary(target)
    description = "one sample far out, against its opposite"
    return _replace_first("antipodal", description, vectors, labels, -vectors[0], int(labels[0]))


def mislabelled_canary(target: AuditTarget) -> NeighbourPair:
    """A typical sample against a distant one of the next class under the same label: it changes training."""
    vectors, labels = background_samples(target)
    foreign = vectors[labels == 1].mean(0)
    scale = f"{_CANARY_SCALE:g} times as long"
    description = f"one ordinary sample, against one of the next class, {scale}, under its label"
    return _replace_first("mislabelled", description, vectors, labels, _CANARY_SCALE * foreign, int(labels[0]))


def relabelled_canary(target: AuditTarget) -> NeighbourPair:
    """The same distant sample under two labels, in a rare class: counts change too."""
    vectors, labels = _with_rare_class(target, _RARE_CLASS_SIZE)
    vectors[0] = _diagonal_canary(target)
    description = f"one far sample, in a class of {_RARE_CLASS_SIZE} or in the next"
    return _replace_first("relabelled", description, vectors, labels, vectors[0].clone(), 1)


def class_disappears(target: AuditTarget) -> NeighbourPair:
    """The only sample of its class gets another label: the class is present, or it is not."""
    vectors, labels = _with_rare_class(target, 1)
    description = "the only sample of a class, or none"
    return _replace_first("vanishing", description, vectors, labels, vectors[0].clone(), 1)


def sample_removed(target: AuditTarget) -> NeighbourPair:
    """A distant sample, or none."""
    vectors, labels = background_samples(target)
    vectors[0] = _diagonal_canary(target)
    return _remove_first("absent", "one far sample, or none", vectors, labels)


def only_sample_removed(target: AuditTarget) -> NeighbourPair:
    """The only sample of its class, or none."""
    vectors, labels = _with_rare_class(target, 1)
    return _remove_first("last of its class", "the only sample of a class, or none", vectors, labels)


_PAIR_FACTORIES: dict[Adjacency, tuple[Callable[[AuditTarget], NeighbourPair], ...]] = {
    Adjacency.REPLACE_SAME_LABEL: (antipodal_canary, mislabelled_canary),
    Adjacency.REPLACE_ONE: (antipodal_canary, mislabelled_canary, relabelled_canary, class_disappears),
    Adjacency.ADD_REMOVE: (sample_removed, only_sample_removed),
}


def _diagonal_canary(target: AuditTarget) -> Float[Tensor, " d"]:
    """A distant sample with equal coordinates, so that every group of coordinates is clipped."""
    return torch.full((target.dim,), _CANARY_SCALE * target.clip_norm / target.dim**0.5)


def _with_rare_class(target: AuditTarget, size: int) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Background samples, with only `size` samples of the first class."""
    vectors, labels = background_samples(target)
    rows = torch.cat([torch.where(labels == 0)[0][:size], torch.where(labels != 0)[0]])
    return vectors[rows], labels[rows]


def _replace_first(
    name: str,
    description: str,
    vectors: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    new_vector: Float[Tensor, " d"],
    new_label: int,
) -> NeighbourPair:
    other_vectors, other_labels = vectors.clone(), labels.clone()
    other_vectors[0], other_labels[0] = new_vector, new_label
    second = Samples(other_vectors, other_labels)
    return NeighbourPair(name, description, Samples(vectors, labels), second, vectors[0])


def _remove_first(
    name: str, description: str, vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"]
) -> NeighbourPair:
    second = Samples(vectors[1:], labels[1:])
    return NeighbourPair(name, description, Samples(vectors, labels), second, vectors[0])


# The distinguishing game: runs of one client on two datasets, beside the runs of each without noise.


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
