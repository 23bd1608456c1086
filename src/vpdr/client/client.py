"""A client of Algorithm 1: its data and settings, its features, private release and local fine-tuning."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from vpdr.encoder.personal import PersonalEncoder, seed_dropout, seeded_linear
from vpdr.frameworks import FeatureMap, Framework
from vpdr.mechanisms import DpSgdConfig, DpSgdTrainer, Mechanism, ReleaseContext, base
from vpdr.privacy import Adjacency, BudgetExceeded, ChargePurpose, EncoderKind, Ledger
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.regulariser import Regulariser, RegulariserConfig
from vpdr.rng import Streams
from vpdr.types import Features, Float, Inputs, Int, MechanismState, Prototypes, Tensor, TrainBatch
from vpdr.validation import InvalidInput


@dataclass(frozen=True, slots=True, repr=False)  # private values never get into a log
class Samples:
    """Labelled samples as features of the frozen encoder. Private."""

    frozen_features: Float[Tensor, "n d"]  # output of the frozen backbone and projection
    labels: Int[Tensor, " n"]
    inputs: Inputs | None = None  # the samples themselves, for encoders that train inside the backbone

    def take(self, rows: Int[Tensor, " m"]) -> "Samples":
        """The samples of these rows, in this order."""
        inputs = None if self.inputs is None else self.inputs.take(rows)
        return Samples(self.frozen_features[rows], self.labels[rows], inputs)


@dataclass(frozen=True, slots=True)
class Shard:
    """All data of one client. Private."""

    train: Samples  # which the client trains on and releases prototypes of
    test: Samples
    validation: Samples | None = None  # held out of training, to select settings with


@dataclass(frozen=True, slots=True)
class Model:
    """The trainable modules of a client: the encoder h_m and the classifier f_m."""

    encoder: PersonalEncoder  # its frozen parts are shared between clients
    head: nn.Module


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Settings of a client's fine-tuning with AdamW."""

    classes: int
    epochs: int  # E, in each round
    batch_size: int
    lr: float
    weight_decay: float

    def make_optimiser(self, *modules: nn.Module) -> torch.optim.AdamW:
        """A new optimiser of all parameters of these modules."""
        parameters = [parameter for module in modules for parameter in module.parameters()]
        return torch.optim.AdamW(parameters, lr=self.lr, weight_decay=self.weight_decay, foreach=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseConfig:
    """Settings of a client's releases, checked for contradictions.

    Guarantee: an encoder is called accounted if and only if it is trained with DP-SGD.
    """

    mechanism: Mechanism
    summariser: Summariser
    encoder_kind: EncoderKind  # which encoder's features are released
    max_releases: int  # after these the last upload is sent again
    clip_norm: float  # R, for the statistics of feature norms
    make_noise: Callable[[str, int, ChargePurpose], base.NoiseSource]  # of a client, a round and a purpose
    dpsgd_config: DpSgdConfig | None = None  # None trains the encoder without privacy

    def __post_init__(self) -> None:
        if (self.encoder_kind is EncoderKind.DP_TRAINED) != (self.dpsgd_config is not None):
            raise InvalidInput(
                "an accounted encoder is one that is trained with DP-SGD, "
                f"got encoder {self.encoder_kind} and training {self.dpsgd_config}; "
                "set train.privacy in the config"
            )
        if self.dpsgd_config is not None and self.dpsgd_config.adjacency is not self.mechanism.adjacency:
            raise InvalidInput(
                f"the costs of training under {self.dpsgd_config.adjacency} and of releases under "
                f"{self.mechanism.adjacency} do not add up; use one adjacency"
            )


CHUNK_SIZE = 64  # samples in one forward pass through a backbone without training
MAX_ABS_COORDINATE = 1e15  # squares and sums of larger values could overflow in single precision


class FeatureCache:
    """Runs the encoder, and caches the features of whole sample sets until the encoder is trained.

    Between two rounds the same samples are encoded for the release and for every metric; through a whole
    backbone that is worth doing once. Features of an encoder on frozen features are cached inside
    `caching()` only: those of many clients would need too much memory.
    """

    def __init__(self, encoder: PersonalEncoder) -> None:
        self.encoder = encoder
        self._cache: dict[int, tuple[Samples, Float[Tensor, "n d"]]] = {}
        self._caching_enabled = encoder.needs_inputs

    def encode_batch(
        self, samples: Samples, rows: Int[Tensor, " b"], rng: torch.Generator | None = None
    ) -> Float[Tensor, "b d"]:
        """Features of these rows; with a generator the inputs are augmented."""
        inputs = None
        if self.encoder.needs_inputs:
            if samples.inputs is None:
                raise InvalidInput(
                    "this encoder runs on the samples themselves, got their frozen features only; "
                    "give Samples with inputs"
                )
            inputs = samples.inputs.batch(rows, rng)
        features: Tensor = self.encoder(samples.frozen_features[rows], inputs)
        return features

    @torch.no_grad()
    def encode_all(self, samples: Samples) -> Float[Tensor, "n d"]:
        """Features of all samples, without augmentation."""
        if id(samples) in self._cache:
            return self._cache[id(samples)][1]
        if not self.encoder.needs_inputs:
            features: Tensor = self.encoder(samples.frozen_features)
        elif len(samples.labels):
            chunks = torch.arange(len(samples.labels)).split(CHUNK_SIZE)
            features = torch.cat([self.encode_batch(samples, rows) for rows in chunks])
        else:
            features = samples.frozen_features
        if self._caching_enabled:
            self._cache[id(samples)] = (samples, features)
        return features

    @contextmanager
    def caching(self) -> Iterator[None]:
        """Inside, features of every encoder are cached."""
        self._caching_enabled = True
        try:
            yield
        finally:
            self._caching_enabled = self.encoder.needs_inputs
            if not self._caching_enabled:
                self.clear()

    def clear(self) -> None:
        """Empty the cache; call it when the encoder has changed."""
        self._cache.clear()


@torch.no_grad()
def apply_row_by_row(feature_map: FeatureMap, frozen_features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Apply a feature map to one sample at a time.

    Guarantee: each row is a function of that one feature and of the map, to the last bit. In a batch the
    rounding of a row may depend on its position and on the other rows, and a hostile map can make features
    of rounding errors alone. Whatever the map is, the result is finite, so no failure of a release can depend
    on a sample.
    """
    mapped, one_row = torch.empty_like(frozen_features), frozen_features.new_empty(1, frozen_features.shape[1])
    for row, feature in enumerate(frozen_features):
        one_row[0] = feature
        mapped[row] = feature_map(one_row)[0]
    return sanitize(mapped)


def sanitize(features: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Replace NaN by 0 and clamp coordinates to ±MAX_ABS_COORDINATE; other values keep every bit.

    Guarantee: a function of each number alone. Whatever training or a server did to an encoder, every sample
    has a finite feature that can be clipped, so no failure of a release can depend on a sample.
    """
    bound = min(MAX_ABS_COORDINATE, torch.finfo(features.dtype).max)
    return features.nan_to_num().clamp(-bound, bound)


@dataclass(kw_only=True)
class Client:
    """A client with its data, model, regulariser, optimiser, ledger and random streams.

    Args:
        id: name of the client in ledgers, random streams and records.
        shard: its data.
        model: its encoder and head; both are trained in place.
        framework: the ProtoPFL framework of the run.
        release_config: settings of its releases.
        regulariser_config: settings of the regulariser, such as `Dcr`.
        ledger: where releases and private training are charged.
        train_config: settings of its fine-tuning.
        streams: random streams of the run.
        last_upload: the last upload; it is public, so it may be sent again at no cost.
        last_broadcast: the last broadcast.
        mechanism_state: what the mechanism keeps between releases.

    Guarantee: only what `release` returns leaves the client, and it is charged to the ledger before the
    samples are read.

    >>> from vpdr import Budget, ClassMeans, EncoderKind, Igpp, Ledger, SystemNoise
    >>> from vpdr.encoder.personal import AdapterConfig, make_encoder, make_head
    >>> from vpdr.frameworks import FedProto
    >>> from vpdr.regulariser import Dcr
    >>> streams, labels = Streams(0), torch.arange(20) % 2
    >>> samples = Samples(torch.randn(20, 8, generator=streams.generator("data")), labels)
    >>> rng = streams.generator("model")
    >>> release_config = ReleaseConfig(
    ...     mechanism=Igpp.calibrated(Budget(1.0, 1e-5), 1, clip_norm=5.0),
    ...     summariser=ClassMeans(),
    ...     encoder_kind=EncoderKind.PUBLIC,
    ...     max_releases=1,
    ...     clip_norm=5.0,
    ...     make_noise=lambda *_: SystemNoise(),
    ... )
    >>> client = Client(
    ...     id="a",
    ...     shard=Shard(train=samples, test=samples),
    ...     model=Model(make_encoder(AdapterConfig(width=4), 8, rng=rng), make_head(8, 2, rng=rng)),
    ...     framework=FedProto(),
    ...     release_config=release_config,
    ...     regulariser_config=Dcr(clip_norm=5.0),
    ...     ledger=Ledger(client="a", budget=Budget(1.0, 1e-5)),
    ...     train_config=TrainConfig(classes=2, epochs=1, batch_size=8, lr=1e-3, weight_decay=0.0),
    ...     streams=streams,
    ... )
    >>> upload = client.release(round=1)
    >>> upload.labels.tolist(), f"{client.ledger.epsilon_spent:.2f}"
    ([0, 1], '1.00')
    >>> sorted(client.finetune(upload, round=1))  # FedProto broadcasts one set of prototypes
    ['align', 'guide', 'task']
    """

    id: str
    shard: Shard
    model: Model
    framework: Framework[Any]
    release_config: ReleaseConfig
    regulariser_config: RegulariserConfig
    ledger: Ledger
    train_config: TrainConfig
    streams: Streams
    last_upload: Prototypes | None = None
    last_broadcast: Any = None
    mechanism_state: MechanismState = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.regulariser: Regulariser = self.regulariser_config.make_regulariser(self.model.head)
        self.feature_cache = FeatureCache(self.model.encoder)
        self.dpsgd_trainer: DpSgdTrainer | None = None
        if self.release_config.dpsgd_config is not None:
            # its head is separate from the personal one, and drawn from a public stream
            dim, rng = self.shard.train.frozen_features.shape[1], self.streams.generator("training-head")
            self.dpsgd_trainer = DpSgdTrainer(
                self.model.encoder,
                seeded_linear(dim, self.train_config.classes, rng=rng),
                self.release_config.dpsgd_config,
                batch_size=self.train_config.batch_size,
                optimiser=self.train_config.make_optimiser,
            )
        modules = [self.model.head] if self.dpsgd_trainer else [self.model.encoder, self.model.head]
        self.optimiser = self.train_config.make_optimiser(*modules)
        self.release_diagnostics: dict[str, float] = {}  # of this round's release; private

    def release(self, round: int) -> Prototypes | None:
        """Charge the ledger, then encode, privatise and upload (Alg. 1, lines 4-11).

        A client that has made all its releases, or has no budget left, sends its last upload again.

        Args:
            round: the current round, from 1.

        Returns:
            The upload, or None if the framework has no uploads or the client has no samples.

        Raises:
            BudgetExceeded: the budget does not allow the first release.

        Guarantee: the cost is charged before the samples are read, so a failure on the way tells the server
        nothing that was not paid for.
        """
        self.release_diagnostics = {}
        if not self.framework.has_uploads or self._has_nothing_to_release:
            return None
        if len(self.ledger.releases) >= self.release_config.max_releases and self.last_upload is not None:
            return self.last_upload
        mechanism, context = self.release_config.mechanism, self._release_context(round)
        receipt = mechanism.receipt_for(context)
        try:
            charge = self.ledger.charge(receipt, round=round, mechanism=type(mechanism).__name__)
        except BudgetExceeded:
            if self.last_upload is None:
                raise
            return self.last_upload
        train = self.shard.train
        features = Features(self.released_features(train), train.labels)  # line 4
        release = mechanism.release(features.vectors, features.labels, context)  # lines 5-10
        self.last_upload = replace(release.open(charge), in_broadcast_space=self.feature_map is not None)
        self.mechanism_state = release.state
        error = relative_error(self.last_upload, features)
        self.release_diagnostics = {**release.diagnostics, "relative_error": error}
        return self.last_upload  # line 11

    @property
    def _has_nothing_to_release(self) -> bool:
        """Whether there are no samples; under add-remove adjacency that is private, so it is released."""
        adjacency = self.release_config.mechanism.adjacency
        return not len(self.shard.train.labels) and adjacency != Adjacency.ADD_REMOVE

    def _release_context(self, round: int) -> ReleaseContext:
        trainer, encoder_kind = self.dpsgd_trainer, self.release_config.encoder_kind
        return ReleaseContext(
            client=self.id,
            round=round,
            classes=self.train_config.classes,
            summariser=self.release_config.summariser,
            encoder=trainer.encoder_kind(self.ledger) if trainer else encoder_kind,
            noise=self.release_config.make_noise(self.id, round, ChargePurpose.RELEASE),
            last_broadcast=self.global_prototypes,
            state=self.mechanism_state,
        )

    def finetune(self, broadcast: Any, round: int) -> Mapping[str, float]:
        """Train encoder and head for E epochs with the broadcast fixed (Alg. 1, lines 17-21).

        With DP-SGD the encoder is trained by `DpSgdTrainer` first, if a release follows, and then the head alone.

        Args:
            broadcast: the broadcast of this round, as the framework's `aggregate` or `unpack` returns it.
            round: the current round, from 1.

        Returns:
            The mean of each loss term over the steps; empty if the client has no samples.

        Guarantee: the result is private and stays on the client, and training without privacy never changes
        an encoder that is accounted.
        """
        self.last_broadcast, train = broadcast, self.shard.train
        if self.dpsgd_trainer and not self._has_nothing_to_release and self._release_follows(round):
            loss = partial(self.framework.losses, broadcast=broadcast)
            noise = self.release_config.make_noise(self.id, round, ChargePurpose.TRAINING)
            self.dpsgd_trainer.train_round(train.frozen_features, train.labels, loss, noise, self.ledger, round)
        if not len(train.labels):
            return {}
        self._set_train_mode(True, round)
        totals: dict[str, float] = {}
        steps = 0
        for epoch in range(self.train_config.epochs):
            shuffle_rng = self.streams.generator(f"shuffle/{epoch}", client=self.id, round=round)
            augment_rng = self.streams.generator(f"augment/{epoch}", client=self.id, round=round)
            order = torch.randperm(len(train.labels), generator=shuffle_rng)
            for rows in order.split(self.train_config.batch_size):
                terms = self._step(rows, augment_rng, broadcast)  # lines 18-20
                totals = {name: totals.get(name, 0.0) + value for name, value in terms.items()}
                steps += 1
        self.regulariser.after_round(self.model.head)
        self._set_train_mode(False, round)
        return {name: value / steps for name, value in totals.items()}

    def _release_follows(self, round: int) -> bool:
        """Whether features of the encoder may be released after this round, as far as the config can tell."""
        config = self.release_config.dpsgd_config
        is_last = config is not None and config.last_round is not None and round > config.last_round
        return not is_last and len(self.ledger.releases) < self.release_config.max_releases

    def _step(self, rows: Int[Tensor, " b"], augment_rng: torch.Generator, broadcast: Any) -> Mapping[str, float]:
        """One optimiser step on L = L_BASE + λ₁ L_KD (Eq. 18), then the update of the teacher (Eq. 16)."""
        train, head, weights = self.shard.train, self.model.head, torch.ones(len(rows))
        features = self.feature_cache.encode_batch(train, rows, augment_rng)
        if self.dpsgd_trainer:
            features = features.detach()  # the head's loss is not private: it must not change the encoder
        clipped = self.regulariser.transform_features(features)
        batch = TrainBatch(clipped, head(clipped), train.labels[rows], train.frozen_features[rows], weights)
        terms = dict(self.framework.losses(batch, broadcast))
        terms["guide"] = self.regulariser.loss(features, batch.logits, weights)
        if (total := torch.stack(list(terms.values())).sum()).requires_grad:
            total.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.regulariser.after_step(head)
        return {name: float(value.detach()) for name, value in terms.items()}

    def _set_train_mode(self, training: bool, round: int) -> None:
        rng = self.streams.generator("dropout", client=self.id, round=round) if training else None
        self.feature_cache.clear()
        for module in (self.model.encoder, self.model.head):
            module.train(training)
            seed_dropout(module, rng)

    def personal_features(self, samples: Samples) -> Float[Tensor, "n d"]:
        """Features of the client's own encoder, without dropout and augmentation (Z_m). Private."""
        return self.feature_cache.encode_all(samples)

    def released_features(self, samples: Samples) -> Float[Tensor, "n d"]:
        """Features of the encoder whose prototypes are released. Private.

        Guarantee: whatever training or the broadcast did to the encoder, the features are finite.
        """
        if self.dpsgd_trainer and self.dpsgd_trainer.batch_size == 1:
            # as in training: rounding must not depend on a sample's position among the others
            return apply_row_by_row(self.model.encoder, samples.frozen_features)
        if self.release_config.encoder_kind.is_trained_on_private_data:
            return sanitize(self.personal_features(samples))
        if self.feature_map is None:
            return samples.frozen_features
        return apply_row_by_row(self.feature_map, samples.frozen_features)

    @property
    def global_prototypes(self) -> Prototypes | None:
        """The global prototypes in the last broadcast; None without a broadcast, or if it holds none."""
        return None if self.last_broadcast is None else self.framework.global_prototypes(self.last_broadcast)

    @property
    def feature_map(self) -> FeatureMap | None:
        """The map of the last broadcast from frozen to released features; None if there is none."""
        if self.release_config.encoder_kind is not EncoderKind.BROADCAST or self.last_broadcast is None:
            return None
        return self.framework.feature_map(self.last_broadcast)

    def state_dict(self) -> dict[str, Any]:
        """The state between two rounds, for checkpoints and for stateless runtimes such as Flower. Private."""
        return {
            "encoder": self.model.encoder.state_dict(),
            "head": self.model.head.state_dict(),
            "guide": self.regulariser.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "trainer": self.dpsgd_trainer.state_dict() if self.dpsgd_trainer else None,
            "ledger": self.ledger.state_dict(),
            "sent": None if self.last_upload is None else self.last_upload.to_arrays(),
            "heard": None if self.last_broadcast is None else self.framework.pack(self.last_broadcast),
            "kept": dict(self.mechanism_state),
            "diagnosis": dict(self.release_diagnostics),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Raises:
            InvalidInput: the state is of another ledger, or lacks a charge that this ledger has recorded.
                Nothing is changed then.

        Guarantee: the ledger never forgets a charge.
        """
        self.ledger.load_state_dict(state["ledger"])  # first: it refuses a state that is too old
        self.feature_cache.clear()
        self.model.encoder.load_state_dict(state["encoder"])
        self.model.head.load_state_dict(state["head"])
        self.regulariser.load_state_dict(state["guide"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.dpsgd_trainer:
            self.dpsgd_trainer.load_state_dict(state["trainer"])
        self.last_upload = None if state["sent"] is None else Prototypes.from_arrays(state["sent"])
        self.last_broadcast = None if state["heard"] is None else self.framework.unpack(state["heard"])
        self.mechanism_state = dict(state["kept"])
        self.release_diagnostics = dict(state["diagnosis"])


def relative_error(released: Prototypes, features: Features) -> float:
    """Squared error of the prototypes over the energy between classes; a constant has error 1.

    It is private, and measured against the means of unclipped features over the classes that the client
    holds. NaN if there are several prototypes of a class, or fewer than two classes.
    """
    clean = ClassMeans()(features.vectors, features.labels)
    classes = [label for label in clean.labels.tolist() if (released.labels == label).sum() == 1]
    if len(classes) < 2:
        return float("nan")
    target, estimate = (
        torch.stack([each.vectors[each.labels == label][0] for label in classes]).double() for each in (clean, released)
    )
    error = (estimate - target).square().sum(1).mean()
    return float(error / (target - target.mean(0)).square().sum(1).mean())
