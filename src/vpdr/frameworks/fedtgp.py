"""FedTGP (Zhang et al., AAAI 2024): the server trains global prototypes with an adaptive margin."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vpdr.frameworks.aggregation import (
    class_averages,
    class_weights,
    denoise_uploads,
    pool_uploads,
    to_float32_without_variances,
    with_reliability,
)
from vpdr.frameworks.base import FrameworkState, ServerContext, SinglePrototypeSet
from vpdr.frameworks.losses import alignment_loss, cross_entropy
from vpdr.frameworks.server_optim import Parameters, detached, init_linear, sgd_step, shuffled_batches, with_grad
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Losses, Prototypes, TrainBatch
from vpdr.validation import not_negative, positive


@dataclass(frozen=True, kw_only=True, slots=True)
class FedTgp(SinglePrototypeSet):
    """A generator with one output for each class, which the server trains over all rounds.

    Args:
        weight: λ, the weight of the alignment loss.
        epochs: server epochs in each round.
        server_lr: learning rate of the server's SGD.
        batch: server batch size.
        threshold: upper bound of the margin.
        summariser: how clients make prototypes.
    """

    loss_is_per_sample: ClassVar[bool] = True  # each sample is aligned with the prototype of its own label

    weight: float = 1.0
    epochs: int = 100
    server_lr: float = 1e-3
    batch: int = 256
    threshold: float = 100.0
    summariser: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        not_negative(weight=self.weight, epochs=self.epochs, threshold=self.threshold)
        positive(server_lr=self.server_lr, batch=self.batch)

    def init_state(self, context: ServerContext) -> FrameworkState:
        """A random generator, and no uploaded class."""
        rng = context.streams.generator("fedtgp/start")
        generator = {"embedding": torch.randn(context.classes, context.dim, generator=rng)}
        generator |= init_linear("hidden", (context.dim, context.dim), rng)
        generator |= init_linear("out", (context.dim, context.dim), rng)
        return {"generator": generator, "seen": torch.zeros(context.classes, dtype=torch.bool)}

    def aggregate(
        self, uploads: Sequence[Prototypes], state: FrameworkState, context: ServerContext
    ) -> tuple[Prototypes, FrameworkState]:
        """Train on the uploads, then broadcast the classes that were ever uploaded (Eq. 3, K = 1)."""
        denoised = denoise_uploads(pool_uploads(uploads, context), context.classes)
        prototypes = to_float32_without_variances(denoised.prototypes)
        generator, uploaded = state["generator"], state["seen"].index_fill(0, prototypes.labels, True)
        if len(prototypes.labels):
            generator = self._train_generator(generator, prototypes, context)
        labels = uploaded.nonzero()[:, 0]
        generated = Prototypes(_generate_prototypes(generator)[labels], labels)
        new_state = {"generator": generator, "seen": uploaded}
        return with_reliability(generated, denoised.class_prototypes), new_state

    def _train_generator(self, generator: Parameters, prototypes: Prototypes, context: ServerContext) -> Parameters:
        """SGD on the cross-entropy of negative distances, with the margin added to the own class."""
        rng = context.streams.generator("fedtgp/shuffle", round=context.round)
        margin = adaptive_margin(prototypes, self.threshold)
        parameters = with_grad(generator)
        for _ in range(self.epochs):
            for rows in shuffled_batches(len(prototypes.labels), self.batch, rng):
                labels = prototypes.labels[rows]
                distances = euclidean_distances(prototypes.vectors[rows], _generate_prototypes(parameters))
                distances = distances + margin * F.one_hot(labels, context.classes)
                sgd_step(parameters, F.cross_entropy(-distances, labels), self.server_lr)
        return detached(parameters)

    def losses(self, batch: TrainBatch, broadcast: Prototypes) -> Losses:
        """Cross-entropy, and alignment with the trained prototype of the own class."""
        return {"task": cross_entropy(batch), "align": self.weight * alignment_loss(batch, broadcast)}


def _generate_prototypes(generator: Parameters) -> Float[Tensor, "c d"]:
    """One prototype for each class, uploaded or not."""
    hidden = F.linear(generator["embedding"], generator["hidden.weight"], generator["hidden.bias"]).relu()
    return F.linear(hidden, generator["out.weight"], generator["out.bias"])


def euclidean_distances(points: Float[Tensor, "p d"], targets: Float[Tensor, "c d"]) -> Float[Tensor, "p c"]:
    """Euclidean distances; squares are at least 1e-12, so that the gradient is finite."""
    squares = points.square().sum(dim=1, keepdim=True) + targets.square().sum(dim=1)
    return (squares - 2 * points @ targets.T).clamp(min=1e-12).sqrt()


def adaptive_margin(prototypes: Prototypes, threshold: float) -> float:
    """The largest distance from a class mean to the nearest other one, but at most the threshold."""
    means = class_averages(prototypes, class_weights(prototypes, torch.ones(len(prototypes.labels))))
    if len(means.labels) < 2:
        return threshold
    distances = torch.cdist(means.vectors, means.vectors).fill_diagonal_(torch.inf)
    return min(float(distances.min(dim=1).values.max()), threshold)
