"""What is measured of a client after a round: all of it on the client, from private data."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.client.client import Client
from vpdr.client.fused import Evidence, fused
from vpdr.client.parts import Samples
from vpdr.frameworks import View
from vpdr.prototypes import ClassMeans

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@torch.no_grad()
def accuracy(client: Client, encoded: Float[Tensor, "n d"]) -> dict[str, dict[str, float]]:
    """Share of right answers by each way to predict: on the classes it holds (own), on all, on validation."""
    test, train = client.shard.test, client.shard.train
    found: dict[str, dict[str, float]] = {"own": {}, "all": {}}
    if len(test.labels):
        held = torch.isin(test.labels, train.labels.unique())
        right = _right(client, test, encoded)
        found["own"] = {name: share(hits[held]) for name, hits in right.items()}
        found["all"] = {name: share(hits) for name, hits in right.items()}
    if client.shard.validation is not None and len(client.shard.validation.labels):
        right = _right(client, client.shard.validation, encoded)
        found["validation"] = {name: share(hits) for name, hits in right.items()}
    return found


def _right(client: Client, samples: Samples, encoded: Float[Tensor, "n d"]) -> dict[str, Bool[Tensor, " m"]]:
    return {name: guess == samples.labels for name, guess in predictions(client, samples, encoded).items()}


def predictions(client: Client, test: Samples, encoded: Float[Tensor, "n d"]) -> dict[str, Int[Tensor, " m"]]:
    """Labels by the framework, by the head, on soft-clipped features too, by the anchors, by both."""
    raw, head, framework = client.personal_features(test), client.model.head, client.framework
    own = ClassMeans()(encoded, client.shard.train.labels)
    view, learnt = View(raw, head(raw), own), View(encoded, head(encoded), own)
    clipped = client.guide.reshape(raw)
    shaped = view.logits if clipped is raw else head(clipped)  # a guide that changes nothing costs nothing
    found = {"head": view.logits.argmax(1), "soft_clipped": shaped.argmax(1)}
    found["framework"] = found["head"] if client.heard is None else framework.predict(view, client.heard)
    found["fused"] = fused(client, test, Evidence(framework.evidence(view), framework.evidence(learnt)))
    return {**found, **_nearest(client, test)}


def _nearest(client: Client, test: Samples) -> dict[str, Int[Tensor, " m"]]:
    """The class of the nearest shared prototype, by distance and by angle; nothing where there are none."""
    anchors = client.anchors
    if anchors is None or not len(anchors.labels):
        return {}
    seen, unit = client.released_features(test), torch.nn.functional.normalize
    return {
        "nearest": anchors.labels[torch.cdist(seen, anchors.vectors).argmin(1)],
        "nearest_cosine": anchors.labels[(unit(seen) @ unit(anchors.vectors).T).argmax(1)],
    }


def share(hits: Bool[Tensor, " n"]) -> float:
    """The share of true entries; nothing to judge is NaN."""
    return float(hits.double().mean()) if len(hits) else float("nan")


@torch.no_grad()
def features(client: Client, raw: Float[Tensor, "n d"]) -> dict[str, float]:
    """Norms before clipping, the share beyond the clip norm, and how far the teacher is from the student."""
    if not len(raw):
        return {}
    norms: Tensor = raw.norm(dim=1)
    marks = norms.quantile(torch.tensor(QUANTILES)).tolist()
    logits = client.model.head(client.guide.reshape(raw))
    return {
        "norm_mean": float(norms.mean()),
        **{f"norm_q{round(100 * q):02d}": mark for q, mark in zip(QUANTILES, marks, strict=True)},
        "share_above_clip_norm": share(norms > client.promise.clip_norm),
        "teacher_gap": float(client.guide.gap(raw, logits, torch.ones(len(logits)))),
    }
