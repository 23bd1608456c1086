"""From a config to a federation: clients with their releases and ledgers, and the server."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vpdr.client import Client, Model, ReleaseConfig, TrainConfig
from vpdr.config import RunConfig, rules
from vpdr.data.benchmark import Split
from vpdr.encoder.personal import AdapterConfig, make_encoder, make_head
from vpdr.federation.benchmarks import ClientSetup, load_clients
from vpdr.frameworks import Framework, FrameworkState, ServerContext
from vpdr.mechanisms import base, split_budget_with_training
from vpdr.privacy import Adjacency, Ledger, NoiseOrigin
from vpdr.prototypes import SUMMARISERS, ClassMeans, summarisers
from vpdr.rng import Streams
from vpdr.types import Float, ProgressCallback, Prototypes, Tensor, no_progress


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """The server: it knows the config, the clients' names and public weights; it has no data and no models.

    Guarantee: a broadcast is computed from uploads and public numbers only, so it costs no privacy.

    Args:
        config: the config of the run.
        framework: how uploads are aggregated.
        names: the clients' names, sorted.
        classes: the public number of classes.
        weights: the weight of each client in each class; row i belongs to names[i].

    >>> from vpdr.config import RunConfig
    >>> from vpdr.federation import build
    >>> server = build(RunConfig.from_dict({"benchmark": {"kind": "synthetic"}, "model": {"dim": 8}})).server
    >>> server.sample_participants(1) == list(server.names)
    True
    """

    config: RunConfig
    framework: Framework[Any]
    names: tuple[str, ...]
    classes: int
    weights: Float[Tensor, "m c"]

    def init_state(self) -> FrameworkState:
        """The framework's state before the first round."""
        return self.framework.init_state(self.context(0, self.names))

    def sample_participants(self, round: int) -> list[str]:
        """The clients of a round: by the schedule if there is one, else drawn from seed and round alone.

        Args:
            round: the round, from 1.

        Returns:
            Their names, sorted.
        """
        section = self.config.participation
        if section.schedule:
            return [name for name in self.names if round in section.schedule.get(name, ())]
        if section.fraction == 1 and section.dropout == 0:
            return list(self.names)
        rng, count = Streams(self.config.run.seed).generator("participation", round=round), len(self.names)
        num_sampled = math.ceil(section.fraction * count - 1e-9)
        sampled = set(torch.randperm(count, generator=rng)[:num_sampled].tolist())
        fails = torch.rand(count, generator=rng) < section.dropout
        return [name for row, name in enumerate(self.names) if row in sampled and not bool(fails[row])]

    def aggregate(
        self, uploads: Mapping[str, Prototypes], state: FrameworkState, round: int
    ) -> tuple[Any, FrameworkState]:
        """Aggregate the uploads of a round.

        Args:
            uploads: the prototypes of each client that sent some, by its name.
            state: the framework's state after the round before; `init_state` at the start. It is not changed.
            round: the round, from 1.

        Returns:
            The broadcast, and the framework's new state.

        Raises:
            InvalidInput: the uploads do not fit each other, or hold NaN or infinity.
        """
        senders = [name for name in self.names if name in uploads]
        return self.framework.aggregate([uploads[name] for name in senders], state, self.context(round, senders))

    def context(self, round: int, senders: Sequence[str]) -> ServerContext:
        """What the server may use besides the uploads of these clients."""
        return ServerContext(
            round=round,
            classes=self.classes,
            dim=self.config.model.dim,
            streams=Streams(self.config.run.seed).fork("server"),
            weights=self.weights[[self.names.index(name) for name in senders]],
        )


@dataclass(frozen=True, kw_only=True)
class Federation:
    """The clients and the server of one run.

    Args:
        config: the config of the run.
        clients: all clients, sorted by id.
        server: the server, with the framework of the run and the clients' public weights.
        streams: the random streams of the run.
        client_setups: what each client was made from: its data and model. Private.
        split: the rows of each client, where the data are a real benchmark.

    Guarantee: equal configs give equal clients, and the server gets none of their data.

    >>> from vpdr.config import RunConfig
    >>> federation = build(RunConfig.from_dict({"benchmark": {"kind": "synthetic", "clients": 2}, "model": {"dim": 8}}))
    >>> len(federation.clients), federation.server.names == tuple(client.id for client in federation.clients)
    (2, True)
    """

    config: RunConfig
    clients: tuple[Client, ...]
    server: Server
    streams: Streams
    client_setups: dict[str, ClientSetup]
    split: Split | None = None


def build(config: RunConfig, progress: ProgressCallback = no_progress) -> Federation:
    """Load the data and make all clients.

    Args:
        config: the config of the run.
        progress: called while data are loaded and features computed.

    Returns:
        The clients before their first round, and the server.

    Raises:
        InvalidInput: data or weights are missing or do not fit the config.

    Guarantee: nothing is released and no ledger is charged.

    >>> federation = build(RunConfig.from_dict({"benchmark": {"kind": "synthetic"}, "model": {"dim": 8}}))
    >>> federation.clients[0].release(1).vectors.shape[1]
    8
    """
    setups = load_clients(config, Streams(config.run.seed), progress)
    factory, names = ClientFactory(config, setups.classes), sorted(setups.clients)
    labels = [setups.clients[name].shard.train.labels for name in names]
    counts = torch.stack([torch.bincount(each, minlength=setups.classes) for each in labels])
    weights = {  # class counts are used only where the config declares them public
        "uniform": torch.ones_like(counts),
        "client_size": counts.sum(1, keepdim=True).expand(-1, setups.classes),
        "class_count": counts,
    }
    server = Server(
        config=config,
        framework=factory.framework,
        names=tuple(names),
        classes=setups.classes,
        weights=weights[config.weights.kind].float(),
    )
    return Federation(
        config=config,
        clients=tuple(factory.make_client(name, setups.clients[name]) for name in names),
        server=server,
        streams=factory.streams,
        client_setups=setups.clients,
        split=setups.split,
    )


class ClientFactory:
    """What all clients of a config share; it makes each client from its own data."""

    def __init__(self, config: RunConfig, classes: int) -> None:
        self.config, self.classes, self.streams = config, classes, Streams(config.run.seed)
        self.framework = rules.make_framework(config, config.framework.kind)
        self.release_config = make_release_config(config, self.framework, classes, self.streams)

    def make_client(self, name: str, setup: ClientSetup) -> Client:
        """A client before its first round; equal shapes of models start from equal parameters."""
        train, model, spec, streams = self.config.train, self.config.model, setup.model_spec, self.streams
        adapter = AdapterConfig(adapters=model.adapters, width=spec.width, dropout=model.dropout)
        encoder = make_encoder(adapter, model.dim, setup.frozen_encoder, rng=streams.generator("adapter"))
        rng = streams.generator("head")
        head = make_head(model.dim, self.classes, rng=rng, hidden=spec.hidden, dropout=model.dropout)
        return Client(
            id=name,
            shard=setup.shard,
            model=Model(encoder.eval(), head.eval()),
            framework=self.framework,
            release_config=self.release_config,
            regulariser_config=rules.make_regulariser(self.config),
            ledger=make_ledger(self.config, name),
            train_config=TrainConfig(
                classes=self.classes,
                epochs=train.epochs,
                batch_size=train.batch,
                lr=train.lr,
                weight_decay=train.weight_decay,
            ),
            streams=streams,
        )


def make_release_config(config: RunConfig, framework: Framework[Any], classes: int, streams: Streams) -> ReleaseConfig:
    """How every client of the config releases, and trains its encoder if that is private."""
    summariser, kind = framework.summariser, config.release.summariser
    if kind != "framework" or isinstance(summariser, ClassMeans):  # release.min_count applies to a framework's means
        summariser_config = summarisers.SummariserConfig(classes=classes, min_count=config.release.min_count)
        summariser = SUMMARISERS["means" if kind == "framework" else kind].from_config(summariser_config)
    mechanism, dpsgd_config = rules.make_mechanism(config, config.mechanism.kind, classes, streams), None
    if config.train.is_private:
        mechanism, dpsgd_config = split_budget_with_training(
            mechanism,
            releases=config.releases,
            rounds=config.run.rounds,
            steps_per_round=config.train.epochs,
            training_share=config.train.private_share,
            clip_norm=config.train.gradient_clip,
            expected_batch_size=rules.public_batch_size(config, classes),
        )
    return ReleaseConfig(
        mechanism=mechanism,
        summariser=summariser,
        encoder_kind=rules.release_encoder(config),
        max_releases=config.releases,
        clip_norm=config.mechanism.clip_norm,
        make_noise=base.ReleaseNoise(None if config.release.noise == NoiseOrigin.SYSTEM else streams),
        dpsgd_config=dpsgd_config,
    )


def make_ledger(config: RunConfig, client: str) -> Ledger:
    """The empty ledger of a client."""
    return Ledger(
        client=client,
        budget=rules.ledger_budget(config),
        accountant=config.budget.accountant,
        adjacency=Adjacency(config.budget.adjacency),
    )
