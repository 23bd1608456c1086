"""How good reconstructions are, and what they would score if each were taken for another class's."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from vpdr.attacks.frechet import pooled, to_class
from vpdr.prototypes import ClassMeans
from vpdr.types import Features, Prototypes

METRICS = ("cos", "cos_clean", "cffd", "cffd_pooled", "top1")

Values = dict[str, dict[str, float]]  # metric -> value and null


def judged(
    targets: Prototypes, matched: Float[Tensor, "p d"], shown: Float[Tensor, "p d"], truth: Features
) -> Values:
    """One client's metrics. `matched` is what the adversary sees in its reconstructions, `shown` what the
    client's own released path sees in them, `truth` are the client's real features.

    The null value is the mean over all ways to give the reconstructions to the targets: what a
    reconstruction without any knowledge of its class would score.
    """
    clean = ClassMeans()(truth.vectors, truth.labels)
    held = torch.isin(targets.labels, clean.labels)
    found = {"cos": _pairs(F.normalize(matched) @ F.normalize(targets.vectors).T)}
    if bool(held.any()):
        rows = torch.searchsorted(clean.labels, targets.labels[held])
        shown = shown[held]
        found["cos_clean"] = _pairs(F.normalize(shown) @ F.normalize(clean.vectors[rows].to(shown)).T)
        nearest = torch.cdist(shown, clean.vectors.to(shown)).argmin(1)
        found["top1"] = _pairs((nearest[:, None] == rows[None]).float())
        found |= _distances(shown, targets.labels[held], truth)
    return found


def _distances(shown: Float[Tensor, "p d"], labels: Int[Tensor, " p"], truth: Features) -> Values:
    classes = [truth.vectors[truth.labels == label] for label in labels.tolist()]
    table = torch.tensor([[to_class(point, real) for real in classes] for point in shown])
    kept: Bool[Tensor, " n"] = torch.isin(truth.labels, labels)
    everything = pooled(shown, truth.vectors[kept])
    return {"cffd": _pairs(table), "cffd_pooled": {"value": everything, "null": float("nan")}}


def _pairs(table: Float[Tensor, "p p"]) -> dict[str, float]:
    """The mean over matching pairs, and over all pairs."""
    return {"value": float(table.diagonal().mean()), "null": float(table.mean())}


def averaged(clients: Sequence[Values]) -> Values:
    """The mean over clients of what is known."""
    return {
        name: {key: _mean([each[name][key] for each in clients if name in each]) for key in ("value", "null")}
        for name in METRICS
    }


def summary(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and std (ddof 0) over rounds, what chance gives, and the difference."""
    out = {}
    for name in METRICS:
        values = [each["mean"][name]["value"] for each in rounds]
        mean, null = _mean(values), _mean([each["mean"][name]["null"] for each in rounds])
        known = [value for value in values if math.isfinite(value)]
        spread = math.sqrt(_mean([(value - mean) ** 2 for value in known])) if known else float("nan")
        out[name] = {"mean": mean, "std": spread, "null": null, "corrected": mean - null}
    return out


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else float("nan")
