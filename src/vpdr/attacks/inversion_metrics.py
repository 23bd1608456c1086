"""Metrics of reconstructions, each beside its value for reconstructions assigned to classes at random."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from vpdr.prototypes import ClassMeans
from vpdr.types import Features, Prototypes

INVERSION_METRICS = ("cos", "cos_clean", "cffd", "cffd_pooled", "top1")
RIDGE = 1e-6  # added to both covariances of a pooled Fréchet distance, so that few points suffice

MetricValues = dict[str, dict[str, float]]  # metric -> value and null


def evaluate_reconstructions(
    targets: Prototypes,
    adversary_view: Float[Tensor, "p d"],
    client_view: Float[Tensor, "p d"],
    true_features: Features,
) -> MetricValues:
    """The metrics of one client.

    The null value is the mean over all assignments of reconstructions to targets: what a reconstruction
    without any knowledge of its class would score.

    Args:
        targets: the attacked prototypes.
        adversary_view: features of the reconstructions under the adversary's encoder.
        client_view: features of the reconstructions under the encoder that the client releases with.
        true_features: features of the client's training samples.
    """
    clean = ClassMeans()(true_features.vectors, true_features.labels)
    in_data = torch.isin(targets.labels, clean.labels)
    metrics = {"cos": _matched_and_null_mean(F.normalize(adversary_view) @ F.normalize(targets.vectors).T)}
    if bool(in_data.any()):
        rows = torch.searchsorted(clean.labels, targets.labels[in_data])
        client_view = client_view[in_data]
        clean_means = clean.vectors.to(client_view)
        metrics["cos_clean"] = _matched_and_null_mean(F.normalize(client_view) @ F.normalize(clean_means[rows]).T)
        nearest = torch.cdist(client_view, clean_means).argmin(1)
        metrics["top1"] = _matched_and_null_mean((nearest[:, None] == rows[None]).float())
        metrics |= _frechet_metrics(client_view, targets.labels[in_data], true_features)
    return metrics


def _frechet_metrics(
    client_view: Float[Tensor, "p d"], labels: Int[Tensor, " p"], true_features: Features
) -> MetricValues:
    by_class = [true_features.vectors[true_features.labels == label] for label in labels.tolist()]
    table = torch.tensor([[frechet_to_class(point, real) for real in by_class] for point in client_view])
    same_classes = true_features.vectors[torch.isin(true_features.labels, labels)]
    return {
        "cffd": _matched_and_null_mean(table),
        "cffd_pooled": {"value": pooled_frechet(client_view, same_classes), "null": float("nan")},
    }


def _matched_and_null_mean(table: Float[Tensor, "p p"]) -> dict[str, float]:
    """The mean over matching pairs, and over all pairs."""
    return {"value": float(table.diagonal().mean()), "null": float(table.mean())}


def frechet_distance(
    first: tuple[Float[Tensor, " d"], Float[Tensor, "d d"]], second: tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]
) -> float:
    """`|m₁ - m₂|² + Tr(S₁ + S₂ - 2 (S₁S₂)^½)` of two Gaussians, each given by mean and covariance."""
    (mean1, covariance1), (mean2, covariance2) = first, second
    values, vectors = torch.linalg.eigh(covariance1.double())
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    shared = torch.linalg.eigvalsh(root @ covariance2.double() @ root).clamp(min=0).sqrt().sum()
    squared_distance = (mean1.double() - mean2.double()).square().sum()
    return float(squared_distance + covariance1.double().trace() + covariance2.double().trace() - 2 * shared)


def mean_and_covariance(points: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """Mean and covariance (ddof 1); a single point has covariance 0."""
    mean = points.double().mean(0)
    centred = points.double() - mean
    return mean, centred.T @ centred / max(len(points) - 1, 1)


def frechet_to_class(point: Float[Tensor, " d"], real: Float[Tensor, "n d"]) -> float:
    """The Fréchet distance of one reconstruction to a class; with covariance 0 the matrix root vanishes."""
    mean = real.double().mean(0)
    variance = (real.double() - mean).square().sum() / max(len(real) - 1, 1)
    return float((point.double() - mean).square().sum() + variance)


def pooled_frechet(reconstructed: Float[Tensor, "p d"], real: Float[Tensor, "n d"]) -> float:
    """The distance of all reconstructions of a client to all its features; NaN for fewer than two."""
    if min(len(reconstructed), len(real)) < 2:
        return float("nan")
    ridge = RIDGE * torch.eye(reconstructed.shape[1], dtype=torch.float64)
    (mean1, covariance1), (mean2, covariance2) = (mean_and_covariance(each) for each in (reconstructed, real))
    return frechet_distance((mean1, covariance1 + ridge), (mean2, covariance2 + ridge))


def mean_over_clients(clients: Sequence[MetricValues]) -> MetricValues:
    """The mean of each metric over the clients that have it."""
    return {
        metric: {
            key: _finite_mean([values[metric][key] for values in clients if metric in values])
            for key in ("value", "null")
        }
        for metric in INVERSION_METRICS
    }


def summarise_inversion(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation (ddof 0) over rounds, the null value, and the difference."""
    summary = {}
    for metric in INVERSION_METRICS:
        values = [each["mean"][metric]["value"] for each in rounds]
        mean, null = _finite_mean(values), _finite_mean([each["mean"][metric]["null"] for each in rounds])
        variance = _finite_mean([(value - mean) ** 2 for value in values])
        summary[metric] = {"mean": mean, "std": math.sqrt(variance), "null": null, "corrected": mean - null}
    return summary


def _finite_mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else float("nan")
