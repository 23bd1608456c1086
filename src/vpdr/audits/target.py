"""The audited client, exactly as a run would build it, and the distinguishing game that is played with it.

Pairs of neighbouring datasets differ in a planted sample (a canary) that makes them easy to distinguish.
"""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any, TypeAlias

import torch

from vpdr.client import Client, Model, Samples, Shard
from vpdr.config import RunConfig, resolve
from vpdr.federation import build
from vpdr.frameworks import FrameworkState, ServerContext
from vpdr.mechanisms import Rapp, RappState, ReleaseContext, SeededNoise, SystemNoise, base
from vpdr.privacy import Adjacency, Event, Ledger
from vpdr.rng import Streams
from vpdr.types import Features, Float, Int, Int64, MechanismState, Prototypes, Tensor
from vpdr.validation import InvalidInput, at_least

SEARCHED_PAIR, SEARCH_TRIES = "restless", 24  # the pair that is searched for, and how many are tried
_CANARY_SCALE = 8.0  # norm of a canary, in clip norms
_CLASS_STD = 0.3  # standard deviation of samples around their class centre, in clip norms
_RARE_CLASS_SIZE = 4  # samples of the rare class
_HOSTILE_SCALES = (0.0, 1.0, 1e3, -1.0)  # centres of a hostile server, in multiples of the canary

UploadSequence: TypeAlias = tuple[Prototypes, ...]  # one per round
ServerBehaviour: TypeAlias = Callable[[int, Prototypes], Prototypes]  # round, upload -> upload it works on
NoiseFactory: TypeAlias = Callable[[], base.NoiseSource]
Hypothesis: TypeAlias = tuple[Client, list[Prototypes]]  # a client without noise, and its uploads


@dataclass(frozen=True, slots=True)
class ZeroNoise:
    """A noise source without noise: every draw is zero.

    Guarantee: none. Releases made with it must never leave the audit.
    """

    @property
    def reproducible(self) -> bool:
        return True

    def rounded_gaussian(self, scales: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        return torch.zeros_like(scales)

    def discrete_laplace(self, scales: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        return torch.zeros_like(scales)


def make_noise_factory(seed: int | None) -> NoiseFactory:
    """A fresh noise source for every run: the system's, or a seeded one that makes the audit repeatable."""
    if seed is None:
        return SystemNoise
    at_least(0, seed=seed)
    streams, runs = Streams(seed).fork("audit"), count()
    return lambda: SeededNoise(streams.generator("noise", round=next(runs)))


@dataclass(frozen=True, kw_only=True)
class AuditTarget:
    """The client, the framework and the number of releases of one config.

    The attacker knows everything except the noise: all other samples, initial weights, the order of batches,
    every broadcast. Differential privacy is meant to hold against such an attacker.
    """

    run_config: RunConfig
    client: Client  # as a run would build it; audited clients are copies with other data
    releases: int  # how many releases share the budget
    server: ServerBehaviour | None = None  # what the server works on, given an upload; by default the upload itself
    streams: Streams = field(default_factory=lambda: Streams(0))  # of the planted data

    @classmethod
    def from_config(cls, config: RunConfig, releases: int | None = None) -> "AuditTarget":
        """The first client of the federation of a config; its own data are not used."""
        client = build(config).clients[0]
        if not client.framework.has_uploads:
            raise InvalidInput(
                f"framework {config.framework.kind} sends nothing, so there is nothing to audit; choose another"
            )
        streams = Streams(config.run.seed).fork("audit")
        return cls(run_config=config, client=client, releases=releases or config.releases, streams=streams)

    def describe(self) -> dict[str, object]:
        config, release_config = self.run_config, self.client.release_config
        return {
            "mechanism": config.mechanism.kind,
            "summariser": type(release_config.summariser).__name__,
            "framework": config.framework.kind,
            "encoder": str(release_config.encoder_kind),
            "adjacency": str(self.adjacency),
            "releases": self.releases,
            "dim": self.dim,
            "classes": self.classes,
            "samples": config.benchmark.samples,
            "settings": asdict(config.mechanism),
        }

    @property
    def classes(self) -> int:
        return self.client.train_config.classes

    @property
    def dim(self) -> int:
        return self.run_config.model.dim

    @property
    def clip_norm(self) -> float:
        return self.client.release_config.clip_norm

    @property
    def adjacency(self) -> Adjacency:
        return self.client.release_config.mechanism.adjacency

    def make_client(self, train: Samples, noise: base.NoiseSource, model: Model | None = None) -> Client:
        """A fresh client with these samples, this noise and a ledger without a budget."""
        no_samples = train.take(torch.zeros(0, dtype=torch.int64))
        return replace(
            self.client,
            id="audited",
            shard=Shard(train, no_samples),
            model=model or copy.deepcopy(self.client.model),
            release_config=replace(self.client.release_config, make_noise=lambda *_: noise),
            ledger=self.ledger_without_budget(),
        )

    def ledger_without_budget(self) -> Ledger:
        """A ledger that records every release of an audit and limits none."""
        return Ledger(client="audited", budget=None, adjacency=self.adjacency)

    def make_release_context(
        self, round: int, noise: base.NoiseSource, state: MechanismState, last_broadcast: Prototypes | None = None
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
            state=state,
        )

    def release(self, client: Client, round: int) -> Prototypes:
        """The upload of one round; without prototypes if there is no release."""
        no_prototypes = Prototypes(torch.zeros(0, self.dim), torch.zeros(0, dtype=torch.int64))
        return client.release(round) or no_prototypes

    def init_server_state(self) -> FrameworkState:
        return self.client.framework.init_state(self._server_context(0))

    def aggregate(self, round: int, upload: Prototypes, state: FrameworkState) -> tuple[Any, FrameworkState]:
        """The broadcast that the framework makes of this client's upload alone."""
        received = upload if self.server is None else self.server(round, upload)
        return self.client.framework.aggregate([received], state, self._server_context(round))

    def _server_context(self, round: int) -> ServerContext:
        return ServerContext(
            round=round, classes=self.classes, dim=self.dim, streams=self.streams, weights=torch.ones(1, self.classes)
        )

    def first_broadcast(self, client: Client) -> Any:
        """What the server makes of a client's first release."""
        return self.aggregate(1, self.release(client, 1), self.init_server_state())[0]

    def run_client(self, client: Client, hypotheses: list[Hypothesis]) -> UploadSequence:
        """All releases of one client; hypotheses train on the same broadcasts and record their own uploads.

        The client shares its model with the true hypothesis, so that nothing is trained twice. A client with
        private training trains by itself.
        """
        server_state = self.init_server_state()
        uploads = []
        for round in range(1, self.releases + 1):
            for hypothesis, expected in hypotheses:
                expected.append(self.release(hypothesis, round))
            uploads.append(self.release(client, round))
            if round < self.releases:
                broadcast, server_state = self.aggregate(round, uploads[-1], server_state)
                if client.dpsgd_trainer:
                    client.finetune(broadcast, round)
                client.last_broadcast = broadcast
                for hypothesis, _ in hypotheses:
                    hypothesis.finetune(broadcast, round)
        return tuple(uploads)

    def ledger_after_all_releases(self, noise: base.NoiseSource) -> Ledger:
        """The ledger of a client as a run would keep it; it depends on no sample, so planted ones suffice."""
        ledger = resolve.make_ledger(self.run_config, "audited")
        client = replace(self.make_client(pairs_for(self)[0].first, noise), ledger=ledger)
        self.run_client(client, [])
        return client.ledger

    def planned_events(self) -> list[Event]:
        """The events of all releases in order; they depend on no sample, so planted ones suffice."""
        samples, ledger = background_samples(self), self.ledger_without_budget()
        state: MechanismState = {}
        events: list[Event] = []
        for round in range(1, self.releases + 1):
            context = self.make_release_context(round, ZeroNoise(), state)
            release = self.client.release_config.mechanism.release(samples.frozen_features, samples.labels, context)
            events += release.receipt.events
            release.charge_to(ledger, round=round)
            state = release.state
        return events

    def features_depend_on_training(self, samples: Samples) -> bool:
        """Whether training changes the released features, by comparison: declared traits are not trusted."""
        client = self.make_client(samples, ZeroNoise())
        before = client.released_features(samples)
        client.finetune(self.first_broadcast(client), 1)
        return not torch.equal(before, client.released_features(samples))


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
        return self.first, self.second


def pairs_for(target: AuditTarget) -> list[NeighbourPair]:
    """All planted pairs that are neighbours under the target's adjacency."""
    if target.adjacency is Adjacency.REPLACE_SAME_LABEL:
        return [antipodal_canary(target), mislabelled_canary(target)]
    single, description = background_samples(target, first_class_size=1), "the only sample of a class, or none"
    if target.adjacency is Adjacency.REPLACE_ONE:
        rare = background_samples(target, first_class_size=_RARE_CLASS_SIZE, far=True)
        in_rare_class = f"one far sample, in a class of {_RARE_CLASS_SIZE} or in the next"
        return [
            antipodal_canary(target),
            mislabelled_canary(target),
            _replace_first("relabelled", in_rare_class, rare, rare.frozen_features[0], 1),  # counts change too
            _replace_first("vanishing", description, single, single.frozen_features[0], 1),
        ]
    return [
        _remove_first("absent", "one far sample, or none", background_samples(target, far=True)),
        _remove_first("last of its class", description, single),
    ]


def antipodal_canary(target: AuditTarget) -> NeighbourPair:
    """A distant sample against its opposite in the same class: as far as a clipped mean can move."""
    far = background_samples(target, far=True)
    return _replace_first("antipodal", "one sample far out, against its opposite", far, -far.frozen_features[0], 0)


def mislabelled_canary(target: AuditTarget) -> NeighbourPair:
    """A typical sample against a distant one of the next class under the same label: it changes training."""
    first = background_samples(target)
    foreign = first.frozen_features[first.labels == 1].mean(0)
    scale = f"{_CANARY_SCALE:g} times as long"
    description = f"one ordinary sample, against one of the next class, {scale}, under its label"
    return _replace_first("mislabelled", description, first, _CANARY_SCALE * foreign, 0)


def _replace_first(
    name: str, description: str, first: Samples, new_vector: Float[Tensor, " d"], new_label: int
) -> NeighbourPair:
    vectors, labels = first.frozen_features.clone(), first.labels.clone()
    vectors[0], labels[0] = new_vector, new_label
    return NeighbourPair(name, description, first, Samples(vectors, labels), first.frozen_features[0])


def _remove_first(name: str, description: str, first: Samples) -> NeighbourPair:
    second = first.take(torch.arange(1, len(first.labels)))
    return NeighbourPair(name, description, first, second, first.frozen_features[0])


def random_pairs(target: AuditTarget) -> list[NeighbourPair]:
    """Random samples without class structure, and another draw for one of them.

    A replacement within a class is a neighbour under both replacing adjacencies; under add-remove the
    replaced sample is left out instead.
    """
    labels, std = _balanced_labels(target), target.clip_norm / target.dim**0.5
    pairs = []
    for attempt in range(SEARCH_TRIES):
        rng = target.streams.generator("restless", round=attempt)
        vectors = torch.randn(len(labels), target.dim, generator=rng).mul(std)
        row = int(torch.randint(len(labels), (1,), generator=rng))
        other, rows = vectors.clone(), torch.arange(len(labels))
        other[row] = torch.randn(1, target.dim, generator=rng).mul(std)[0]
        if target.adjacency is Adjacency.ADD_REMOVE:
            rows = rows[rows != row]
        second = Samples(other[rows], labels[rows])
        description = f"one ordinary sample against another, the worst of {SEARCH_TRIES} tries"
        pairs.append(NeighbourPair(SEARCHED_PAIR, description, Samples(vectors, labels), second, other[row]))
    return pairs


def background_samples(target: AuditTarget, *, first_class_size: int | None = None, far: bool = False) -> Samples:
    """Balanced classes of samples around centres on the sphere of the clip norm.

    The first class may be smaller. A far first sample has equal coordinates, so that every group of them is clipped.
    """
    rng = target.streams.generator("crowd")
    centres = torch.randn(target.classes, target.dim, generator=rng)
    labels = _balanced_labels(target)
    noise = _CLASS_STD / target.dim**0.5 * torch.randn(len(labels), target.dim, generator=rng)
    vectors: Tensor = target.clip_norm * (torch.nn.functional.normalize(centres)[labels] + noise)
    rows = torch.cat([torch.where(labels == 0)[0][:first_class_size], torch.where(labels != 0)[0]])
    vectors, labels = vectors[rows], labels[rows]
    if far:
        vectors[0] = _CANARY_SCALE * target.clip_norm / target.dim**0.5
    return Samples(vectors, labels)


def _balanced_labels(target: AuditTarget) -> Int[Tensor, " n"]:
    per_class = max(2, target.run_config.benchmark.samples // target.classes)
    return torch.arange(target.classes).repeat_interleave(per_class)


# The distinguishing game: runs of one client on two datasets, beside the runs of each without noise.


@dataclass(frozen=True, slots=True)
class Transcript:
    """What an attacker sees of one run: uploads, and features of a public mechanism state, round by round."""

    uploads: UploadSequence = ()
    state_features: UploadSequence = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: its world, its transcript, and the transcript of each world without noise."""

    world: int
    transcript: Transcript
    expected: tuple[Transcript, Transcript]


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
        features = Features(target.make_client(samples, ZeroNoise()).released_features(samples), samples.labels)
        with_server, without_server = (cls(target, features, depends) for depends in (True, False))
        uploads = (client.run(ZeroNoise()).uploads for client in (with_server, without_server))
        for first, second in zip(*uploads, strict=True):
            a, b = first.to_arrays(), second.to_arrays()
            if a.keys() != b.keys() or not all(torch.equal(a[name], b[name]) for name in a):
                return with_server
        return without_server

    @property
    def has_public_state(self) -> bool:
        """Whether an attacker may read the state of the mechanism."""
        return type(self.target.client.release_config.mechanism) in PUBLIC_STATE_FEATURES

    def run(self, noise: base.NoiseSource) -> Transcript:
        return self.run_with_expectations(noise, ())[0]

    def run_with_expectations(
        self, noise: base.NoiseSource, hypotheses: tuple["StaticClient", ...]
    ) -> list[Transcript]:
        """All releases, and what each hypothesis would have released without noise in place of each of them.

        The hypotheses share the past of this run: its broadcasts, and its mechanism state where that is
        public. Noise is then the only difference between the run and the true hypothesis.
        """
        target, mechanism, clients = self.target, self.target.client.release_config.mechanism, (self, *hypotheses)
        sources = [noise, *(ZeroNoise() for _ in hypotheses)]
        uploads: list[list[Prototypes]] = [[] for _ in clients]
        state_features: list[list[Prototypes]] = [[] for _ in clients]
        states: list[MechanismState] = [{} for _ in clients]
        last_broadcast: Prototypes | None = None
        server_state = target.init_server_state() if self.depends_on_server else {}
        ledger = target.ledger_without_budget()
        for round in range(1, target.releases + 1):
            past = states[:1] * len(clients) if self.has_public_state else states
            for index, (client, source) in enumerate(zip(clients, sources, strict=True)):
                context = target.make_release_context(round, source, past[index], last_broadcast)
                release = mechanism.release(client.features.vectors, client.features.labels, context)
                uploads[index].append(release.charge_to(ledger, round=round))
                states[index] = release.state
                if self.has_public_state:
                    state_features[index].append(PUBLIC_STATE_FEATURES[type(mechanism)](release.state))
            if self.depends_on_server and round < target.releases:
                broadcast, server_state = target.aggregate(round, uploads[0][-1], server_state)
                last_broadcast = target.client.framework.global_prototypes(broadcast)
        return [Transcript(tuple(sent), tuple(seen)) for sent, seen in zip(uploads, state_features, strict=True)]


@dataclass(frozen=True, kw_only=True)
class DistinguishingGame:
    """A pair of neighbouring datasets, ready to be run."""

    target: AuditTarget
    pair: NeighbourPair
    static_clients: tuple[StaticClient, StaticClient] | None = None  # if training does not change releases
    fixed_expectations: tuple[Transcript, Transcript] | None = None  # if they are the same in all runs

    @classmethod
    def prepare(cls, target: AuditTarget, pair: NeighbourPair, *, hostile: bool = False) -> "DistinguishingGame":
        """Compute the expectations once if neither training nor the server matters, else in every run.

        A hostile server replaces uploads: all centres at the canary, far behind it, opposite to it, or at 0.
        Centres at 0 show the most of a distant sample. With five releases the last broadcast is that one, in
        front of the release on which rapp spends most.
        """
        if hostile:

            def server(round: int, _: Prototypes) -> Prototypes:
                centre = _HOSTILE_SCALES[round % len(_HOSTILE_SCALES)] * pair.canary.float()
                return Prototypes(centre.expand(target.classes, -1).clone(), torch.arange(target.classes))

            target = replace(target, server=server)
        if any(target.features_depend_on_training(samples) for samples in pair.datasets):
            return cls(target=target, pair=pair)
        clients = (StaticClient.from_samples(target, pair.first), StaticClient.from_samples(target, pair.second))
        if any(client.depends_on_server or client.has_public_state for client in clients):
            return cls(target=target, pair=pair, static_clients=clients)
        expectations = clients[0].run(ZeroNoise()), clients[1].run(ZeroNoise())
        return cls(target=target, pair=pair, static_clients=clients, fixed_expectations=expectations)

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
        uploads = self.target.run_client(sender, list(zip(clients, expected, strict=True)))
        return Trial(world, Transcript(uploads), (Transcript(tuple(expected[0])), Transcript(tuple(expected[1]))))
