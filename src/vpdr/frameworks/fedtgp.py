"""FedTGP (Zhang et al., AAAI 2024): the server trains global prototypes with an adaptive margin."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from vpdr.frameworks import aggregation, base
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Float, Losses, Prototypes, Tensor, TrainBatch
from vpdr.validation import at_least, positive


@dataclass(frozen=True, kw_only=True, slots=True)
class FedTgp(base.SinglePrototypeSet):
    """A generator with one output for each class, which the server trains over all rounds."""

    loss_is_per_sample: ClassVar[bool] = True  # each sample is aligned with the prototype of its own label

    weight: float = 1.0  # λ, of the alignment loss
    epochs: int = 100  # of the server in each round
    server_lr: float = 1e-3  # of the server's SGD
    batch: int = 256  # of the server
    threshold: float = 100.0  # upper bound of the margin
    summariser: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        at_least(0, weight=self.weight, epochs=self.epochs, threshold=self.threshold)
        positive(server_lr=self.server_lr, batch=self.batch)

    def uses_weights(self, *, has_variances: bool) -> bool:
        return has_variances  # in class averages, which only set the reliability of what is broadcast

    def init_state(self, context: base.ServerContext) -> base.FrameworkState:
        """A random generator, and no uploaded class."""
        rng = context.streams.generator("fedtgp/start")
        generator = {"embedding": torch.randn(context.classes, context.dim, generator=rng)}
        generator |= base.init_linear("hidden", (context.dim, context.dim), rng)
        generator |= base.init_linear("out", (context.dim, context.dim), rng)
        return {"generator": generator, "seen": torch.zeros(context.classes, dtype=torch.bool)}

    def aggregate(
        self, uploads: Sequence[Prototypes], state: base.FrameworkState, context: base.ServerContext
    ) -> tuple[Prototypes, base.FrameworkState]:
        """Train on the uploads, then broadcast the classes that were ever uploaded (Eq. 3, K = 1).

        The server's loss is the cross-entropy of negative distances, with the margin added to the own class.
        """
        denoised = aggregation.denoise_uploads(aggregation.pool_uploads(uploads, context), context.classes)
        prototypes = aggregation.to_float32_without_variances(denoised.prototypes)
        generator = base.with_grad(state["generator"])
        if len(prototypes.labels):
            rng = context.streams.generator("fedtgp/shuffle", round=context.round)
            margin = adaptive_margin(prototypes, self.threshold)
            for _ in range(self.epochs):
                for rows in base.shuffled_batches(len(prototypes.labels), self.batch, rng):
                    labels = prototypes.labels[rows]
                    distances = euclidean_distances(
                        prototypes.vectors[rows], base.two_layers(generator, generator["embedding"])
                    )
                    distances = distances + margin * nn.functional.one_hot(labels, context.classes)
                    loss = nn.functional.cross_entropy(-distances, labels)
                    gradients = torch.autograd.grad(loss, list(generator.values()))
                    with torch.no_grad():
                        for value, gradient in zip(generator.values(), gradients, strict=True):
                            value.sub_(gradient, alpha=self.server_lr)
        generator, uploaded = base.detached(generator), state["seen"].index_fill(0, prototypes.labels, True)
        labels = uploaded.nonzero()[:, 0]
        generated = Prototypes(base.two_layers(generator, generator["embedding"])[labels], labels)
        new_state = {"generator": generator, "seen": uploaded}
        return aggregation.with_reliability(generated, denoised.class_prototypes), new_state

    def losses(self, batch: TrainBatch, broadcast: Prototypes) -> Losses:
        return {"task": base.cross_entropy(batch), "align": self.weight * base.alignment_loss(batch, broadcast)}


def euclidean_distances(points: Float[Tensor, "p d"], targets: Float[Tensor, "c d"]) -> Float[Tensor, "p c"]:
    """Euclidean distances; squares are at least 1e-12, so that the gradient is finite."""
    squares = points.square().sum(dim=1, keepdim=True) + targets.square().sum(dim=1)
    return (squares - 2 * points @ targets.T).clamp(min=1e-12).sqrt()


def adaptive_margin(prototypes: Prototypes, threshold: float) -> float:
    """The largest distance from a class mean to the nearest other one, but at most the threshold."""
    equal_weights = torch.ones(len(prototypes.labels))
    means = aggregation.class_averages(prototypes, aggregation.class_weights(prototypes, equal_weights))
    if len(means.labels) < 2:
        return threshold
    distances = torch.cdist(means.vectors, means.vectors).fill_diagonal_(torch.inf)
    return min(float(distances.min(dim=1).values.max()), threshold)
