"""Ways to choose the focus coordinates by looking at the data, each with what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.mechanisms.base import Occasion
from vpdr.mechanisms.noise import laplace
from vpdr.mechanisms.scores import top
from vpdr.privacy.events import Event, Pure
from vpdr.types import Memory


@dataclass(frozen=True, slots=True)
class Choice:
    """The focus coordinates, and what is to be remembered of them."""

    focus: Bool[Tensor, " d"]
    memory: Memory = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Laps:
    """How the one-shot Laplace top-k is calibrated."""

    kept: int  # d_A
    cap: float  # H
    scale: float  # λ

    @property
    def cost(self) -> Pure:
        """ε of one selection: 2 d_A H / λ (Theorem 4.1)."""
        return Pure(2 * self.kept * self.cap / self.scale)


@runtime_checkable
class Selection(Protocol):
    """Chooses `kept` coordinates from their scores."""

    @property
    def scale(self) -> float:
        """λ of the noise on each score; 0 where none is added."""
        ...

    def cost(self, occasion: Occasion) -> tuple[Event, ...]:
        """What `choose` will reveal on this occasion; known before the scores are."""
        ...

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """The focus of this release."""
        ...


@dataclass(frozen=True, slots=True)
class LaplaceSelection:
    """The paper's: the largest clipped scores after one draw of Laplace noise each (Qiao et al., 2021).

    Guarantee: (2 d_A H/λ, 0)-DP between any two datasets, neighbours or not, because the whole range H of
    a clipped score is taken as its sensitivity. For the same reason it is nearly blind: a truly large score
    is at most e^ε₀ times likelier to be kept than any other (docs/privacy.md).
    """

    laps: Laps

    @property
    def scale(self) -> float:
        """λ, as calibrated."""
        return self.laps.scale

    def cost(self, occasion: Occasion) -> tuple[Event, ...]:
        """The same at every release."""
        return (self.laps.cost,)

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """Clip, add noise, keep the largest."""
        if kept != self.laps.kept:
            raise InvalidInput(
                f"the selection is calibrated for {self.laps.kept} coordinates, asked for {kept}"
            )
        noise = self.laps.scale * laplace(occasion.noise, len(scores))
        return Choice(top(within_range(scores, self.laps.cap) + noise, kept))


def within_range(scores: Float[Tensor, " d"], cap: float) -> Float[Tensor, " d"]:
    """Scores between 0 and the cap, whatever came in: the guarantee rests on this range.

    Samples can be made so large that a score overflows to NaN, which no clamp moves and every sort puts
    first; it counts as 0.
    """
    return torch.nan_to_num(scores, nan=0.0, posinf=cap, neginf=0.0).clamp(0, cap)


@dataclass(frozen=True, slots=True)
class OnceSelection:
    """The same selection, made at the first release with the whole share, and kept.

    Guarantee: as `LaplaceSelection`, charged once; a client that lost its memory selects and pays again.
    """

    laps: Laps

    @property
    def scale(self) -> float:
        """λ, as calibrated."""
        return self.laps.scale

    def cost(self, occasion: Occasion) -> tuple[Event, ...]:
        """Nothing where a selection is remembered."""
        return () if "focus" in occasion.memory else (self.laps.cost,)

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """The remembered focus, or a first selection."""
        known = occasion.memory.get("focus")
        if known is None:
            first = LaplaceSelection(self.laps).choose(scores, kept, occasion)
            return Choice(first.focus, {"focus": first.focus})
        if known.shape != scores.shape:
            raise InvalidInput(
                f"{occasion.client}: the remembered selection is for {len(known)} dimensions, "
                f"the features have {len(scores)}"
            )
        return Choice(known, {"focus": known})


def overlap(focus: Bool[Tensor, " d"], scores: Float[Tensor, " d"], kept: int) -> Mapping[str, float]:
    """Which share of the truly best coordinates was kept, beside what a coin would keep."""
    hits = (focus & top(scores, kept)).sum()
    return {"overlap": float(hits) / kept, "chance": kept / len(scores)}
