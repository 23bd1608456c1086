"""Sensitivities by brute force: many neighbours, and none may move a summary further than is stated."""

import math

import torch
from torch import Tensor

from vpdr.audits.checkup.base import must
from vpdr.client import Samples
from vpdr.mechanisms.clipping import clip
from vpdr.privacy import Adjacency, Basis
from vpdr.prototypes import SUMMARISERS, ClassSums, NoSensitivity, Summariser
from vpdr.rng import Streams

CLASSES, DIM, SAMPLES, RADIUS, TRIES = 4, 8, 24, 2.0, 60


def neighbours() -> str:
    """Every rule that claims a proved bound, under every adjacency; the most that was reached is told."""
    reached = []
    for name, kind in SUMMARISERS.items():
        rule = ClassSums(classes=CLASSES) if kind is ClassSums else kind()
        if rule.basis is not Basis.PROVED:
            continue
        for adjacency in Adjacency:
            most = worst_shift(rule, adjacency)
            if most is not None:
                must(most <= 1 + 1e-9, f"{name} move {most:.4f} of their sensitivity under {adjacency}")
                must(most > 0.9, f"{name} reach only {most:.4f} of their bound: the search is blind")
                reached.append(f"{name} {adjacency} {most:.4f}")
    return "largest share of the stated bound: " + ", ".join(reached)


def worst_shift(rule: Summariser, adjacency: Adjacency) -> float | None:
    """The largest joint move over all tries, in units of the bound; None where no bound is claimed."""
    try:
        rule.sensitivity(adjacency, RADIUS, torch.tensor([1]))
    except NoSensitivity:
        return None
    return max(_shift(rule, adjacency, attempt) for attempt in range(TRIES))


def _shift(rule: Summariser, adjacency: Adjacency, attempt: int) -> float:
    first, second = _pair(adjacency, attempt)
    before, after = (rule(clip(each.public, RADIUS), each.labels) for each in (first, second))
    must(before.labels.equal(after.labels), f"a neighbour under {adjacency} changes which rows there are")
    unit = rule.sensitivity(adjacency, RADIUS, before.sizes)
    moved = ((before.vectors - after.vectors).norm(dim=1) / unit).square().sum()
    if rule.hides_counts(adjacency):
        moved = moved + ((before.sizes - after.sizes).double() / (unit / RADIUS)).square().sum()
    return math.sqrt(float(moved))


def _pair(adjacency: Adjacency, attempt: int) -> tuple[Samples, Samples]:
    """Random samples, one of them far out; beside it the opposite, another label, or nothing."""
    rng = Streams(attempt).draw("neighbours")
    labels = torch.arange(SAMPLES) % CLASSES
    vectors = torch.empty(SAMPLES, DIM, dtype=torch.float64).uniform_(-1, 1, generator=rng)
    vectors[0] *= 10.0 ** (attempt % 4)
    other, relabelled = vectors.clone(), labels.clone()
    other[0] = -vectors[0] if attempt % 2 else vectors[attempt % SAMPLES] * 3
    kept: Tensor = torch.ones(SAMPLES, dtype=torch.bool)
    if adjacency is Adjacency.REPLACE_ONE:
        relabelled[0] = attempt % CLASSES
    elif adjacency is Adjacency.ADD_REMOVE:
        kept[0] = False
    return Samples(vectors, labels), Samples(other[kept], relabelled[kept])
