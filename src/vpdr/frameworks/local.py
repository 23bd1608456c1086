"""Local training without any exchange: the baseline of every comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from vpdr.frameworks.base import FrameworkBase, FrameworkState, ServerContext
from vpdr.frameworks.losses import cross_entropy
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Losses, Prototypes, TrainBatch


@dataclass(frozen=True, slots=True)
class EmptyBroadcast:
    """A broadcast without content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Local(FrameworkBase):
    """Every client trains on its own data only.

    Args:
        summariser: unused, since nothing is uploaded.
    """

    has_uploads: ClassVar[bool] = False  # nothing leaves a client, so nothing is charged
    loss_is_per_sample: ClassVar[bool] = True  # cross-entropy is a mean over samples

    summariser: Summariser = ClassMeans()

    def aggregate(
        self, uploads: Sequence[Prototypes], state: FrameworkState, context: ServerContext
    ) -> tuple[EmptyBroadcast, FrameworkState]:
        """Ignore the uploads."""
        return EmptyBroadcast(), state

    def losses(self, batch: TrainBatch, broadcast: EmptyBroadcast) -> Losses:
        """Cross-entropy."""
        return {"task": cross_entropy(batch)}

    def global_prototypes(self, broadcast: EmptyBroadcast) -> Prototypes | None:
        """None."""
        return None

    def pack(self, broadcast: EmptyBroadcast) -> dict[str, Tensor]:
        """No arrays."""
        return {}

    def unpack(self, arrays: Mapping[str, Tensor]) -> EmptyBroadcast:
        """No arrays."""
        return EmptyBroadcast()
