"""The search for inputs, and the metrics of reconstructions."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from vpdr.attacks.base import EmbeddingSpace, ImageSpace, fold_batch_norms
from vpdr.attacks.inversion import (
    InversionConfig,
    evaluate_reconstructions,
    frechet_distance,
    frechet_to_class,
    invert,
    mean_and_covariance,
    one_prototype_per_class,
    pooled_frechet,
)
from vpdr.encoder.personal import projection_for
from vpdr.encoder.zoo import load_backbone
from vpdr.rng import Streams
from vpdr.types import Features, Prototypes


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=Streams(seed).generator("normal"))


def test_inverting_the_identity_returns_the_targets() -> None:
    targets = normal(5, 12)
    result = invert(lambda x: x, EmbeddingSpace(12), targets, 0.1 * normal(5, 12, seed=1), InversionConfig(steps=2000))
    assert torch.allclose(result.inputs, targets, atol=1e-2)
    assert (result.losses < 1e-3).all()


def test_each_target_stops_by_itself_and_not_before_min_steps() -> None:
    start = torch.zeros(2, 3)
    targets = torch.tensor([[0.0, 0.0, 0.0], [5.0, 5.0, 5.0]])
    result = invert(
        lambda x: x, EmbeddingSpace(3), targets, start, InversionConfig(steps=400, patience=20, min_steps=100)
    )
    assert result.steps.tolist() == [100, 400]
    patient = invert(
        lambda x: x, EmbeddingSpace(3), targets, start, InversionConfig(steps=400, patience=150, min_steps=100)
    )
    assert patient.steps[0] == 151


def test_the_best_iterate_is_returned() -> None:
    """A step so long that it only makes things worse leaves the start."""
    config = InversionConfig(steps=50, lr=50.0)
    result = invert(lambda x: x, EmbeddingSpace(2), torch.zeros(1, 2), torch.full((1, 2), 0.1), config)
    assert result.inputs.norm() <= torch.full((1, 2), 0.1).norm()


def test_targets_do_not_depend_on_their_batch() -> None:
    weight = normal(6, 8)
    targets, starts, config = normal(4, 6, seed=2), 0.1 * normal(4, 8, seed=3), InversionConfig(steps=60)
    together = invert(lambda x: x @ weight.T, EmbeddingSpace(8), targets, starts, config).inputs
    alone = invert(lambda x: x @ weight.T, EmbeddingSpace(8), targets[2:3], starts[2:3], config).inputs
    assert torch.allclose(together[2:3], alone, atol=1e-5)


def test_adam_takes_its_textbook_steps() -> None:
    start, target = normal(1, 4), normal(1, 4, seed=5)
    variable = start.clone().requires_grad_(True)
    optimiser = torch.optim.Adam([variable], lr=0.01)
    for _ in range(9):
        optimiser.zero_grad()
        (variable - target).square().sum().backward()
        optimiser.step()
    inputs = invert(lambda x: x, EmbeddingSpace(4), target, start, InversionConfig(steps=10)).inputs
    assert torch.allclose(inputs, variable.detach(), atol=1e-6)  # the tenth step only evaluates


def test_images_stay_in_range_and_total_variation_is_penalised() -> None:
    backbone = load_backbone("efficientnet_lite0", "random", pixels=32)
    projection = projection_for(backbone.info, "random", 3, rng=Streams(0).generator("projection"))
    space = ImageSpace(fold_batch_norms(backbone), projection)
    images = space.decode(10 * normal(2, 3, 32, 32))
    assert images.min() >= 0
    assert images.max() <= 1
    stripes = torch.zeros(1, 3, 4, 4)
    stripes[:, :, ::2] = 1
    assert space.total_variation(stripes).tolist() == [1.0]
    assert space.total_variation(torch.ones(1, 3, 4, 4)).tolist() == [0.0]
    expected = projection(backbone.features(255 * images))
    assert torch.allclose(space.public_features(images), expected, atol=1e-4)  # folding changes no feature


def test_frechet_of_gaussians_with_shared_axes_has_a_closed_form() -> None:
    first = torch.tensor([1.0, 2.0, 3.0]), torch.diag(torch.tensor([4.0, 1.0, 0.25]))
    second = torch.tensor([0.0, 2.0, 1.0]), torch.diag(torch.tensor([1.0, 9.0, 0.25]))
    assert frechet_distance(first, second) == pytest.approx(1 + 4 + (2 - 1) ** 2 + (1 - 3) ** 2)


def test_frechet_agrees_with_a_matrix_root() -> None:
    one, two = mean_and_covariance(normal(30, 5)), mean_and_covariance(2 * normal(40, 5, seed=1) + 1)
    root = sqrtm(one[1].numpy() @ two[1].numpy()).real
    expected = float((one[0] - two[0]).square().sum()) + np.trace(one[1].numpy() + two[1].numpy() - 2 * root)
    assert frechet_distance(one, two) == pytest.approx(expected, rel=1e-6)


def test_the_covariance_of_one_reconstruction_is_zero() -> None:
    real, point = normal(20, 4), normal(4, seed=2)
    expected = (point - real.mean(0)).square().sum() + torch.cov(real.T).trace()
    assert frechet_to_class(point, real) == pytest.approx(float(expected), rel=1e-5)
    assert frechet_to_class(point, real[:1]) == pytest.approx(float((point - real[0]).square().sum()), rel=1e-5)
    assert pooled_frechet(real, real) == pytest.approx(0, abs=1e-6)
    assert np.isnan(pooled_frechet(real[:1], real))


def test_perfect_reconstructions_and_swapped_ones() -> None:
    labels = torch.arange(3).repeat_interleave(10)
    centres = 10 * torch.eye(3, 6)
    truth = Features(centres[labels] + 0.1 * normal(30, 6), labels)
    clean = torch.stack([truth.vectors[labels == c].mean(0) for c in range(3)])
    targets = Prototypes(clean, torch.arange(3))
    right = evaluate_reconstructions(targets, clean, clean, truth)
    assert right["cos"]["value"] == pytest.approx(1)
    assert right["top1"] == {"value": 1.0, "null": pytest.approx(1 / 3)}
    swapped = evaluate_reconstructions(targets, clean[[1, 2, 0]], clean[[1, 2, 0]], truth)
    assert swapped["top1"]["value"] == 0
    assert swapped["cffd"]["value"] > 100 > right["cffd"]["value"]
    assert swapped["cffd_pooled"]["value"] == pytest.approx(right["cffd_pooled"]["value"])


def test_a_target_of_a_class_that_the_client_lacks_has_only_the_cosine() -> None:
    truth = Features(normal(8, 3), torch.zeros(8, dtype=torch.int64))
    metrics = evaluate_reconstructions(
        Prototypes(normal(2, 3), torch.tensor([5, 6])), normal(2, 3), normal(2, 3), truth
    )
    assert set(metrics) == {"cos"}


def test_the_first_prototype_of_the_first_ten_classes_is_attacked() -> None:
    labels = torch.tensor([3, 1, 3, *range(4, 20)])
    targets = one_prototype_per_class(Prototypes(torch.arange(19.0)[:, None], labels))
    assert targets.labels.tolist() == [1, 3, *range(4, 12)]
    assert targets.vectors[:2, 0].tolist() == [1.0, 0.0]
