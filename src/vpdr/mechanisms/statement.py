"""Sensitivities and calibrations in words, for people who want to know before they run."""

import math

import torch

from vpdr.mechanisms.focus import Focus, Groups, SelectionPlan
from vpdr.privacy.terms import Adjacency
from vpdr.prototypes import NoSensitivity, Summariser


def release_bound(adjacency: Adjacency, summarise: Summariser) -> str:
    """What one sample can do to the released rows, told for samples of norm at most R."""
    try:
        alone, many = summarise.sensitivity(adjacency, 1.0, torch.tensor([1, 100])).tolist()
    except NoSensitivity as error:
        return f"none: {error}"
    size = f"{alone:.4g} R" if alone == many else f"{alone:.4g} R / n"
    counts = "counts hidden with it" if summarise.hides_counts(adjacency) else "counts public"
    return f"l2 {size} ({counts}, {summarise.basis})"


def selection_bound(cap: float) -> str:
    """What any change of the data can do to one clipped score."""
    return f"l-infinity {cap:g}, the whole range of a clipped score: it holds under every adjacency (proved)"


def selection_ceiling(groups: Groups, epsilon: float) -> float:
    """The best precision that a selection of this ε can have, whatever the data are.

    Swapping a truly large score with any other changes the chance to be kept by at most e^ε, and all
    chances add up to the number of kept coordinates.
    """
    chance = groups.kept / groups.dim
    return chance / (chance + (1 - chance) * math.exp(-epsilon))


def selection_reading(focus: Focus, plan: SelectionPlan, groups: Groups) -> str:
    """One line on how much the selection can see."""
    chance = groups.kept / groups.dim
    if plan.laps is None:
        return _FREE[focus.selection].format(chance=chance)
    ceiling = selection_ceiling(groups, plan.laps.cost.epsilon)
    return (
        f"signal to noise of the selection is {plan.laps.cap / plan.laps.scale:.2g}: at most {ceiling:.4f} "
        f"of the kept coordinates can be the right ones, a coin keeps {chance:.4f}"
    )


_FREE = {
    "random": "a coin keeps {chance:.4f} of the right coordinates; the selection costs nothing",
    "public": "the selection uses the last broadcast and costs nothing; its first is a coin ({chance:.4f})",
    "oracle": "the selection looks at the data: not private, for diagnosis only (a coin keeps {chance:.4f})",
}
