"""No exchange at all: the control that every comparison needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from vpdr.frameworks import ops
from vpdr.frameworks.base import Now, Ordinary, ServerMemory
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Losses, Prototypes, Step


@dataclass(frozen=True, slots=True)
class Silence:
    """A broadcast that says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Local(Ordinary):
    """Every client learns from its own data only."""

    summarise: Summariser = ClassMeans()

    @property
    def uploads(self) -> bool:
        """Nothing leaves a client, so nothing is charged."""
        return False

    def generate(
        self, uploads: Sequence[Prototypes], memory: ServerMemory, now: Now
    ) -> tuple[Silence, ServerMemory]:
        """Whatever is uploaded is ignored."""
        return Silence(), memory

    @property
    def by_sample(self) -> bool:
        """Cross-entropy is a mean over samples."""
        return True

    def losses(self, step: Step, broadcast: Silence) -> Losses:
        """Cross-entropy."""
        return {"task": ops.task(step)}

    def anchors(self, broadcast: Silence) -> Prototypes | None:
        """There are none."""
        return None

    def pack(self, broadcast: Silence) -> dict[str, Tensor]:
        """No arrays."""
        return {}

    def unpack(self, arrays: Mapping[str, Tensor]) -> Silence:
        """No arrays."""
        return Silence()
