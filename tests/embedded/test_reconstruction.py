"""Reconstruction on the real backbone: without privacy a prototype gives its feature away."""

import pytest
import torch
from torch.nn import functional as F

from vpdr.attacks.folding import FoldedLite0
from vpdr.attacks.inversion import Search, invert
from vpdr.attacks.spaces import PictureSpace
from vpdr.data.quickstart import load_quickstart
from vpdr.encoder import POOLED_DIM, load_lite0, make_path
from vpdr.rng import Streams

pytestmark = pytest.mark.embedded
PIXELS, TARGETS = 64, 4


@pytest.fixture(scope="module")
def space() -> PictureSpace:
    path = make_path("random", POOLED_DIM, 512, rng=Streams(0).draw("projection"))
    return PictureSpace(PIXELS, FoldedLite0(load_lite0()), path.projection, path.scale)


def prototypes(space: PictureSpace) -> torch.Tensor:
    """Class means of real digits."""
    domain = load_quickstart(200).domains[0]
    pooled = load_lite0().pooled(domain.images, pixels=PIXELS)
    features = space.scale * space.projection(pooled)
    labels = torch.from_numpy(domain.labels)
    return torch.stack([features[labels == label].mean(0) for label in range(TARGETS)])


def test_folding_changes_no_feature(space) -> None:
    images = torch.rand(2, 3, PIXELS, PIXELS, generator=Streams(0).draw("images"))
    plain = load_lite0().features((images * 255 - 127) / 128)
    assert torch.allclose(space.pooled(images), plain, atol=1e-3)


def test_without_privacy_the_feature_is_found(space) -> None:
    targets = prototypes(space)
    starts = 0.1 * torch.randn(TARGETS, *space.shape, generator=Streams(0).draw("starts"))
    found = invert(space.public, space, targets, starts, Search(steps=600))
    with torch.no_grad():
        shown = space.public(found.inputs)
    assert F.cosine_similarity(shown, targets).mean() > 0.99
    assert (torch.cdist(shown, targets).argmin(1) == torch.arange(TARGETS)).all()
