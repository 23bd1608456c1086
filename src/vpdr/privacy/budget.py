"""A privacy budget, and how it is divided."""

import math
from dataclasses import dataclass

from vpdr.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Budget:
    """The (ε, δ) that one client is willing to spend over all rounds."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise InvalidInput(f"epsilon must be a positive number, got {self.epsilon:g}")
        if not 0 <= self.delta < 1:
            raise InvalidInput(f"delta must lie in [0, 1), got {self.delta:g}")

    def split(self, share: float) -> tuple["Budget", "Budget"]:
        """(ε₁, 0) for the selection and (ε₂, δ) for the release (Sec. 4.2)."""
        if not 0 < share < 1:
            raise InvalidInput(f"share must lie in (0, 1), got {share:g}: one part would be empty")
        selection = share * self.epsilon
        return Budget(selection, 0.0), Budget(self.epsilon - selection, self.delta)
