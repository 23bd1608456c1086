"""Class probabilities from distances to the global prototypes."""

import torch

from vpdr.client.evaluation import class_distances, fit_bandwidth
from vpdr.rng import Streams
from vpdr.types import Prototypes


def test_noisy_prototypes_prefer_no_class() -> None:
    """The bandwidth of prototypes without information is large."""
    rng = Streams(2).generator("x")
    features, labels = torch.randn(300, 16, generator=rng), torch.arange(300) % 3
    clear = Prototypes(torch.eye(3, 16) * 8, torch.arange(3))
    vague = Prototypes(torch.randn(3, 16, generator=rng) * 8, torch.arange(3))
    shifted = features + clear.vectors[labels]
    widths = [fit_bandwidth(class_distances(shifted, prototypes, 3), labels) for prototypes in (clear, vague)]
    confident, uncertain = (
        (-class_distances(shifted, prototypes, 3) / width).softmax(1).max(1).values.mean()
        for prototypes, width in zip((clear, vague), widths, strict=True)
    )
    assert confident > 0.95
    assert uncertain < 0.5


def test_distances_are_to_the_nearest_prototype_of_a_class() -> None:
    prototypes = Prototypes(torch.tensor([[0.0], [4.0], [9.0]]), torch.tensor([0, 0, 2]))
    distances = class_distances(torch.tensor([[3.0]]), prototypes, 3)
    assert distances.tolist() == [[1.0, 1e200, 36.0]]


def test_a_class_without_a_prototype_has_no_probability() -> None:
    prototypes = Prototypes(torch.tensor([[0.0], [9.0]]), torch.tensor([0, 2]))
    distances = class_distances(torch.tensor([[3.0], [float("nan")]]), prototypes, 3)
    posterior = (-distances / 1e-12).softmax(dim=1)
    assert posterior[0].tolist() == [1.0, 0.0, 0.0]
    assert bool(torch.isfinite(posterior).all())
