"""Balanced James-Stein shrinkage of prototypes: the closed form that `blup` is checked against.

No server uses it. `blup` is the same formula on balanced data, and it leaves a variance as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """When a part counts as noise, and how little of the class part is kept even then."""

    strictness: float = 2.0  # κ: energy must pass its expectation by so many standard deviations
    floor: float = 0.0  # of the class part, so that classes never become equal


def anova_james_stein(
    estimates: Float[Tensor, "m c d"],
    variance: float,
    guard: Guard | None = None,
    bins: Sequence[Int[Tensor, " k"]] | None = None,
) -> Float[Tensor, "m c d"]:
    """What all share, what a class adds, what a client adds and the rest: each shrunk by its own energy.

    For equal noise on every entry. There, without a guard (strictness 0), it is `blup` of `shrinkage.py` but
    for rounding, as long as every component that `blup` fits is above its lower end; where energy is below
    what noise is expected to have, the two cut it off differently, and the guard more than either.
    Coordinates that are known to differ in scale are shrunk in bins of their own.
    """
    guard = guard or Guard()
    out = torch.zeros_like(estimates)
    for rows in bins or [torch.arange(estimates.shape[2])]:
        out[..., rows] = _shrunk(estimates[..., rows], variance, guard)
    return out


def _shrunk(part: Float[Tensor, "m c k"], variance: float, guard: Guard) -> Float[Tensor, "m c k"]:
    clients, classes, width = part.shape
    grand = part.mean(dim=(0, 1), keepdim=True)
    by_class = part.mean(dim=0, keepdim=True) - grand
    by_client = part.mean(dim=1, keepdim=True) - grand
    rest = part - grand - by_class - by_client
    shrunk = torch.zeros_like(part)
    for piece, freedom, times, floor in (
        (grand, 1, clients * classes, 0.0),
        (by_class, classes - 1, clients, guard.floor),
        (by_client, clients - 1, classes, 0.0),
        (rest, (clients - 1) * (classes - 1), 1, 0.0),
    ):
        energy = float(piece.square().sum()) * times
        shrunk = shrunk + max(floor, _factor(energy, freedom * width, variance, guard)) * piece
    return shrunk


def _factor(energy: float, freedom: int, variance: float, guard: Guard) -> float:
    """1 - expected noise / energy; 0 where the energy may well be noise alone."""
    expected = freedom * variance
    if freedom == 0 or energy <= expected * (1 + guard.strictness * math.sqrt(2 / freedom)):
        return 0.0
    return 1 - expected / energy
