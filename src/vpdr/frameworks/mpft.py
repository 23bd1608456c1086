"""MPFT (Zhang et al., 2025): the server fine-tunes an adapter and a head, clients distil from both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import nn

from vpdr.frameworks import aggregation, base
from vpdr.privacy import EncoderKind
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Float, Losses, Prototypes, Tensor, TrainBatch
from vpdr.validation import InvalidInput, at_least, at_least_0_below_1, positive

_RELIABILITY_KEY = "trust"
_ADAPTER_PARAMETERS = ("down", "up")
_HEAD_PARAMETERS = ("hidden.weight", "hidden.bias", "out.weight", "out.bias")


@dataclass(frozen=True, slots=True)
class MpftBroadcast:
    """The parameters of the server's adapter and head; none before the first upload."""

    parameters: base.Parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Mpft(base.Framework[MpftBroadcast]):
    """The server trains an adapter and a head on prototypes of the frozen encoder.

    `Mpft(summariser=KMeansClusters(rate=0.1))` uploads several prototypes for each class, as in the paper's
    table.

    With `uses_broadcast_features` clients release features of the server's adapter. Adapter and head are
    trained in the first round that has uploads; these are of frozen features, since nothing was broadcast
    before. From then on the adapter is fixed and only the head is trained, on uploads in the adapter's space.
    The upload of a client without the adapter is marked as such, and the server applies the adapter to it.
    Clients distil from adapter and head on frozen features in both cases.
    """

    loss_is_per_sample: ClassVar[bool] = True  # the distillation target of a sample depends on that sample alone

    weight: float = 0.3  # β, of the distillation loss
    temperature: float = 4.0  # T, of the distillation
    kd_tau2: bool = False  # whether the distillation is multiplied by T², as in the released code
    epochs: int = 20  # of the server in each round
    batch: int = 64  # of the server
    hidden: int = 512  # width of the server's head
    reduction: int = 8  # the adapter's width is the feature dimension divided by this
    dropout: float = 0.1  # of the server's training
    server_lr: float = 1e-3  # of the server's AdamW
    server_decay: float = 1e-5  # decoupled weight decay of the server's AdamW
    summariser: Summariser = ClassMeans()
    uses_broadcast_features: bool = False  # set by `with_broadcast_features`

    def __post_init__(self) -> None:
        at_least(0, weight=self.weight, epochs=self.epochs)
        positive(temperature=self.temperature, batch=self.batch, hidden=self.hidden, reduction=self.reduction)
        at_least_0_below_1(dropout=self.dropout)
        positive(server_lr=self.server_lr)
        at_least(0, server_decay=self.server_decay)

    @property
    def encoder_kind(self) -> EncoderKind:
        """Frozen features, or features of the broadcast adapter, which depends on earlier releases only."""
        return EncoderKind.BROADCAST if self.uses_broadcast_features else EncoderKind.PUBLIC

    def with_broadcast_features(self) -> "Mpft":
        return replace(self, uses_broadcast_features=True)

    def feature_map(self, broadcast: MpftBroadcast) -> base.FeatureMap | None:
        """The adapter; None before it is trained."""
        if not self.uses_broadcast_features or not broadcast.parameters:
            return None
        return partial(apply_adapter, broadcast.parameters)

    def uses_weights(self, *, has_variances: bool) -> bool:
        return has_variances  # in class averages, which only set the reliability of what is broadcast

    def init_state(self, context: base.ServerContext) -> base.FrameworkState:
        """An adapter that is the identity, a random head, and a fresh optimiser."""
        rng = context.streams.generator("mpft/start")
        width = max(1, context.dim // self.reduction)
        model = {"down": base.init_uniform(width, context.dim, fan_in=context.dim, rng=rng)}
        model["up"] = torch.zeros(context.dim, width)
        model |= base.init_linear("hidden", (self.hidden, context.dim), rng)
        model |= base.init_linear("out", (context.classes, self.hidden), rng)
        return {"model": model, "optimiser": base.AdamW.init_state(model)}

    def aggregate(
        self, uploads: Sequence[Prototypes], state: base.FrameworkState, context: base.ServerContext
    ) -> tuple[MpftBroadcast, base.FrameworkState]:
        """Train the model for some epochs on this round's prototypes (Eq. 3)."""
        adapter_is_fixed = self.uses_broadcast_features and state["optimiser"]["steps"] > 0
        if adapter_is_fixed:
            uploads = [_to_adapter_space(upload, state["model"]) for upload in uploads]
        denoised = aggregation.denoise_uploads(aggregation.pool_uploads(uploads, context), context.classes)
        prototypes = aggregation.to_float32_without_variances(denoised.prototypes)
        if len(prototypes.labels):
            state = self._train_model(state, prototypes, context, head_only=adapter_is_fixed)
        if state["optimiser"]["steps"] == 0:
            return MpftBroadcast({}), state
        parameters = dict(state["model"])
        if denoised.class_prototypes.variances is not None:
            reliability = base.class_reliability(denoised.class_prototypes, context.classes)
            parameters[_RELIABILITY_KEY] = reliability.float()
        return MpftBroadcast(parameters), state

    def _train_model(
        self, state: base.FrameworkState, prototypes: Prototypes, context: base.ServerContext, *, head_only: bool
    ) -> base.FrameworkState:
        rng = context.streams.generator("mpft/train", round=context.round)
        model, optimiser_state = state["model"], state["optimiser"]
        optimiser = base.AdamW(lr=self.server_lr, weight_decay=self.server_decay)
        trained = base.with_grad({name: model[name] for name in (_HEAD_PARAMETERS if head_only else model)})
        for _ in range(self.epochs):
            for rows in base.shuffled_batches(len(prototypes.labels), self.batch, rng):
                features = prototypes.vectors[rows]
                if not head_only:
                    mask = base.dropout_mask((len(rows), len(trained["down"])), self.dropout, rng)
                    features = apply_adapter(trained, features, mask)
                mask = base.dropout_mask((len(rows), len(trained["hidden.weight"])), self.dropout, rng)
                loss = nn.functional.cross_entropy(base.two_layers(trained, features, mask), prototypes.labels[rows])
                optimiser_state = optimiser.step(trained, loss, optimiser_state)
        return {"model": {**model, **base.detached(trained)}, "optimiser": optimiser_state}

    def losses(self, batch: TrainBatch, broadcast: MpftBroadcast) -> Losses:
        """Cross-entropy, and the divergence from the server's model on frozen features."""
        model = broadcast.parameters
        if not model:
            return {"task": base.cross_entropy(batch), "distil": base.zero_loss(batch)}
        with torch.no_grad():
            teacher_logits = base.two_layers(model, apply_adapter(model, batch.frozen_features))
            teacher = (teacher_logits / self.temperature).log_softmax(dim=1)
        student = (batch.logits / self.temperature).log_softmax(dim=1)
        divergence = (teacher.exp() * (teacher - student)).sum(dim=1)
        if _RELIABILITY_KEY in model:
            divergence = divergence * model[_RELIABILITY_KEY][batch.labels]
        scale = self.weight * (self.temperature**2 if self.kd_tau2 else 1.0)
        task = base.cross_entropy(batch)
        return {"task": task, "distil": scale * base.weighted_mean(divergence, batch.weights)}

    def broadcast_logits(
        self, frozen_features: Float[Tensor, "b d"], broadcast: MpftBroadcast
    ) -> Float[Tensor, "b c"] | None:
        model = broadcast.parameters
        return base.two_layers(model, apply_adapter(model, frozen_features)) if model else None

    def pack(self, broadcast: MpftBroadcast) -> dict[str, Tensor]:
        return dict(broadcast.parameters)

    def unpack(self, arrays: Mapping[str, Tensor]) -> MpftBroadcast:
        """The parameters by name; missing or unknown ones, and shapes that do not fit each other, are refused."""
        if not arrays:
            return MpftBroadcast({})
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        if set(shapes) - {_RELIABILITY_KEY} != {*_ADAPTER_PARAMETERS, *_HEAD_PARAMETERS} or any(
            len(shapes[name]) != 2 for name in ("down", "out.weight")
        ):
            raise InvalidInput(f"expected the parameters of a teacher, got {shapes}")
        (width, dim), (classes, hidden) = shapes["down"], shapes["out.weight"]
        expected: dict[str, tuple[int, ...]] = {
            "down": (width, dim),
            "up": (dim, width),
            "hidden.weight": (hidden, dim),
            "hidden.bias": (hidden,),
            "out.weight": (classes, hidden),
            "out.bias": (classes,),
        }
        if shapes != expected | ({_RELIABILITY_KEY: (classes,)} if _RELIABILITY_KEY in shapes else {}):
            raise InvalidInput(f"expected a teacher of shapes {expected}, got {shapes}")
        return MpftBroadcast(dict(arrays))


def apply_adapter(
    model: base.Parameters, features: Float[Tensor, "b d"], mask: Tensor | float = 1.0
) -> Float[Tensor, "b d"]:
    """The residual adapter, row by row; the mask is dropout in training."""
    down, up = (model[name].to(features) for name in _ADAPTER_PARAMETERS)
    return features + nn.functional.linear(nn.functional.linear(features, down).relu() * mask, up)


def _to_adapter_space(upload: Prototypes, model: base.Parameters) -> Prototypes:
    """An upload in the adapter's space.

    Where the adapter is applied here there are no variances: after a non-linear map they would be wrong.
    """
    if upload.in_broadcast_space:
        return upload
    return Prototypes(apply_adapter(model, upload.vectors), upload.labels, in_broadcast_space=True)
