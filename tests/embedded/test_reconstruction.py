"""Reconstruction on the real backbone: without privacy a prototype gives its feature away."""

import pytest
import torch
from torch.nn import functional as F

from vpdr.attacks.folding import folded
from vpdr.attacks.inversion import Search, invert
from vpdr.attacks.spaces import PictureSpace
from vpdr.data.quickstart import load_quickstart
from vpdr.encoder import load_backbone, path_of
from vpdr.rng import Streams

pytestmark = pytest.mark.embedded
PIXELS, TARGETS = 64, 4


@pytest.fixture(scope="module")
def space() -> PictureSpace:
    backbone = load_backbone("efficientnet_lite0", pixels=PIXELS)
    path = path_of(backbone, "random", 512, rng=Streams(0).draw("projection"))
    return PictureSpace(folded(backbone), path)


def prototypes(space: PictureSpace) -> torch.Tensor:
    """Class means of real digits."""
    domain = load_quickstart(200).domains[0]
    features = space.path(space.backbone.pooled(domain.images))
    labels = torch.from_numpy(domain.labels)
    return torch.stack([features[labels == label].mean(0) for label in range(TARGETS)])


def test_folding_changes_no_feature(space) -> None:
    images = torch.rand(2, 3, PIXELS, PIXELS, generator=Streams(0).draw("images"))
    plain = space.path(load_backbone("efficientnet_lite0", pixels=PIXELS).features(255 * images))
    assert torch.allclose(space.public(images), plain, atol=1e-3)


def test_without_privacy_the_feature_is_found(space) -> None:
    targets = prototypes(space)
    starts = 0.1 * torch.randn(TARGETS, *space.shape, generator=Streams(0).draw("starts"))
    found = invert(space.public, space, targets, starts, Search(steps=600))
    with torch.no_grad():
        shown = space.public(found.inputs)
    assert F.cosine_similarity(shown, targets).mean() > 0.99
    assert (torch.cdist(shown, targets).argmin(1) == torch.arange(TARGETS)).all()
