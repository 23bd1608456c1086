"""Reconstruction on the real backbone: without privacy, a prototype reveals its feature."""

import pytest
import torch
from torch.nn import functional as F

from vpdr.attacks.base import ImageSpace, fold_batch_norms
from vpdr.attacks.inversion import InversionConfig, invert
from vpdr.data.quickstart import load_quickstart
from vpdr.encoder.personal import projection_for
from vpdr.encoder.zoo import load_backbone
from vpdr.rng import Streams

pytestmark = pytest.mark.embedded
PIXELS, TARGETS = 64, 4


@pytest.fixture(scope="module")
def space() -> ImageSpace:
    backbone = load_backbone("efficientnet_lite0", pixels=PIXELS)
    projection = projection_for(backbone.info, "random", 512, rng=Streams(0).generator("projection"))
    return ImageSpace(fold_batch_norms(backbone), projection)


def prototypes(space: ImageSpace) -> torch.Tensor:
    """Class means of real digits."""
    domain = load_quickstart(200).domains[0]
    features = space.projection(space.backbone.pooled_features(domain.images))
    labels = torch.from_numpy(domain.labels)
    return torch.stack([features[labels == label].mean(0) for label in range(TARGETS)])


def test_folding_changes_no_feature(space) -> None:
    images = torch.rand(2, 3, PIXELS, PIXELS, generator=Streams(0).generator("images"))
    plain = space.projection(load_backbone("efficientnet_lite0", pixels=PIXELS).features(255 * images))
    assert torch.allclose(space.public_features(images), plain, atol=1e-3)


def test_without_privacy_the_feature_is_reconstructed(space) -> None:
    targets = prototypes(space)
    starts = 0.1 * torch.randn(TARGETS, *space.shape, generator=Streams(0).generator("starts"))
    result = invert(space.public_features, space, targets, starts, InversionConfig(steps=600))
    with torch.no_grad():
        features = space.public_features(result.inputs)
    assert F.cosine_similarity(features, targets).mean() > 0.99
    assert (torch.cdist(features, targets).argmin(1) == torch.arange(TARGETS)).all()
