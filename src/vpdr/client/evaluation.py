"""The metrics of a client, and its prediction from broadcast and own model. Private: it stays on the client."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from vpdr.client.client import Client, Samples
from vpdr.frameworks import PredictionInputs
from vpdr.prototypes import ClassMeans
from vpdr.types import Bool, Float, Int, Prototypes, Tensor
from vpdr.validation import InvalidInput, one_of

_BANDWIDTH_GRID = torch.logspace(-3, 3, 61, dtype=torch.float64)  # relative to the scale of distances
_MAX_DISTANCE = 1e200  # differences of two such distances, over any bandwidth, are finite
_MAX_LOGIT = 1e100  # replaces infinite logits
_NORM_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def predict_fused(
    client: Client, samples: Samples, *, logits: Float[Tensor, "m c"], train_logits: Float[Tensor, "n c"]
) -> Int[Tensor, " m"]:
    """The class of each sample by broadcast and own model together.

    The broadcast gives every class a probability. The part of it that falls on classes which the client
    holds is divided again among them, by the client's own model alone. Without prototypes in the broadcast
    the same rule uses the client's own class means. The logits are those of the client's own model.
    """
    posterior = prototype_posterior(client, samples)
    if posterior is None:
        return logits.argmax(dim=1)
    return fuse(posterior, logits, train_logits, client.shard.train.labels).argmax(dim=1)


def fuse(
    posterior: Float[Tensor, "m c"],
    logits: Float[Tensor, "m c"],
    train_logits: Float[Tensor, "n c"],
    train_labels: Int[Tensor, " n"],
) -> Float[Tensor, "m c"]:
    """Class probabilities by broadcast and own model together; those of the broadcast for a client without samples."""
    if not len(train_labels):
        return posterior
    log_ratio = log_likelihood_ratio(_finite_logits(logits), _finite_logits(train_logits))
    return fuse_probabilities(posterior, log_ratio, class_coverage(train_labels, posterior.shape[1]))


def prototype_posterior(client: Client, samples: Samples) -> Float[Tensor, "m c"] | None:
    """Class probabilities from the broadcast; None if there is neither a prototype nor a model.

    They are a softmax of negative distances over a bandwidth that maximises the likelihood of the client's
    own training labels: where the broadcast is noise, the bandwidth is large and no class is preferred.
    """
    train, classes = client.shard.train, client.train_config.classes
    distances = _negative_broadcast_logits(client, samples)
    train_distances = _negative_broadcast_logits(client, train)
    if distances is not None and train_distances is not None:
        return (-distances / fit_bandwidth(train_distances, train.labels, scale=1.0)).softmax(dim=1)
    released, train_released = client.released_features(samples), client.released_features(train)
    return posterior_from_prototypes(released, train_released, train.labels, client.global_prototypes, classes)


def posterior_from_prototypes(
    features: Float[Tensor, "m d"],
    train_features: Float[Tensor, "n d"],
    train_labels: Int[Tensor, " n"],
    shared: Prototypes | None,
    classes: int,
) -> Float[Tensor, "m c"] | None:
    """Class probabilities from the global prototypes, and the client's own mean of each class that has none."""
    own = ClassMeans()(train_features.double(), train_labels)
    prototypes = Prototypes(own.vectors, own.labels)
    if shared is not None:
        missing = ~torch.isin(own.labels, shared.labels)
        vectors = torch.cat([shared.vectors.double(), own.vectors[missing]])
        prototypes = Prototypes(vectors, torch.cat([shared.labels, own.labels[missing]]))
    if not len(prototypes.labels):
        return None
    distances = class_distances(features, prototypes, classes)
    train_distances = class_distances(train_features, prototypes, classes)
    return (-distances / fit_bandwidth(train_distances, train_labels)).softmax(dim=1)


def class_distances(features: Float[Tensor, "n d"], prototypes: Prototypes, classes: int) -> Float[Tensor, "n c"]:
    """The squared distance to the nearest prototype of each class; a very large one for missing classes."""
    distances = torch.cdist(features.double(), prototypes.vectors.double()).square()
    by_class = torch.full((len(features), classes), torch.inf, dtype=torch.float64)
    labels = prototypes.labels.expand(len(features), -1)
    by_class = by_class.scatter_reduce(1, labels, distances, reduce="amin")
    return by_class.nan_to_num(nan=_MAX_DISTANCE).clamp(max=_MAX_DISTANCE)


def fit_bandwidth(distances: Float[Tensor, "n c"], labels: Int[Tensor, " n"], scale: float | None = None) -> float:
    """The bandwidth of largest likelihood of these labels, in a grid of multiples of the scale; 1 without labels.

    The default of the scale is the mean distance to the own class.
    """
    if not len(labels):
        return 1.0
    if scale is None:
        scale = float(distances.gather(1, labels[:, None]).mean().clamp(min=1e-12))
    log_likelihoods = [
        (-distances / (scale * width)).log_softmax(dim=1).gather(1, labels[:, None]).mean() for width in _BANDWIDTH_GRID
    ]
    return float(scale * _BANDWIDTH_GRID[int(torch.stack(log_likelihoods).argmax())])


def _negative_broadcast_logits(client: Client, samples: Samples) -> Float[Tensor, "n c"] | None:
    """Minus the logits of a model in the broadcast; None if there is no model."""
    if client.last_broadcast is None:
        return None
    logits = client.framework.broadcast_logits(samples.frozen_features, client.last_broadcast)
    if logits is None:
        return None
    return -logits.double().nan_to_num().clamp(min=-_MAX_DISTANCE, max=_MAX_DISTANCE)


def class_coverage(labels: Int[Tensor, " n"], classes: int) -> Float[Tensor, " c"]:
    """How far the client holds each class: its samples over an equal share of all samples, at most 1.

    A model that saw one class ten times as often as another has hardly learnt the other one, so a class
    counts by its share, not by whether it has any sample.
    """
    counts = torch.bincount(labels, minlength=classes).double()
    return (counts * classes / counts.sum()).clamp(max=1.0)


def log_likelihood_ratio(logits: Float[Tensor, "m c"], train_logits: Float[Tensor, "n c"]) -> Float[Tensor, "m c"]:
    """Log of the model's probabilities over their smoothed mean on the training samples.

    The mean is used and not the class frequencies: a head that is hardly trained has not learnt these.
    """
    rows, classes = train_logits.shape
    mean = (train_logits.softmax(dim=1).sum(dim=0) + 1) / (rows + classes)
    return logits.log_softmax(dim=1) - mean.log()


def fuse_probabilities(
    shared: Float[Tensor, "m c"], log_ratio: Float[Tensor, "m c"], coverage: Float[Tensor, " c"]
) -> Float[Tensor, "m c"]:
    """The shared probabilities, with the covered part divided again by the model's likelihood ratio.

    Where a client holds all classes in equal numbers, its own model alone decides.
    """
    own = (log_ratio + coverage.log()).softmax(dim=1)
    return (1 - coverage) * shared + (coverage * shared).sum(dim=1, keepdim=True) * own


def _finite_logits(logits: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
    """Logits in double precision without NaN and infinity, also if training diverged."""
    return logits.double().nan_to_num(nan=0.0, posinf=_MAX_LOGIT, neginf=-_MAX_LOGIT)


def evaluate_client(client: Client, measure_accuracy: bool = True) -> dict[str, Any]:
    """All metrics of one client in one round, without timings.

    Args:
        client: the client.
        measure_accuracy: whether accuracies and feature statistics are computed; else they are empty.

    Returns:
        The client's part of a round record: accuracy, features, release, and ε spent (None if unbounded).

    Raises:
        InvalidInput: the encoder needs the samples themselves, and the client has frozen features only.

    Guarantee: the client, its ledger and its random streams are not changed. The metrics are computed from
    private samples without noise: they are for evaluation and are not covered by the budget.

    >>> from vpdr.config import RunConfig
    >>> from vpdr.federation.builder import build
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
        for name, labels in predict_all(client, test, train_features).items():
            correct = labels == test.labels
            accuracy["own"][name], accuracy["all"][name] = _mean_or_nan(correct[has_class]), _mean_or_nan(correct)
    if validation is not None and len(validation.labels):
        predictions = predict_all(client, validation, train_features)
        accuracy["validation"] = {
            name: _mean_or_nan(labels == validation.labels) for name, labels in predictions.items()
        }
    return accuracy


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
    prototypes = client.global_prototypes
    if prototypes is not None and len(prototypes.labels):
        released = client.released_features(samples)
        predictions["nearest"] = predict_nearest(released, prototypes)
        cosines = nn.functional.normalize(released) @ nn.functional.normalize(prototypes.vectors).T
        predictions["nearest_cosine"] = prototypes.labels[cosines.argmax(1)]
    return predictions


def predict_nearest(features: Float[Tensor, "m d"], prototypes: Prototypes) -> Int[Tensor, " m"]:
    """The class of the nearest prototype."""
    return prototypes.labels[torch.cdist(features, prototypes.vectors).argmin(1)]


@torch.no_grad()
def predict(
    features: Any,
    prototypes: Prototypes,
    *,
    rule: str = "nearest",
    head: Callable[[Any], Any] | None = None,
    own_features: Any = None,
    own_labels: Any = None,
) -> Int[Tensor, " m"]:
    """Predict classes on plain arrays, by shared prototypes, by the client's own head, or by both.

    Args:
        features: the samples to classify, torch or numpy [m, d].
        prototypes: what `merge` returned, or any other shared prototypes of the same encoder.
        rule: `nearest` is the class of the nearest prototype, `head` that of the client's head alone, `fused` both
            together: the prototypes give every class a probability, and the part that falls on classes which the
            client has samples of is divided again by its head.
        head: features to class logits, such as an `nn.Module`, or a function on the arrays that were given here.
        own_features: the client's own training samples [n, d], for `fused`.
        own_labels: their classes [n], for `fused`.

    Returns:
        The class of each sample.

    Raises:
        InvalidInput: an unknown rule, a rule without what it needs, or arrays that do not fit.

    Guarantee: none is needed for what stays at the client. Predictions of `head` and `fused` depend on the client's
    own samples without noise: publishing them is not covered by any budget.

    >>> shared = Prototypes(torch.tensor([[0.0, 0.0], [4.0, 4.0], [8.0, 0.0]]), torch.tensor([0, 1, 2]))
    >>> predict(torch.tensor([[1.0, 0.0], [5.0, 3.0]]), shared).tolist()
    [0, 1]
    >>> own, labels = torch.tensor([[0.0, 1.0], [1.0, 0.0], [3.0, 4.0], [4.0, 3.0]]), torch.tensor([0, 0, 1, 1])
    >>> head = lambda rows: torch.stack([4 - rows.sum(1), rows.sum(1) - 4, torch.zeros(len(rows))], dim=1)
    >>> mixed = torch.tensor([[1.0, 1.0], [8.0, 1.0]])  # the client has no sample of class 2
    >>> predict(mixed, shared, rule="head", head=head).tolist()
    [0, 1]
    >>> predict(mixed, shared, rule="fused", head=head, own_features=own, own_labels=labels).tolist()
    [0, 2]
    """
    one_of(("nearest", "head", "fused"), rule=rule)
    rows = _as_rows("features", features)
    if rule == "nearest":
        _check_prototypes(prototypes, rows)
        return predict_nearest(rows, Prototypes(prototypes.vectors.float(), prototypes.labels))
    if head is None:
        raise InvalidInput(f"rule={rule} needs the client's head, got none; give head, or use rule='nearest'")
    logits = _as_rows("logits of the head", head(features))
    if rule == "head":
        return logits.argmax(dim=1)
    if own_features is None or own_labels is None:
        raise InvalidInput("rule=fused needs the client's own samples, got none; give own_features and own_labels")
    own, labels = _as_rows("own_features", own_features), torch.as_tensor(own_labels).long()
    if labels.ndim != 1 or len(labels) != len(own):
        raise InvalidInput(f"expected one own label for each own feature, got {list(labels.shape)} and {len(own)}")
    _check_prototypes(prototypes, rows)
    _check_prototypes(prototypes, own)
    classes, known = logits.shape[1], torch.cat([prototypes.labels, labels])
    if len(known) and not 0 <= int(known.min()) <= int(known.max()) < classes:
        raise InvalidInput(f"the head gives logits of {classes} classes, but there are labels up to {int(known.max())}")
    posterior = posterior_from_prototypes(rows, own, labels, prototypes, classes)
    if posterior is None:
        return logits.argmax(dim=1)
    return fuse(posterior, logits, _as_rows("logits of the head", head(own_features)), labels).argmax(dim=1)


def _as_rows(name: str, values: Any) -> Float[Tensor, "n d"]:
    rows = torch.as_tensor(values)
    if rows.ndim != 2 or not rows.is_floating_point() or not bool(rows.isfinite().all()):
        raise InvalidInput(f"expected {name} as finite floating-point numbers [n, d], got {rows.dtype} {[*rows.shape]}")
    return rows.float()


def _check_prototypes(prototypes: Prototypes, rows: Float[Tensor, "n d"]) -> None:
    if not len(prototypes.labels) or prototypes.vectors.shape[1] != rows.shape[1]:
        shape = list(prototypes.vectors.shape)
        raise InvalidInput(f"expected prototypes of {rows.shape[1]} dimensions, as the features have, got {shape}")


def _mean_or_nan(values: Bool[Tensor, " n"]) -> float:
    """The share of true entries; NaN without entries."""
    return float(values.double().mean()) if len(values) else float("nan")


@torch.no_grad()
def feature_statistics(client: Client, train_features: Float[Tensor, "n d"]) -> dict[str, float]:
    """Norms before clipping, the share above the clip norm, and the gap between teacher and student."""
    if not len(train_features):
        return {}
    norms: Tensor = train_features.norm(dim=1)
    quantiles = norms.quantile(torch.tensor(_NORM_QUANTILES)).tolist()
    logits = client.model.head(client.regulariser.transform_features(train_features))
    gap = client.regulariser.teacher_student_gap(train_features, logits, torch.ones(len(logits)))
    return {
        "norm_mean": float(norms.mean()),
        **{f"norm_q{round(100 * q):02d}": value for q, value in zip(_NORM_QUANTILES, quantiles, strict=True)},
        "share_above_clip_norm": _mean_or_nan(norms > client.release_config.clip_norm),
        "teacher_gap": float(gap),
    }
