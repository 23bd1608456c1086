"""FedPLVM (Wang et al., NeurIPS 2024): clusters on clients and server, and an α-sparse cosine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from vpdr.frameworks.aggregation import denoise_uploads, finch_centroids, pool_uploads, with_reliability
from vpdr.frameworks.base import FrameworkState, ServerContext, SinglePrototypeSet
from vpdr.frameworks.losses import (
    cosine_similarity,
    cross_entropy,
    log_positive_mass,
    same_class_mask,
    sample_reliability,
    weighted_mean,
    zero_loss,
)
from vpdr.prototypes import FinchClusters, Summariser
from vpdr.types import Losses, Prototypes, TrainBatch
from vpdr.validation import not_negative, one_of, positive


def mean_positive_log_prob(logits: Float[Tensor, "b p"], is_positive: Bool[Tensor, "b p"]) -> Float[Tensor, " b"]:
    """The mean of the log probabilities of the positives; 0 for a row without positives."""
    return (logits.log_softmax(dim=1) * is_positive).sum(dim=1) / is_positive.sum(dim=1).clamp(min=1)


POSITIVE_REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "original": log_positive_mass,
    "authors": mean_positive_log_prob,
}


def signed_power(values: Tensor, exponent: float, smoothing: float) -> Tensor:
    """sign(s)·|s|^α, smoothed around 0, where the derivative is infinite."""
    power: Tensor = (values.abs() + smoothing).pow(exponent) - smoothing**exponent
    return values.sign() * power


@dataclass(frozen=True, kw_only=True, slots=True)
class FedPlvm(SinglePrototypeSet):
    """Several prototypes for each class from every client, clustered again by the server.

    Args:
        weight: λ, the weight of contrast and correction.
        sparsity: α, the exponent of the cosine.
        temperature: τ, the temperature that powers of cosines are divided by.
        smoothing: keeps the derivative of the power finite at 0.
        positive_reduction: how positives are reduced: `original` is the log of their sum, `authors` the mean
            of logs.
        mean_correction: whether the correction is divided by the number of centroids of the class.
        early_exit: whether FINCH stops at its first partition, on clients and server.
        summariser: how clients make prototypes; FINCH clusters follow `early_exit`.
    """

    loss_is_per_sample: ClassVar[bool] = True  # samples are contrasted with centroids, never with each other

    weight: float = 0.5
    sparsity: float = 0.25
    temperature: float = 0.07
    smoothing: float = 1e-4
    positive_reduction: str = "original"
    mean_correction: bool = False
    early_exit: bool = False
    summariser: Summariser = field(default_factory=FinchClusters)

    def __post_init__(self) -> None:
        positive(sparsity=self.sparsity, temperature=self.temperature, smoothing=self.smoothing)
        not_negative(weight=self.weight)
        one_of(list(POSITIVE_REDUCTIONS), positive_reduction=self.positive_reduction)
        if isinstance(self.summariser, FinchClusters):
            object.__setattr__(self, "summariser", FinchClusters(early_exit=self.early_exit))

    def aggregate(
        self, uploads: Sequence[Prototypes], state: FrameworkState, context: ServerContext
    ) -> tuple[Prototypes, FrameworkState]:
        """FINCH centroids of all uploads of each class (Eq. 3, K > 1)."""
        denoised = denoise_uploads(pool_uploads(uploads, context), context.classes)
        centroids = finch_centroids(denoised.prototypes, early_exit=self.early_exit)
        return with_reliability(centroids, denoised.class_prototypes), state

    def losses(self, batch: TrainBatch, broadcast: Prototypes) -> Losses:
        """Cross-entropy, contrast, and a correction towards cosine 1 with every centroid of the class."""
        if not len(broadcast.labels):
            return {"task": cross_entropy(batch), "contrast": zero_loss(batch), "correct": zero_loss(batch)}
        match = same_class_mask(batch.labels, broadcast)
        cosine = cosine_similarity(batch.features, broadcast.vectors)
        similarity = signed_power(cosine, self.sparsity, self.smoothing)
        reliability = sample_reliability(batch, broadcast)
        contrast = -POSITIVE_REDUCTIONS[self.positive_reduction](similarity / self.temperature, match) * reliability
        return {
            "task": cross_entropy(batch),
            "contrast": self.weight * weighted_mean(contrast, batch.weights),
            "correct": self.weight * weighted_mean(self._correction(similarity, match) * reliability, batch.weights),
        }

    def _correction(self, similarity: Float[Tensor, "b p"], match: Bool[Tensor, "b p"]) -> Float[Tensor, " b"]:
        """|Σ s_α - K| over the K centroids of the own class; 0 if there are none."""
        count = match.sum(dim=1)
        difference = ((similarity * match).sum(dim=1) - count).abs()
        return difference / count.clamp(min=1) if self.mean_correction else difference
