"""FedPLVM (Wang et al., NeurIPS 2024): clusters on clients and server, and an α-sparse cosine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from vpdr.frameworks import aggregation, base
from vpdr.prototypes import FinchClusters, Summariser
from vpdr.types import Bool, Float, Losses, Prototypes, Tensor, TrainBatch
from vpdr.validation import at_least, one_of, positive


def mean_positive_log_prob(logits: Float[Tensor, "b p"], is_positive: Bool[Tensor, "b p"]) -> Float[Tensor, " b"]:
    """The mean of the log probabilities of the positives; 0 for a row without positives."""
    return (logits.log_softmax(dim=1) * is_positive).sum(dim=1) / is_positive.sum(dim=1).clamp(min=1)


POSITIVE_REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "original": base.log_positive_mass,  # the log of the sum over positives
    "authors": mean_positive_log_prob,  # the mean of the logs
}


def signed_power(values: Tensor, exponent: float, smoothing: float) -> Tensor:
    """sign(s)·|s|^α, smoothed around 0, where the derivative is infinite."""
    power: Tensor = (values.abs() + smoothing).pow(exponent) - smoothing**exponent
    return values.sign() * power


@dataclass(frozen=True, kw_only=True, slots=True)
class FedPlvm(base.SinglePrototypeSet):
    """Several prototypes for each class from every client, clustered again by the server."""

    loss_is_per_sample: ClassVar[bool] = True  # samples are contrasted with centroids, never with each other

    weight: float = 0.5  # λ, of contrast and correction
    sparsity: float = 0.25  # α, the exponent of the cosine
    temperature: float = 0.07  # τ, which powers of cosines are divided by
    smoothing: float = 1e-4  # keeps the derivative of the power finite at 0
    positive_reduction: str = "original"
    mean_correction: bool = False  # whether the correction is divided by the number of centroids of the class
    early_exit: bool = False  # whether FINCH stops at its first partition, on clients and server
    summariser: Summariser = field(default_factory=FinchClusters)  # FINCH clusters follow `early_exit`

    def __post_init__(self) -> None:
        positive(sparsity=self.sparsity, temperature=self.temperature, smoothing=self.smoothing)
        at_least(0, weight=self.weight)
        one_of(list(POSITIVE_REDUCTIONS), positive_reduction=self.positive_reduction)
        if isinstance(self.summariser, FinchClusters):
            object.__setattr__(self, "summariser", FinchClusters(early_exit=self.early_exit))

    def uses_weights(self, *, has_variances: bool) -> bool:
        return has_variances  # in class averages, which only set the reliability of what is broadcast

    def aggregate(
        self, uploads: Sequence[Prototypes], state: base.FrameworkState, context: base.ServerContext
    ) -> tuple[Prototypes, base.FrameworkState]:
        """FINCH centroids of all uploads of each class (Eq. 3, K > 1)."""
        denoised = aggregation.denoise_uploads(aggregation.pool_uploads(uploads, context), context.classes)
        centroids = aggregation.finch_centroids(denoised.prototypes, early_exit=self.early_exit)
        return aggregation.with_reliability(centroids, denoised.class_prototypes), state

    def losses(self, batch: TrainBatch, broadcast: Prototypes) -> Losses:
        """Cross-entropy, contrast, and a correction towards cosine 1 with every centroid of the class.

        The correction is |Σ s_α - K| over the K centroids of the own class; 0 if there are none.
        """
        if not len(broadcast.labels):
            zero = base.zero_loss(batch)
            return {"task": base.cross_entropy(batch), "contrast": zero, "correct": zero}
        match = base.same_class_mask(batch.labels, broadcast)
        cosine = base.cosine_similarity(batch.features, broadcast.vectors)
        similarity = signed_power(cosine, self.sparsity, self.smoothing)
        reliability = base.sample_reliability(batch, broadcast)
        contrast = -POSITIVE_REDUCTIONS[self.positive_reduction](similarity / self.temperature, match)
        count = match.sum(dim=1)
        correction = ((similarity * match).sum(dim=1) - count).abs()
        if self.mean_correction:
            correction = correction / count.clamp(min=1)
        return {
            "task": base.cross_entropy(batch),
            "contrast": self.weight * base.weighted_mean(contrast * reliability, batch.weights),
            "correct": self.weight * base.weighted_mean(correction * reliability, batch.weights),
        }
