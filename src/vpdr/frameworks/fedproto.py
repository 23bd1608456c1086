"""FedProto (Tan et al., AAAI 2022): global class means, and alignment of features with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vpdr.frameworks import aggregation, base
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Losses, Prototypes, TrainBatch
from vpdr.validation import at_least


@dataclass(frozen=True, kw_only=True, slots=True)
class FedProto(base.SinglePrototypeSet):
    """One global prototype for each class; every feature is aligned with that of its own class.

    >>> import torch
    >>> from vpdr.rng import Streams
    >>> uploads = [Prototypes(torch.full((2, 3), value), torch.tensor([0, 1])) for value in (1.0, 3.0)]
    >>> context = base.ServerContext(round=1, classes=2, dim=3, streams=Streams(0), weights=torch.ones(2, 2))
    >>> framework = FedProto(weight=0.1)
    >>> broadcast, state = framework.aggregate(uploads, framework.init_state(context), context)
    >>> broadcast.labels.tolist(), broadcast.vectors[0].tolist()
    ([0, 1], [2.0, 2.0, 2.0])
    """

    loss_is_per_sample: ClassVar[bool] = True  # each sample is aligned with the prototype of its own label

    weight: float = 0.1  # λ, of the alignment loss
    summariser: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        at_least(0, weight=self.weight)

    def aggregate(
        self, uploads: Sequence[Prototypes], state: base.FrameworkState, context: base.ServerContext
    ) -> tuple[Prototypes, base.FrameworkState]:
        """The weighted average of each class over the clients that uploaded it (Eq. 3, K = 1)."""
        pooled = aggregation.pool_uploads(uploads, context)
        averages = aggregation.denoise_uploads(pooled, context.classes).class_prototypes
        return aggregation.with_reliability(averages, averages), state

    def losses(self, batch: TrainBatch, broadcast: Prototypes) -> Losses:
        return {"task": base.cross_entropy(batch), "align": self.weight * base.alignment_loss(batch, broadcast)}
