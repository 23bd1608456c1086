"""FPL (Huang et al., CVPR 2023): contrast with cluster centroids, alignment with their unbiased mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from vpdr.frameworks import aggregation, base
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Losses, Prototypes, Tensor, TrainBatch
from vpdr.validation import at_least, positive


@dataclass(frozen=True, slots=True)
class FplBroadcast:
    """Centroids of the uploads of each class, and their mean, the unbiased prototype of the class."""

    centroids: Prototypes
    unbiased: Prototypes


@dataclass(frozen=True, kw_only=True, slots=True)
class Fpl(base.Framework[FplBroadcast]):
    """The server clusters the uploads of each class, so that frequent domains do not dominate the mean."""

    loss_is_per_sample: ClassVar[bool] = True  # samples are contrasted with centroids, never with each other

    contrast_weight: float = 0.5  # w_c, of the contrastive loss
    pull_weight: float = 0.5  # w_m, of the alignment loss
    temperature: float = 0.07  # τ, which cosines are divided by
    early_exit: bool = False  # whether FINCH stops at its first partition
    summariser: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        positive(temperature=self.temperature)
        at_least(0, contrast_weight=self.contrast_weight, pull_weight=self.pull_weight)

    def uses_weights(self, *, has_variances: bool) -> bool:
        return has_variances  # in class averages, which only set the reliability of what is broadcast

    def aggregate(
        self, uploads: Sequence[Prototypes], state: base.FrameworkState, context: base.ServerContext
    ) -> tuple[FplBroadcast, base.FrameworkState]:
        """FINCH centroids of each class, and their mean (Eq. 3, K > 1)."""
        denoised = aggregation.denoise_uploads(aggregation.pool_uploads(uploads, context), context.classes)
        centroids = aggregation.finch_centroids(denoised.prototypes, early_exit=self.early_exit)
        equal_weights = torch.ones(len(centroids.labels), dtype=torch.float64)
        unbiased = aggregation.class_averages(centroids, aggregation.class_weights(centroids, equal_weights))
        unbiased = aggregation.with_reliability(unbiased, denoised.class_prototypes)
        return FplBroadcast(aggregation.to_float32_without_variances(centroids), unbiased), state

    def losses(self, batch: TrainBatch, broadcast: FplBroadcast) -> Losses:
        """Cross-entropy, contrast with all centroids, and alignment with the unbiased prototype.

        The contrast is minus the log probability of the own class's centroids together: one close centroid
        is enough.
        """
        centroids, task = broadcast.centroids, base.cross_entropy(batch)
        if len(centroids.labels):
            logits = base.cosine_similarity(batch.features, centroids.vectors) / self.temperature
            log_prob = base.log_positive_mass(logits, base.same_class_mask(batch.labels, centroids))
            reliability = base.sample_reliability(batch, broadcast.unbiased)
            contrast = base.weighted_mean(-log_prob * reliability, batch.weights)
        else:
            contrast = base.zero_loss(batch)
        return {
            "task": task,
            "contrast": self.contrast_weight * contrast,
            "align": self.pull_weight * base.alignment_loss(batch, broadcast.unbiased),
        }

    def global_prototypes(self, broadcast: FplBroadcast) -> Prototypes | None:
        return broadcast.unbiased

    def pack(self, broadcast: FplBroadcast) -> dict[str, Tensor]:
        return base.prototypes_to_arrays({"centroids": broadcast.centroids, "unbiased": broadcast.unbiased})

    def unpack(self, arrays: Mapping[str, Tensor]) -> FplBroadcast:
        return FplBroadcast(*(base.prototypes_from_arrays(prefix, arrays) for prefix in ("centroids", "unbiased")))
