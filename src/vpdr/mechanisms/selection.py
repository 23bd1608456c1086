"""Ways to choose the focus coordinates, each with what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.mechanisms.base import Occasion
from vpdr.mechanisms.noise import laplace
from vpdr.mechanisms.scores import between_class_variance, top
from vpdr.privacy.events import Event, NotPrivate, Pure
from vpdr.types import Memory


@dataclass(frozen=True, slots=True)
class Choice:
    """The focus coordinates, and what choosing them revealed."""

    focus: Bool[Tensor, " d"]
    cost: tuple[Event, ...] = ()
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

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """Clip, add noise, keep the largest."""
        if kept != self.laps.kept:
            raise InvalidInput(
                f"the selection is calibrated for {self.laps.kept} coordinates, asked for {kept}"
            )
        noise = self.laps.scale * laplace(occasion.noise, len(scores))
        return Choice(top(within_range(scores, self.laps.cap) + noise, kept), (self.laps.cost,))


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

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """The remembered focus, or a first selection."""
        known = occasion.memory.get("focus")
        if known is None:
            first = LaplaceSelection(self.laps).choose(scores, kept, occasion)
            return Choice(first.focus, first.cost, {"focus": first.focus})
        if known.shape != scores.shape:
            raise InvalidInput(
                f"{occasion.client}: the remembered selection is for {len(known)} dimensions, "
                f"the features have {len(scores)}"
            )
        return Choice(known, (), {"focus": known})


class _WithoutNoise:
    """Selections whose scores are not perturbed, because they are public, unused, or not private."""

    __slots__ = ()

    @property
    def scale(self) -> float:
        """No noise on any score."""
        return 0.0


@dataclass(frozen=True, slots=True)
class RandomSelection(_WithoutNoise):
    """A uniform subset: the control. Guarantee: independent of the data, costs nothing."""

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """Rank fresh random numbers.

        Gaussian ones: ranking the uniform draws behind the Laplace noise would repeat its choice, seed by
        seed, and make the control look more like the selection than it is.
        """
        return Choice(top(occasion.noise.normal(len(scores)), kept))


@dataclass(frozen=True, slots=True)
class PublicSelection(_WithoutNoise):
    """The coordinates in which the last broadcast separates its classes.

    Guarantee: post-processing of what everybody has already heard, costs nothing.
    """

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """By between-class variance of the broadcast; at random before anything was heard."""
        if occasion.heard is None:
            return RandomSelection().choose(scores, kept, occasion)
        heard = between_class_variance(occasion.heard)
        if heard.shape != scores.shape:
            raise InvalidInput(
                f"{occasion.client}: the broadcast has {len(heard)} dimensions, the features {len(scores)}"
            )
        return Choice(top(heard, kept))


@dataclass(frozen=True, slots=True)
class OracleSelection(_WithoutNoise):
    """The truly largest scores: what a perfect selection would give. Guarantee: none, not private."""

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """Look, and say so."""
        return Choice(top(scores, kept), (NotPrivate(),))


def overlap(focus: Bool[Tensor, " d"], scores: Float[Tensor, " d"], kept: int) -> Mapping[str, float]:
    """Which share of the truly best coordinates was kept, beside what a coin would keep."""
    hits = (focus & top(scores, kept)).sum()
    return {"overlap": float(hits) / kept, "chance": kept / len(scores)}
