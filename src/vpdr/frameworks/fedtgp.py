"""FedTGP (Zhang et al., AAAI 2024): the server trains global prototypes with an adaptive margin."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vpdr.checks import not_negative, positive
from vpdr.frameworks import ops
from vpdr.frameworks.base import Now, ServerMemory
from vpdr.frameworks.denoise import cleaned, told_with
from vpdr.frameworks.one_set import OneSet
from vpdr.frameworks.pool import pool
from vpdr.frameworks.training import Parameters, batches, descend, frozen, linear, trainable
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Losses, Prototypes, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class FedTgp(OneSet):
    """A generator that lives on the server from the first round to the last, one output per class."""

    weight: float = 1.0  # λ
    epochs: int = 100
    server_lr: float = 1e-3
    batch: int = 256
    threshold: float = 100.0  # the margin never exceeds it
    summarise: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        not_negative(weight=self.weight, epochs=self.epochs, threshold=self.threshold)
        positive(server_lr=self.server_lr, batch=self.batch)

    def start(self, now: Now) -> ServerMemory:
        """A random generator, and no class seen."""
        rng = now.streams.draw("fedtgp/start")
        generator = {"embedding": torch.randn(now.classes, now.dim, generator=rng)}
        generator |= linear("hidden", (now.dim, now.dim), rng) | linear("out", (now.dim, now.dim), rng)
        return {"generator": generator, "seen": torch.zeros(now.classes, dtype=torch.bool)}

    def generate(
        self, uploads: Sequence[Prototypes], memory: ServerMemory, now: Now
    ) -> tuple[Prototypes, ServerMemory]:
        """Train on the uploads, then broadcast the classes that were ever uploaded (Eq. 3, K = 1)."""
        clear = cleaned(pool(uploads, now), now.classes)
        told = ops.single(clear.each)
        seen = memory["seen"].index_fill(0, told.labels, True)
        generator = memory["generator"]
        if len(told.labels):
            generator = self._trained(generator, told, now)
        labels = seen.nonzero()[:, 0]
        made = Prototypes(_outputs(generator)[labels], labels)
        return told_with(made, clear.overall), {"generator": generator, "seen": seen}

    def _trained(self, generator: Parameters, told: Prototypes, now: Now) -> Parameters:
        """Gradient descent on the cross-entropy of negative distances."""
        rng = now.streams.draw("fedtgp/shuffle", t=now.t)
        gap = margin(told, self.threshold)
        working = trainable(generator)
        for _ in range(self.epochs):
            for rows in batches(len(told.labels), self.batch, rng):
                labels = told.labels[rows]
                apart = distances(told.vectors[rows], _outputs(working))
                apart = apart + gap * F.one_hot(labels, now.classes)
                descend(working, F.cross_entropy(-apart, labels), self.server_lr)
        return frozen(working)

    @property
    def by_sample(self) -> bool:
        """Each sample is pulled by its own label's anchor."""
        return True

    def losses(self, step: Step, broadcast: Prototypes) -> Losses:
        """Cross-entropy, and the pull to the trained prototype of the own class."""
        return {"task": ops.task(step), "align": self.weight * ops.pull(step, broadcast)}


def _outputs(generator: Parameters) -> Float[Tensor, "c d"]:
    """One prototype for each class, known or not."""
    hidden = F.linear(generator["embedding"], generator["hidden.weight"], generator["hidden.bias"]).relu()
    return F.linear(hidden, generator["out.weight"], generator["out.bias"])


def distances(points: Float[Tensor, "p d"], targets: Float[Tensor, "c d"]) -> Float[Tensor, "p c"]:
    """Euclidean distances; rounding must not make a square negative, nor a slope infinite."""
    squares = points.square().sum(dim=1, keepdim=True) + targets.square().sum(dim=1)
    return (squares - 2 * points @ targets.T).clamp(min=1e-12).sqrt()


def margin(told: Prototypes, threshold: float) -> float:
    """The largest distance from a class mean to the nearest other one, but at most the threshold."""
    means = ops.average(told, ops.combined_weights(told, torch.ones(len(told.labels))))
    if len(means.labels) < 2:
        return threshold
    between = torch.cdist(means.vectors, means.vectors).fill_diagonal_(torch.inf)
    return min(float(between.min(dim=1).values.max()), threshold)
