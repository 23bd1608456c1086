"""Batches from several arrays, and augmentation that depends on the generator only."""

import numpy as np
import pytest
import torch

from vpdr.data.benchmark import Benchmark, ImageDomain
from vpdr.data.images import ImageInputs, random_crop, random_flip
from vpdr.rng import Streams
from vpdr.types import Inputs


def stream(seed=0, name="augment"):
    return Streams(seed).generator(name)


def noise(count, side, seed=0):
    return np.random.default_rng(seed).integers(256, size=(count, side, side, 3), dtype=np.uint8)


@pytest.fixture
def two_domains():
    domains = (
        ImageDomain(name="small", images=noise(6, 8), labels=np.arange(6) % 2),
        ImageDomain(name="large", images=noise(5, 16, 1), labels=np.arange(5) % 2),
    )
    return Benchmark(name="b", classes=2, class_names=("x", "y"), domains=domains)


def test_a_batch_mixes_domains_in_the_requested_order(two_domains):
    inputs = ImageInputs.from_benchmark(two_domains, pixels=16)
    assert isinstance(inputs, Inputs)
    assert len(inputs) == 11
    batch = inputs.take(torch.tensor([10, 0, 6])).batch(torch.tensor([2, 1, 0]))
    assert batch.shape == (3, 3, 16, 16)
    assert batch.dtype == torch.uint8
    large = two_domains.domains[1].images
    assert np.array_equal(batch[0].permute(1, 2, 0).numpy(), large[0])
    assert np.array_equal(batch[2].permute(1, 2, 0).numpy(), large[4])
    assert batch[1].float().mean() == pytest.approx(two_domains.domains[0].images[0].mean(), abs=3)


def test_images_are_reduced_as_pillow_does(two_domains):
    from PIL import Image

    image = two_domains.domains[1].images[0]
    ours = ImageInputs.from_benchmark(two_domains, pixels=8).batch(torch.tensor([6]))[0].permute(1, 2, 0).numpy()
    theirs = np.asarray(Image.fromarray(image).resize((8, 8), Image.Resampling.BILINEAR))
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1


def test_the_same_stream_augments_equally_and_none_changes_nothing(two_domains):
    inputs, rows = ImageInputs.from_benchmark(two_domains, pixels=16, allow_flip=True), torch.arange(11)
    plain = inputs.batch(rows)
    assert torch.equal(inputs.batch(rows), plain)
    one, same, other = (inputs.batch(rows, stream(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not torch.equal(one, plain)


def test_a_random_crop_is_a_crop_of_the_padded_image():
    images = torch.from_numpy(noise(40, 8)).permute(0, 3, 1, 2)
    cropped = random_crop(images, 2, stream())
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    offsets = set()
    for source, crop in zip(padded, cropped, strict=True):
        fits = [(y, x) for y in range(5) for x in range(5) if torch.equal(source[:, y : y + 8, x : x + 8], crop)]
        assert len(fits) == 1
        offsets |= set(fits)
    assert len(offsets) > 12
    assert torch.equal(random_crop(images, 0, stream()), images)


def test_about_half_of_the_images_are_mirrored():
    images = torch.from_numpy(noise(200, 4)).permute(0, 3, 1, 2)
    flipped = random_flip(images, stream())
    same = [torch.equal(a, b) for a, b in zip(images, flipped, strict=True)]
    mirrored = [torch.equal(a.flip(-1), b) for a, b in zip(images, flipped, strict=True)]
    assert all(a or b for a, b in zip(same, mirrored, strict=True))
    assert 70 < sum(mirrored) < 130


def test_digits_are_never_mirrored(two_domains):
    inputs, rows = ImageInputs.from_benchmark(two_domains, pixels=16), torch.arange(11)
    expected = random_crop(inputs.batch(rows), 4, stream())
    assert torch.equal(inputs.batch(rows, stream()), expected)
