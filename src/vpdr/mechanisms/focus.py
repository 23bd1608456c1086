"""How VPP divides coordinates, clip norm, noise and budget between its two groups."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.mechanisms.selection import LaplaceSelection, Laps, OnceSelection, Selection
from vpdr.mechanisms.unnoised import OracleSelection, PublicSelection, RandomSelection
from vpdr.privacy.accountants.base import check_rounds
from vpdr.privacy.budget import Budget
from vpdr.privacy.events import Event, NotPrivate, Repeated

_FREE: dict[str, Callable[[], Selection]] = {
    "random": RandomSelection,
    "public": PublicSelection,
    "oracle": OracleSelection,
}
_PAID: dict[str, Callable[[Laps], Selection]] = {"laplace": LaplaceSelection, "once": OnceSelection}
_ONLY_FIRST_ROUND = {"once"}
_LOOKS = {"oracle"}
SELECTIONS = (*_PAID, *_FREE)


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """A selection ready for use, and what it will cost over all rounds."""

    selection: Selection
    beside: Repeated | None = None
    laps: Laps | None = None
    private: bool = True

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything that the selections of all rounds will be charged."""
        if not self.private:
            return (NotPrivate(),)
        return (self.beside.event,) * self.beside.times if self.beside else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Focus:
    """The settings of the discriminative group; the defaults are the paper's."""

    keep: float = 0.2  # ρ
    cap: float = 0.1  # H
    share: float = 0.1  # r, of ε for the selection; unused by selections that cost nothing
    selection: str = "laplace"

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 0.5:
            raise InvalidInput(
                f"keep must lie in (0, 0.5], got {self.keep:g}: above one half the focus would get more noise"
            )
        if not 0 < self.cap < math.inf:
            raise InvalidInput(f"cap must be a positive number, got {self.cap:g}")
        if self.selection not in SELECTIONS:
            raise InvalidInput(f"unknown selection {self.selection!r}; choose one of {', '.join(SELECTIONS)}")
        if self.selection in _PAID and not 0 < self.share < 1:
            raise InvalidInput(
                f"share must lie in (0, 1), got {self.share:g}; selection 'random' is the one without a share"
            )

    @property
    def private(self) -> bool:
        """Whether the selection keeps what it looks at to itself."""
        return self.selection not in _LOOKS

    def plan(self, budget: Budget, rounds: int, kept: int) -> SelectionPlan:
        """The selection, its Laplace scale λ = 2 d_A H T / ε₁ and its events (Eq. 9)."""
        if self.selection in _FREE:
            return SelectionPlan(_FREE[self.selection](), private=self.private)
        check_rounds(rounds)
        own, _ = budget.split(self.share)
        times = 1 if self.selection in _ONLY_FIRST_ROUND else rounds
        laps = Laps(kept=kept, cap=self.cap, scale=2 * kept * self.cap * times / own.epsilon)
        return SelectionPlan(_PAID[self.selection](laps), Repeated(laps.cost, times), laps)


@dataclass(frozen=True, slots=True)
class Groups:
    """The geometry of the two groups: how many coordinates, which radii, how much noise."""

    dim: int  # d
    kept: int  # d_A

    @classmethod
    def of(cls, dim: int, keep: float) -> "Groups":
        """⌈ρd⌉ coordinates in the focus, at least one in each group."""
        if dim < 2:
            raise InvalidInput(f"two groups need at least 2 dimensions, got {dim}")
        kept = math.ceil(keep * dim - 1e-9)  # 0.07 * 100 is 7.000000000000001
        return cls(dim, min(max(kept, 1), dim - 1))

    @property
    def radii(self) -> tuple[float, float]:
        """κ_A, κ_B: each group's share of the clip norm; their squares add up to one (Eq. 10)."""
        return math.sqrt(self.kept / self.dim), math.sqrt(1 - self.kept / self.dim)

    @property
    def weights(self) -> tuple[float, float]:
        """w_A, w_B: each group's share of the precision (Eq. 13)."""
        first, second = self.radii
        return second / (first + second), first / (first + second)

    @property
    def factors(self) -> tuple[float, float]:
        """Noise of each group relative to σ_ref·Δ: κ/√w."""
        return self.radii[0] / math.sqrt(self.weights[0]), self.radii[1] / math.sqrt(self.weights[1])

    @property
    def energy(self) -> float:
        """Noise energy relative to isotropic noise of the same multiplier; 1 only at one half."""
        first, second = self.factors
        return (self.kept * first**2 + (self.dim - self.kept) * second**2) / self.dim

    def reach(self, focus: Bool[Tensor, " d"]) -> Float[Tensor, " d"]:
        """The factor of every coordinate."""
        first, second = torch.tensor(self.factors, dtype=torch.float64)
        return torch.where(focus, first, second)
