"""FedPLVM (Wang et al., NeurIPS 2024): clusters on both sides, and a sparse power of the cosine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jaxtyping import Bool, Float
from torch import Tensor

from vpdr.checks import not_negative, one_of, positive
from vpdr.frameworks import ops
from vpdr.frameworks.base import Now, ServerMemory
from vpdr.frameworks.denoise import cleaned, told_with
from vpdr.frameworks.one_set import OneSet
from vpdr.frameworks.pool import pool
from vpdr.prototypes import FinchClusters, Summariser
from vpdr.reduction import mean
from vpdr.types import Losses, Prototypes, Step


def mean_log_share(logits: Float[Tensor, "b p"], positive: Bool[Tensor, "b p"]) -> Float[Tensor, " b"]:
    """The mean over positives of their log-probabilities; 0 where a row has none."""
    return (logits.log_softmax(dim=1) * positive).sum(dim=1) / positive.sum(dim=1).clamp(min=1)


POSITIVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "original": ops.log_share,
    "authors": mean_log_share,
}


def signed_power(values: Tensor, exponent: float, smoothing: float) -> Tensor:
    """sign(s)·|s|^α, made smooth around 0, where the true slope is infinite."""
    raised: Tensor = (values.abs() + smoothing).pow(exponent) - smoothing**exponent
    return values.sign() * raised


@dataclass(frozen=True, kw_only=True, slots=True)
class FedPlvm(OneSet):
    """Several prototypes per class from every client, clustered once more by the server."""

    weight: float = 0.5  # λ
    sparsity: float = 0.25  # α
    sharpness: float = 0.07  # τ
    smoothing: float = 1e-4
    variant: str = "original"  # how positives are joined: log of the sum, or mean of the logs
    normalised: bool = False  # whether the correction is divided by the number of centroids
    early_exit: bool = False  # of FINCH, on the clients and on the server
    summarise: Summariser = field(default_factory=FinchClusters)

    def __post_init__(self) -> None:
        positive(sparsity=self.sparsity, sharpness=self.sharpness, smoothing=self.smoothing)
        not_negative(weight=self.weight)
        one_of(list(POSITIVES), variant=self.variant)
        if isinstance(self.summarise, FinchClusters):
            object.__setattr__(self, "summarise", FinchClusters(early_exit=self.early_exit))

    def generate(
        self, uploads: Sequence[Prototypes], memory: ServerMemory, now: Now
    ) -> tuple[Prototypes, ServerMemory]:
        """FINCH centroids of all that was uploaded for each class (Eq. 3, K > 1)."""
        clear = cleaned(pool(uploads, now), now.classes)
        found = ops.centroids(clear.each, early_exit=self.early_exit)
        return told_with(found, clear.overall), memory

    @property
    def by_sample(self) -> bool:
        """Samples are contrasted with centroids, never with each other."""
        return True

    def losses(self, step: Step, broadcast: Prototypes) -> Losses:
        """Cross-entropy, contrast, and a correction that asks for every cosine of the class to be 1."""
        if not len(broadcast.labels):
            return {"task": ops.task(step), "contrast": ops.nothing(step), "correct": ops.nothing(step)}
        match = ops.same_class(step.labels, broadcast)
        near = signed_power(ops.cosine(step.features, broadcast.vectors), self.sparsity, self.smoothing)
        trusted = ops.trust(step, broadcast)
        contrast = -POSITIVES[self.variant](near / self.sharpness, match) * trusted
        return {
            "task": ops.task(step),
            "contrast": self.weight * mean(contrast, step.weights),
            "correct": self.weight * mean(self._correction(near, match) * trusted, step.weights),
        }

    def _correction(self, near: Float[Tensor, "b p"], match: Bool[Tensor, "b p"]) -> Float[Tensor, " b"]:
        """|Σ s_α - K| over the centroids of the own class; 0 where there are none."""
        count = match.sum(dim=1)
        missing = ((near * match).sum(dim=1) - count).abs()
        return missing / count.clamp(min=1) if self.normalised else missing
