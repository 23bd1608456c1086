"""Metrics of a client after a round. They are computed on the client, from private data."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.client.client import Client, Samples
from vpdr.client.prediction import predict_fused
from vpdr.frameworks import PredictionInputs
from vpdr.prototypes import ClassMeans

NORM_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def evaluate_client(client: Client, measure_accuracy: bool = True) -> dict[str, Any]:
    """All metrics of one client in one round, without timings.

    Args:
        client: the client.
        measure_accuracy: whether accuracies and feature statistics are computed; else they are empty.

    Returns:
        The client's part of a round record: accuracy, features, release, and ε spent (None if unbounded).

    >>> from vpdr.config import RunConfig
    >>> from vpdr.federation.build import build
    >>> client = build(RunConfig.from_dict({"benchmark": {"kind": "synthetic"}, "model": {"dim": 8}})).clients[0]
    >>> sorted(evaluate_client(client))
    ['accuracy', 'epsilon', 'features', 'release']
    """
    metrics: dict[str, Any] = {"accuracy": {"own": {}, "all": {}}, "features": {}}
    if measure_accuracy:
        with client.feature_cache.caching():
            train_features = client.personal_features(client.shard.train)
            metrics = {
                "accuracy": accuracy_by_predictor(client, train_features),
                "features": feature_statistics(client, train_features),
            }
    epsilon = client.ledger.epsilon_spent
    return {**metrics, "release": client.release_diagnostics, "epsilon": epsilon if math.isfinite(epsilon) else None}


@torch.no_grad()
def accuracy_by_predictor(client: Client, train_features: Float[Tensor, "n d"]) -> dict[str, dict[str, float]]:
    """The accuracy of each predictor: on classes that the client holds (own), on all, on validation."""
    test, validation = client.shard.test, client.shard.validation
    accuracy: dict[str, dict[str, float]] = {"own": {}, "all": {}}
    if len(test.labels):
        has_class = torch.isin(test.labels, client.shard.train.labels.unique())
        correct = _correct_by_predictor(client, test, train_features)
        accuracy["own"] = {name: _mean_or_nan(hits[has_class]) for name, hits in correct.items()}
        accuracy["all"] = {name: _mean_or_nan(hits) for name, hits in correct.items()}
    if validation is not None and len(validation.labels):
        correct = _correct_by_predictor(client, validation, train_features)
        accuracy["validation"] = {name: _mean_or_nan(hits) for name, hits in correct.items()}
    return accuracy


def _correct_by_predictor(
    client: Client, samples: Samples, train_features: Float[Tensor, "n d"]
) -> dict[str, Bool[Tensor, " m"]]:
    predictions = predict_all(client, samples, train_features)
    return {name: labels == samples.labels for name, labels in predictions.items()}


def predict_all(client: Client, samples: Samples, train_features: Float[Tensor, "n d"]) -> dict[str, Int[Tensor, " m"]]:
    """Labels by each predictor: head, head on soft-clipped features, framework, fused, nearest prototype."""
    framework, head = client.framework, client.model.head
    features = client.personal_features(samples)
    class_means = ClassMeans()(train_features, client.shard.train.labels)
    inputs = PredictionInputs(features, head(features), class_means)
    train_inputs = PredictionInputs(train_features, head(train_features), class_means)
    clipped = client.regulariser.transform_features(features)
    clipped_logits = inputs.logits if clipped is features else head(clipped)
    predictions = {"head": inputs.logits.argmax(1), "soft_clipped": clipped_logits.argmax(1)}
    predictions["framework"] = (
        predictions["head"] if client.last_broadcast is None else framework.predict(inputs, client.last_broadcast)
    )
    predictions["fused"] = predict_fused(
        client, samples, logits=framework.personal_logits(inputs), train_logits=framework.personal_logits(train_inputs)
    )
    return {**predictions, **_predict_nearest_prototype(client, samples)}


def _predict_nearest_prototype(client: Client, samples: Samples) -> dict[str, Int[Tensor, " m"]]:
    """The class of the nearest global prototype, by distance and by cosine; nothing if there is none."""
    prototypes = client.global_prototypes
    if prototypes is None or not len(prototypes.labels):
        return {}
    features = client.released_features(samples)
    distances = torch.cdist(features, prototypes.vectors)
    cosines = F.normalize(features) @ F.normalize(prototypes.vectors).T
    return {"nearest": prototypes.labels[distances.argmin(1)], "nearest_cosine": prototypes.labels[cosines.argmax(1)]}


def _mean_or_nan(values: Bool[Tensor, " n"]) -> float:
    """The share of true entries; NaN without entries."""
    return float(values.double().mean()) if len(values) else float("nan")


@torch.no_grad()
def feature_statistics(client: Client, train_features: Float[Tensor, "n d"]) -> dict[str, float]:
    """Norms before clipping, the share above the clip norm, and the gap between teacher and student."""
    if not len(train_features):
        return {}
    norms: Tensor = train_features.norm(dim=1)
    quantiles = norms.quantile(torch.tensor(NORM_QUANTILES)).tolist()
    logits = client.model.head(client.regulariser.transform_features(train_features))
    gap = client.regulariser.teacher_student_gap(train_features, logits, torch.ones(len(logits)))
    return {
        "norm_mean": float(norms.mean()),
        **{f"norm_q{round(100 * q):02d}": value for q, value in zip(NORM_QUANTILES, quantiles, strict=True)},
        "share_above_clip_norm": _mean_or_nan(norms > client.release_config.clip_norm),
        "teacher_gap": float(gap),
    }
