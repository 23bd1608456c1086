"""Local training without any exchange: the baseline of every comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vpdr.frameworks import base
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Losses, Prototypes, Tensor, TrainBatch


@dataclass(frozen=True, slots=True)
class EmptyBroadcast:
    """A broadcast without content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Local(base.Framework[EmptyBroadcast]):
    """Every client trains on its own data only."""

    has_uploads: ClassVar[bool] = False  # nothing leaves a client, so nothing is charged
    loss_is_per_sample: ClassVar[bool] = True  # cross-entropy is a mean over samples

    summariser: Summariser = ClassMeans()  # unused, since nothing is uploaded

    def aggregate(
        self, uploads: Sequence[Prototypes], state: base.FrameworkState, context: base.ServerContext
    ) -> tuple[EmptyBroadcast, base.FrameworkState]:
        return EmptyBroadcast(), state

    def losses(self, batch: TrainBatch, broadcast: EmptyBroadcast) -> Losses:
        return {"task": base.cross_entropy(batch)}

    def pack(self, broadcast: EmptyBroadcast) -> dict[str, Tensor]:
        return {}

    def unpack(self, arrays: Mapping[str, Tensor]) -> EmptyBroadcast:
        return EmptyBroadcast()
