"""FPL (Huang et al., CVPR 2023): contrast with cluster centroids, alignment with their unbiased mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vpdr.frameworks.aggregation import (
    class_averages,
    class_weights,
    denoise_uploads,
    finch_centroids,
    pool_uploads,
    to_float32_without_variances,
    with_reliability,
)
from vpdr.frameworks.base import (
    FrameworkBase,
    FrameworkState,
    ServerContext,
    prototypes_from_arrays,
    prototypes_to_arrays,
)
from vpdr.frameworks.losses import (
    alignment_loss,
    cosine_similarity,
    cross_entropy,
    log_positive_mass,
    same_class_mask,
    sample_reliability,
    weighted_mean,
    zero_loss,
)
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Losses, Prototypes, TrainBatch
from vpdr.validation import not_negative, positive


@dataclass(frozen=True, slots=True)
class FplBroadcast:
    """Centroids of the uploads of each class, and their mean, the unbiased prototype of the class."""

    centroids: Prototypes
    unbiased: Prototypes


@dataclass(frozen=True, kw_only=True, slots=True)
class Fpl(FrameworkBase):
    """The server clusters the uploads of each class, so that frequent domains do not dominate the mean.

    Args:
        contrast_weight: w_c, the weight of the contrastive loss.
        pull_weight: w_m, the weight of the alignment loss.
        temperature: τ, the temperature that cosines are divided by.
        early_exit: whether FINCH stops at its first partition.
        summariser: how clients make prototypes.
    """

    loss_is_per_sample: ClassVar[bool] = True  # samples are contrasted with centroids, never with each other

    contrast_weight: float = 0.5
    pull_weight: float = 0.5
    temperature: float = 0.07
    early_exit: bool = False
    summariser: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        positive(temperature=self.temperature)
        not_negative(contrast_weight=self.contrast_weight, pull_weight=self.pull_weight)

    def aggregate(
        self, uploads: Sequence[Prototypes], state: FrameworkState, context: ServerContext
    ) -> tuple[FplBroadcast, FrameworkState]:
        """FINCH centroids of each class, and their mean (Eq. 3, K > 1)."""
        denoised = denoise_uploads(pool_uploads(uploads, context), context.classes)
        centroids = finch_centroids(denoised.prototypes, early_exit=self.early_exit)
        equal_weights = torch.ones(len(centroids.labels), dtype=torch.float64)
        unbiased = class_averages(centroids, class_weights(centroids, equal_weights))
        broadcast = FplBroadcast(
            to_float32_without_variances(centroids), with_reliability(unbiased, denoised.class_prototypes)
        )
        return broadcast, state

    def losses(self, batch: TrainBatch, broadcast: FplBroadcast) -> Losses:
        """Cross-entropy, contrast with all centroids, and alignment with the unbiased prototype."""
        return {
            "task": cross_entropy(batch),
            "contrast": self.contrast_weight * self._contrastive_loss(batch, broadcast),
            "align": self.pull_weight * alignment_loss(batch, broadcast.unbiased),
        }

    def _contrastive_loss(self, batch: TrainBatch, broadcast: FplBroadcast) -> Tensor:
        """Minus the log probability of the own class's centroids together: one close centroid is enough."""
        centroids = broadcast.centroids
        if not len(centroids.labels):
            return zero_loss(batch)
        logits = cosine_similarity(batch.features, centroids.vectors) / self.temperature
        log_prob = log_positive_mass(logits, same_class_mask(batch.labels, centroids))
        return weighted_mean(-log_prob * sample_reliability(batch, broadcast.unbiased), batch.weights)

    def global_prototypes(self, broadcast: FplBroadcast) -> Prototypes | None:
        """The unbiased prototypes."""
        return broadcast.unbiased

    def pack(self, broadcast: FplBroadcast) -> dict[str, Tensor]:
        """Centroids and unbiased prototypes."""
        return {
            **prototypes_to_arrays("centroids", broadcast.centroids),
            **prototypes_to_arrays("unbiased", broadcast.unbiased),
        }

    def unpack(self, arrays: Mapping[str, Tensor]) -> FplBroadcast:
        """Centroids and unbiased prototypes."""
        return FplBroadcast(prototypes_from_arrays("centroids", arrays), prototypes_from_arrays("unbiased", arrays))
