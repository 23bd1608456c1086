"""FedProto (Tan et al., AAAI 2022): share class means, stay close to their average."""

from collections.abc import Sequence
from dataclasses import dataclass

from vpdr.checks import not_negative
from vpdr.frameworks import ops
from vpdr.frameworks.base import Now, ServerMemory
from vpdr.frameworks.denoise import cleaned, told_with
from vpdr.frameworks.one_set import OneSet
from vpdr.frameworks.pool import pool
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Losses, Prototypes, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class FedProto(OneSet):
    """One global prototype per class, and a pull of every feature towards that of its own class."""

    weight: float = 0.1  # λ
    summarise: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        not_negative(weight=self.weight)

    def generate(
        self, uploads: Sequence[Prototypes], memory: ServerMemory, now: Now
    ) -> tuple[Prototypes, ServerMemory]:
        """The weighted average of each class over the clients that uploaded it (Eq. 3, K = 1)."""
        overall = cleaned(pool(uploads, now), now.classes).overall
        return told_with(overall, overall), memory

    @property
    def by_sample(self) -> bool:
        """Each sample is pulled by its own label's anchor."""
        return True

    def losses(self, step: Step, broadcast: Prototypes) -> Losses:
        """Cross-entropy, and the pull."""
        return {"task": ops.task(step), "align": self.weight * ops.pull(step, broadcast)}
