"""FPL (Huang et al., CVPR 2023): contrast to cluster prototypes, pull to their unbiased mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vpdr.checks import not_negative, positive
from vpdr.frameworks import ops
from vpdr.frameworks.base import Now, Ordinary, ServerMemory
from vpdr.frameworks.denoise import cleaned, told_with
from vpdr.frameworks.pool import pool
from vpdr.frameworks.wire import packed, unpacked
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.reduction import mean
from vpdr.types import Losses, Prototypes, Step


@dataclass(frozen=True, slots=True)
class Clusters:
    """Centroids of the uploads of each class, and one unbiased prototype per class."""

    centroids: Prototypes
    unbiased: Prototypes


@dataclass(frozen=True, kw_only=True, slots=True)
class Fpl(Ordinary):
    """The server clusters the uploads of each class, so that no domain drowns the others."""

    contrast_weight: float = 0.5  # w_c
    pull_weight: float = 0.5  # w_m
    sharpness: float = 0.07  # τ
    early_exit: bool = False
    summarise: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        positive(sharpness=self.sharpness)
        not_negative(contrast_weight=self.contrast_weight, pull_weight=self.pull_weight)

    def generate(
        self, uploads: Sequence[Prototypes], memory: ServerMemory, now: Now
    ) -> tuple[Clusters, ServerMemory]:
        """FINCH centroids of each class, and their mean (Eq. 3, K > 1)."""
        clear = cleaned(pool(uploads, now), now.classes)
        found = ops.centroids(clear.each, early_exit=self.early_exit)
        equal = torch.ones(len(found.labels), dtype=torch.float64)
        unbiased = ops.average(found, ops.combined_weights(found, equal))
        return Clusters(ops.single(found), told_with(unbiased, clear.overall)), memory

    @property
    def by_sample(self) -> bool:
        """Samples are contrasted with centroids, never with each other."""
        return True

    def losses(self, step: Step, broadcast: Clusters) -> Losses:
        """Cross-entropy, contrast to all centroids, and the pull to the unbiased prototype."""
        return {
            "task": ops.task(step),
            "contrast": self.contrast_weight * self._contrast(step, broadcast),
            "align": self.pull_weight * ops.pull(step, broadcast.unbiased),
        }

    def _contrast(self, step: Step, broadcast: Clusters) -> Tensor:
        """The log of the sum over the centroids of the own class: one close centroid is enough."""
        found = broadcast.centroids
        if not len(found.labels):
            return ops.nothing(step)
        logits = ops.cosine(step.features, found.vectors) / self.sharpness
        shares = ops.log_share(logits, ops.same_class(step.labels, found))
        return mean(-shares * ops.trust(step, broadcast.unbiased), step.weights)

    def anchors(self, broadcast: Clusters) -> Prototypes | None:
        """The unbiased prototypes."""
        return broadcast.unbiased

    def pack(self, broadcast: Clusters) -> dict[str, Tensor]:
        """Centroids and unbiased prototypes."""
        return packed("centroids", broadcast.centroids) | packed("unbiased", broadcast.unbiased)

    def unpack(self, arrays: Mapping[str, Tensor]) -> Clusters:
        """Centroids and unbiased prototypes."""
        return Clusters(unpacked("centroids", arrays), unpacked("unbiased", arrays))
