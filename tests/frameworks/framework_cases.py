"""Small rounds that every framework must survive."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vpdr.frameworks import FRAMEWORKS, Framework, Now, ServerMemory
from vpdr.rng import Streams
from vpdr.types import Prototypes, Step, Summary

DIM, CLASSES = 8, 4
EVERY = pytest.mark.parametrize("name", FRAMEWORKS)
SERVES_ANCHORS = ["fedproto", "fedpcl", "fpl", "fedplvm", "fedtgp"]
ROUNDS: dict[str, list[tuple[int, ...]]] = {
    "everybody has everything": [(0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3)],
    "classes are missing": [(0, 3), (1, 3), (3,)],
    "nobody has class 2": [(0, 1), (1, 3), (0, 3)],
    "one client, one class": [(2,)],
    "an empty upload": [(0, 1), ()],
    "only empty uploads": [(), ()],
    "zero uploads": [],
}
SMALL: dict[str, dict[str, Any]] = {
    "fedtgp": {"epochs": 5},
    "mpft": {"epochs": 3, "hidden": 16, "reduction": 2},
}


def build(name: str, **settings: Any) -> Framework[Any]:
    return FRAMEWORKS[name](**(SMALL.get(name, {}) | settings))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def upload(*labels: int, seed: int = 0, dim: int = DIM) -> Prototypes:
    return Prototypes(3 * torch.randn(len(labels), dim, generator=rng(seed)), torch.tensor(labels).long())


def held(*labels: int) -> Summary:
    """A client's clean class means."""
    means = upload(*labels)
    return Summary(means.vectors, means.labels, torch.ones(len(labels), dtype=torch.int64))


def uploads_of(kind: str) -> list[Prototypes]:
    return [upload(*labels, seed=10 + i) for i, labels in enumerate(ROUNDS[kind])]


def now(uploads: Sequence[Prototypes], *, t: int = 1, weights: Tensor | None = None, dim: int = DIM) -> Now:
    chosen = torch.ones(len(uploads), CLASSES) if weights is None else weights
    return Now(t=t, classes=CLASSES, dim=dim, streams=Streams(7), weights=chosen)


def serve(framework: Framework[Any], uploads: Sequence[Prototypes], **at: Any) -> Any:
    """The broadcast of a first round."""
    moment = now(uploads, **at)
    return framework.generate(uploads, framework.start(moment), moment)[0]


def step(*labels: int, seed: int = 1) -> Step:
    b, source = len(labels), rng(seed)
    features = torch.randn(b, DIM, generator=source).requires_grad_()
    logits = features @ torch.randn(DIM, CLASSES, generator=source)
    public = torch.randn(b, DIM, generator=source)
    return Step(features, logits, torch.tensor(labels), public, torch.ones(b))


def total(framework: Framework[Any], batch: Step, broadcast: Any) -> Tensor:
    return torch.stack(list(framework.losses(batch, broadcast).values())).sum()


def gradient(loss: Tensor, batch: Step) -> np.ndarray:
    (found,) = torch.autograd.grad(loss, batch.features, retain_graph=True)
    return found.numpy()


def cosines(a: Tensor, b: Tensor) -> np.ndarray:
    """Independent of the code under test."""
    x, y = a.detach().double().numpy(), b.detach().double().numpy()
    return (x @ y.T) / np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))


def cross_entropy(logits: Tensor, labels: Tensor) -> float:
    values = logits.detach().double().numpy()
    rows = np.log(np.exp(values).sum(1)) - values[np.arange(len(labels)), labels.numpy()]
    return float(rows.mean())


def rounds(framework: Framework[Any], *given: Sequence[Prototypes]) -> list[tuple[Any, ServerMemory]]:
    """The broadcasts and memories of consecutive rounds."""
    memory, told = framework.start(now([])), []
    for t, uploads in enumerate(given, start=1):
        broadcast, memory = framework.generate(uploads, memory, now(uploads, t=t))
        told.append((broadcast, memory))
    return told
