"""Small uploads, batches and rounds for the tests of all frameworks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vpdr.frameworks import FRAMEWORKS, Framework, FrameworkState, ServerContext
from vpdr.rng import Streams
from vpdr.types import Prototypes, Summary, TrainBatch

DIM, CLASSES = 8, 4
ROUNDS: dict[str, list[tuple[int, ...]]] = {
    "all classes everywhere": [(0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3)],
    "classes are missing": [(0, 3), (1, 3), (3,)],
    "class 2 is missing": [(0, 1), (1, 3), (0, 3)],
    "one client, one class": [(2,)],
    "an empty upload": [(0, 1), ()],
    "only empty uploads": [(), ()],
    "zero uploads": [],
}
SMALL: dict[str, dict[str, Any]] = {"fedtgp": {"epochs": 5}, "mpft": {"epochs": 3, "hidden": 16, "reduction": 2}}


def build(name: str, **settings: Any) -> Framework[Any]:
    return FRAMEWORKS[name](**(SMALL.get(name, {}) | settings))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def upload(*labels: int, seed: int = 0, dim: int = DIM) -> Prototypes:
    return Prototypes(3 * torch.randn(len(labels), dim, generator=rng(seed)), torch.tensor(labels).long())


def own_means(*labels: int) -> Summary:
    """A client's clean class means."""
    means = upload(*labels)
    return Summary(means.vectors, means.labels, torch.ones(len(labels), dtype=torch.int64))


def uploads_of(kind: str) -> list[Prototypes]:
    return [upload(*labels, seed=10 + i) for i, labels in enumerate(ROUNDS[kind])]


def now(
    uploads: Sequence[Prototypes], *, round: int = 1, weights: Tensor | None = None, dim: int = DIM
) -> ServerContext:
    client_weights = torch.ones(len(uploads), CLASSES) if weights is None else weights
    return ServerContext(round=round, classes=CLASSES, dim=dim, streams=Streams(7), weights=client_weights)


def serve(framework: Framework[Any], uploads: Sequence[Prototypes], **settings: Any) -> Any:
    """The broadcast of a first round."""
    context = now(uploads, **settings)
    return framework.aggregate(uploads, framework.init_state(context), context)[0]


def step(*labels: int, seed: int = 1) -> TrainBatch:
    b, source = len(labels), rng(seed)
    features = torch.randn(b, DIM, generator=source).requires_grad_()
    logits = features @ torch.randn(DIM, CLASSES, generator=source)
    frozen_features = torch.randn(b, DIM, generator=source)
    return TrainBatch(features, logits, torch.tensor(labels), frozen_features, torch.ones(b))


def total(framework: Framework[Any], batch: TrainBatch, broadcast: Any) -> Tensor:
    return torch.stack(list(framework.losses(batch, broadcast).values())).sum()


def gradient(loss: Tensor, batch: TrainBatch) -> np.ndarray:
    (result,) = torch.autograd.grad(loss, batch.features, retain_graph=True)
    return result.numpy()


def cosines(a: Tensor, b: Tensor) -> np.ndarray:
    """Independent of the code under test."""
    x, y = a.detach().double().numpy(), b.detach().double().numpy()
    return (x @ y.T) / np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))


def cross_entropy(logits: Tensor, labels: Tensor) -> float:
    values = logits.detach().double().numpy()
    rows = np.log(np.exp(values).sum(1)) - values[np.arange(len(labels)), labels.numpy()]
    return float(rows.mean())


def rounds(framework: Framework[Any], *uploads_by_round: Sequence[Prototypes]) -> list[tuple[Any, FrameworkState]]:
    """The broadcasts and server states of consecutive rounds."""
    state, results = framework.init_state(now([])), []
    for round, uploads in enumerate(uploads_by_round, start=1):
        broadcast, state = framework.aggregate(uploads, state, now(uploads, round=round))
        results.append((broadcast, state))
    return results


CLUSTER_LABELS = [0, 0, 1, 3, 3, 3]


def cluster_upload(seed: int = 4) -> Prototypes:
    return upload(*CLUSTER_LABELS, seed=seed)


def negative_log_shares(near: np.ndarray, labels: list[int]) -> np.ndarray:
    """-log Σ over positives / Σ over all, with numpy."""
    weight = np.exp(near)
    own = np.array(labels)[:, None] == np.array(CLUSTER_LABELS)
    return -np.log((weight * own).sum(1) / weight.sum(1))
