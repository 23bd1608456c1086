"""What all frameworks share: their interface with its defaults, the terms of losses, and training on the server."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import torch
from torch import nn

from vpdr.privacy import EncoderKind
from vpdr.prototypes import Summariser
from vpdr.rng import Streams
from vpdr.types import Bool, Float, Int, Losses, Prototypes, Summary, Tensor, TrainBatch

Broadcast = TypeVar("Broadcast")

# Server state between rounds: tensors, numbers and nested dicts of them. It is saved in checkpoints.
FrameworkState: TypeAlias = dict[str, Any]
# A differentiable map of frozen features to features of the same dimension, row by row.
FeatureMap: TypeAlias = Callable[[Float[Tensor, "n d"]], Float[Tensor, "n d"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerContext:
    """Public inputs of the server besides the uploads."""

    round: int  # from 1
    classes: int
    dim: int  # of the uploaded prototypes
    streams: Streams
    weights: Float[Tensor, "m c"]  # public; row i belongs to uploads[i], all ones is uniform


@dataclass(frozen=True, slots=True)
class PredictionInputs:
    """Inputs of a client's prediction. Private: they never leave the client."""

    features: Float[Tensor, "b d"]  # of the client's encoder, without soft clipping
    logits: Float[Tensor, "b c"]  # of the client's head on these features
    own_class_means: Summary  # of the client's training features, without noise


class Framework(ABC, Generic[Broadcast]):
    """A ProtoPFL framework: client summary (Eq. 2), server aggregation (Eq. 3) and client loss (L_BASE).

    A framework of your own is a frozen dataclass that derives from this class, or from `SinglePrototypeSet`,
    and is added with `FRAMEWORKS.register(name, cls)` or by an entry point of the group `vpdr.frameworks`. The
    fields of the dataclass are its settings `framework.<name>.<field>`. The defaults here are a personal
    encoder, a server without state, and prediction by the head.

    Guarantee: the server side receives released prototypes and public numbers only, so a broadcast is
    post-processing and costs no privacy.
    """

    has_uploads: ClassVar[bool] = True  # whether clients upload in every round
    # Whether the loss, given the broadcast, is a mean of functions of one sample each. DP-SGD relies on it.
    loss_is_per_sample: ClassVar[bool] = False

    __slots__ = ()

    @classmethod
    def from_config(cls, options: Mapping[str, Any]) -> "Framework[Broadcast]":
        """Make the framework from its settings in a config, by field name."""
        return cls(**options)

    @property
    @abstractmethod
    def summariser(self) -> Summariser:
        """How a client turns features into prototypes (Eq. 2)."""

    @property
    def encoder_kind(self) -> EncoderKind:
        """Which encoder's features are released."""
        return EncoderKind.PERSONAL

    def with_broadcast_features(self) -> "Framework[Broadcast] | None":
        """The same framework with releases from broadcast features; None if it broadcasts no feature map."""
        return None

    def uses_weights(self, *, has_variances: bool) -> bool:
        """Whether the broadcast depends on the public weights of clients, for uploads with or without variances."""
        return True

    def feature_map(self, broadcast: Broadcast) -> FeatureMap | None:
        """The map from frozen features to those that are released; None if they are released as they are.

        Guarantee: a function of the broadcast alone, so it depends on data through earlier releases only.
        """
        return None

    def init_state(self, context: ServerContext) -> FrameworkState:
        """The server state before the first round."""
        return {}

    @abstractmethod
    def aggregate(
        self, uploads: Sequence[Prototypes], state: FrameworkState, context: ServerContext
    ) -> tuple[Broadcast, FrameworkState]:
        """The broadcast of a round and the new server state, from one set of released prototypes a client (Eq. 3).

        The given state is not changed. Uploads or weights that do not fit, or hold NaN or infinity, raise
        InvalidInput.
        """

    @abstractmethod
    def losses(self, batch: TrainBatch, broadcast: Broadcast) -> Losses:
        """The weighted terms of the client loss by name; their sum is L_BASE."""

    def predict(self, inputs: PredictionInputs, broadcast: Broadcast) -> Int[Tensor, " b"]:
        """The label that the personalised model predicts for each sample."""
        return inputs.logits.argmax(dim=1)

    def personal_logits(self, inputs: PredictionInputs) -> Float[Tensor, "b c"]:
        """Class logits from the client's own model alone."""
        return inputs.logits

    def global_prototypes(self, broadcast: Broadcast) -> Prototypes | None:
        """The global prototypes in a broadcast, or None if it holds none."""
        return None

    def broadcast_logits(
        self, frozen_features: Float[Tensor, "b d"], broadcast: Broadcast
    ) -> Float[Tensor, "b c"] | None:
        """Class logits from a model in the broadcast, or None if it holds none."""
        return None

    @abstractmethod
    def pack(self, broadcast: Broadcast) -> dict[str, Tensor]:
        """The broadcast as named arrays."""

    @abstractmethod
    def unpack(self, arrays: Mapping[str, Tensor]) -> Broadcast:
        """The inverse of `pack`, bit for bit; raises InvalidInput for what is no broadcast of this framework."""


class SinglePrototypeSet(Framework[Prototypes]):
    """Base class of frameworks whose broadcast is one set of prototypes."""

    __slots__ = ()

    def global_prototypes(self, broadcast: Prototypes) -> Prototypes | None:
        return broadcast

    def pack(self, broadcast: Prototypes) -> dict[str, Tensor]:
        return prototypes_to_arrays({"global": broadcast})

    def unpack(self, arrays: Mapping[str, Tensor]) -> Prototypes:
        return prototypes_from_arrays("global", arrays)


def prototypes_to_arrays(sets: Mapping[str, Prototypes]) -> dict[str, Tensor]:
    """The arrays of sets of prototypes, with names that start with the name of the set and a dot."""
    return {f"{prefix}.{name}": array for prefix, each in sets.items() for name, array in each.to_arrays().items()}


def prototypes_from_arrays(prefix: str, arrays: Mapping[str, Tensor]) -> Prototypes:
    """One set of `prototypes_to_arrays`; arrays with other prefixes are ignored."""
    start = f"{prefix}."
    return Prototypes.from_arrays({name.removeprefix(start): arrays[name] for name in arrays if name.startswith(start)})


Parameters: TypeAlias = dict[str, Tensor]

MIN_VARIANCE = 1e-30  # avoids division by zero for prototypes without noise
_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8  # the defaults of AdamW


def weighted_mean(values: Float[Tensor, " b"], weights: Float[Tensor, " b"]) -> Float[Tensor, ""]:
    """The mean over a batch; rows of weight 0 are ignored."""
    return (values * weights).sum() / weights.sum().clamp(min=1e-6)


def cross_entropy(batch: TrainBatch) -> Float[Tensor, ""]:
    """Cross-entropy of the client's head."""
    return weighted_mean(nn.functional.cross_entropy(batch.logits, batch.labels, reduction="none"), batch.weights)


def zero_loss(batch: TrainBatch) -> Float[Tensor, ""]:
    """Zero, with a zero gradient: a term for which there are no prototypes."""
    return weighted_mean(0 * batch.features.sum(dim=1), batch.weights)


def alignment_loss(batch: TrainBatch, prototypes: Prototypes) -> Float[Tensor, ""]:
    """Mean squared distance per coordinate of each feature to the one prototype of its class.

    Samples whose class has no prototype count in the mean, with the value 0.
    """
    if not len(prototypes.labels):
        return zero_loss(batch)
    match = same_class_mask(batch.labels, prototypes)
    target = prototypes.vectors[match.int().argmax(dim=1)]
    distance = (batch.features - target).square().mean(dim=1) * sample_reliability(batch, prototypes)
    return weighted_mean(distance * match.any(dim=1), batch.weights)


def same_class_mask(labels: Int[Tensor, " b"], prototypes: Prototypes) -> Bool[Tensor, "b p"]:
    """Whether each prototype has the label of each sample."""
    return labels[:, None] == prototypes.labels


def cosine_similarity(features: Float[Tensor, "b d"], vectors: Float[Tensor, "p d"]) -> Float[Tensor, "b p"]:
    """Cosine of each feature and each prototype; 0 for a zero vector."""
    return nn.functional.normalize(features, dim=1) @ nn.functional.normalize(vectors.type_as(features), dim=1).T


def log_positive_mass(logits: Float[Tensor, "*b p"], is_positive: Bool[Tensor, "*b p"]) -> Float[Tensor, "*b"]:
    """Log of the softmax probability of all positives together; 0 for a row without positives."""
    included = is_positive | ~is_positive.any(dim=-1, keepdim=True)
    return logits.masked_fill(~included, -torch.inf).logsumexp(dim=-1) - logits.logsumexp(dim=-1)


def sample_reliability(batch: TrainBatch, prototypes: Prototypes) -> Float[Tensor, " b"]:
    """The reliability of the prototypes of each sample's class; 1 where their noise is not published."""
    by_class = class_reliability(prototypes, int(batch.logits.shape[1]))
    return by_class[batch.labels].type_as(batch.features)


def class_reliability(prototypes: Prototypes, classes: int) -> Float[Tensor, " c"]:
    """Signal / (signal + noise) of each class, from published numbers alone.

    Where the server cannot tell a class from the others, its prototype is close to their mean: the
    reliability is close to 0, and the class adds nothing to the loss.
    """
    ones = torch.ones(classes, dtype=torch.float64)
    if prototypes.variances is None or not len(prototypes.labels):
        return ones
    signal = between_class_energy(prototypes)
    reliability = signal / (signal + prototypes.variances.double()).clamp(min=MIN_VARIANCE)
    count = torch.zeros(classes, dtype=torch.float64).index_add_(0, prototypes.labels, torch.ones_like(reliability))
    total = torch.zeros(classes, dtype=torch.float64).index_add_(0, prototypes.labels, reliability)
    return torch.where(count > 0, total / count.clamp(min=1), ones)


def between_class_energy(prototypes: Prototypes) -> Float[Tensor, " p"]:
    """The squared distance of each prototype from the mean of all prototypes, per coordinate."""
    vectors = prototypes.vectors.double()
    return (vectors - vectors.mean(dim=0)).square().mean(dim=1)


def init_uniform(*shape: int, fan_in: int, rng: torch.Generator) -> Tensor:
    """Uniform values in ±1/√fan_in, the default initialisation of a linear layer."""
    return (2 * torch.rand(shape, generator=rng) - 1) / math.sqrt(fan_in)


def init_linear(name: str, shape: tuple[int, int], rng: torch.Generator) -> Parameters:
    """Weight and bias of a linear layer of shape [outputs, inputs]."""
    outputs, inputs = shape
    return {
        f"{name}.weight": init_uniform(outputs, inputs, fan_in=inputs, rng=rng),
        f"{name}.bias": init_uniform(outputs, fan_in=inputs, rng=rng),
    }


def shuffled_batches(count: int, size: int, rng: torch.Generator) -> Iterator[Int[Tensor, " b"]]:
    """Row indices of one epoch in shuffled batches; in order if one batch holds all rows."""
    order = torch.arange(count) if count <= size else torch.randperm(count, generator=rng)
    yield from order.split(size)


def dropout_mask(shape: tuple[int, ...], rate: float, rng: torch.Generator) -> Tensor:
    """A mask of zeros and 1/(1 - rate)."""
    return (torch.rand(shape, generator=rng) >= rate) / (1 - rate)


def two_layers(model: Parameters, inputs: Float[Tensor, "b d"], mask: Tensor | float = 1.0) -> Float[Tensor, "b c"]:
    """The layers `hidden` and `out` with a ReLU between them; the mask is dropout in training."""
    hidden = nn.functional.linear(inputs, model["hidden.weight"], model["hidden.bias"]).relu() * mask
    return nn.functional.linear(hidden, model["out.weight"], model["out.bias"])


def with_grad(parameters: Parameters) -> Parameters:
    """A copy of the parameters that records gradients."""
    return {name: value.clone().requires_grad_() for name, value in parameters.items()}


def detached(parameters: Parameters) -> Parameters:
    """The same values without gradients."""
    return {name: value.detach() for name, value in parameters.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamW:
    """Adam with decoupled weight decay, with a state that the caller holds."""

    lr: float
    weight_decay: float

    @staticmethod
    def init_state(parameters: Parameters) -> FrameworkState:
        """The state before the first step: both moments are zero."""
        zeros = {name: torch.zeros_like(value) for name, value in parameters.items()}
        return {"steps": 0, "first": zeros, "second": {name: value.clone() for name, value in zeros.items()}}

    def step(self, parameters: Parameters, loss: Float[Tensor, ""], state: FrameworkState) -> FrameworkState:
        """Change the parameters in place by one step, and return the new state."""
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        first, second, steps = dict(state["first"]), dict(state["second"]), state["steps"] + 1
        with torch.no_grad():
            for (name, value), gradient in zip(parameters.items(), gradients, strict=True):
                first[name] = first[name].lerp(gradient, 1 - _BETA1)
                second[name] = _BETA2 * second[name] + (1 - _BETA2) * gradient.square()
                denominator = (second[name] / (1 - _BETA2**steps)).sqrt_().add_(_EPS)
                value.mul_(1 - self.lr * self.weight_decay)
                value.addcdiv_(first[name], denominator, value=-self.lr / (1 - _BETA1**steps))
        return {"steps": steps, "first": first, "second": second}
