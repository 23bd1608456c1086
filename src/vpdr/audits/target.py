"""The audited client, exactly as a run would build it, and a server that answers it.

`AuditTarget` creates clients on planted data. `StaticClient` is the fast path for clients whose features do
not change: they are computed once, and only the releases are repeated.
"""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.client import Client, Model, Samples, Shard
from vpdr.config import RunConfig
from vpdr.errors import InvalidInput
from vpdr.federation import build, make_ledger
from vpdr.frameworks import Framework, FrameworkState, ServerContext
from vpdr.mechanisms import NoiseSource, Rapp, RappState, ReleaseContext
from vpdr.privacy import Adjacency, Ledger
from vpdr.rng import Streams
from vpdr.types import Features, MechanismState, Prototypes, Release

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

    >>> from vpdr.audits.request import AuditOptions, request_from_options
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
