import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_image

from tests.unit.encoder.conftest import full_batch
from vpdr.encoder.networks import SameConv
from vpdr.encoder.zoo import load_backbone
from vpdr.validation import InvalidInput

PALACE, DAISY = 698, 985


def square(name):
    image = load_sample_image(name)
    side = min(image.shape[:2])
    left = (image.shape[1] - side) // 2
    return image[None, :side, left : left + side]


def preprocess(backbone, images):
    return backbone.preprocessor.prepare(full_batch(backbone.make_inputs(images)))


@pytest.mark.parametrize(("name", "label"), [("china.jpg", PALACE), ("flower.jpg", DAISY)])
def test_real_photographs_get_the_right_imagenet_label(lite0, name, label):
    assert lite0.network.module(preprocess(lite0, square(name))).argmax().item() == label


def test_training_mode_changes_nothing_and_nothing_can_be_trained(lite0):
    image = square("flower.jpg")
    before = lite0.with_pixels(64).pooled_features(image)
    lite0.network.train()
    assert not any(module.training for module in lite0.network.modules())
    assert not any(parameter.requires_grad for parameter in lite0.network.parameters())
    assert torch.equal(before, lite0.with_pixels(64).pooled_features(image))


def test_an_image_has_the_same_feature_in_any_batch_and_progress_is_reported(lite0):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    reports = []
    together = lite0.with_pixels(64).pooled_features(images, batch_size=2, progress=lambda *done: reports.append(done))
    alone = torch.cat([lite0.with_pixels(64).pooled_features(image[None]) for image in images])
    assert reports == [(2, 5), (4, 5), (5, 5)]
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-3)
    assert lite0.with_pixels(64).pooled_features(images[:0]).shape == (0, 1280)


def test_features_do_not_depend_on_the_number_of_threads_and_leave_it_as_it_was(lite0):
    images = np.random.default_rng(1).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(lite0.with_pixels(64).pooled_features(images, batch_size=2))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_the_normalisation_is_the_networks_own(lite0):
    small = lite0.with_pixels(64)
    assert preprocess(small, np.full((1, 8, 8, 3), 127, dtype=np.uint8)).abs().max() == 0
    assert preprocess(small, np.full((1, 64, 64, 3), 255, dtype=np.uint8)).unique().tolist() == [1.0]


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "first", "last"), [(8, 3, 2, 0, 1), (7, 3, 2, 1, 1), (8, 5, 2, 1, 2), (7, 5, 1, 2, 2)]
)
def test_same_padding_equals_explicit_padding(size, kernel, stride, first, last):
    conv = SameConv(1, 1, kernel=kernel, stride=stride)
    torch.nn.init.ones_(conv.weight)
    image = torch.ones(1, 1, size, size)
    padded = torch.nn.functional.pad(image, (first, last, first, last))
    expected = torch.nn.functional.conv2d(padded, conv.weight, stride=stride)
    assert expected.shape[-1] == -(-size // stride)
    torch.testing.assert_close(conv(image), expected)


def test_too_small_a_size_is_refused(lite0):
    with pytest.raises(InvalidInput, match="at least 32, got 16"):
        lite0.with_pixels(16)


@pytest.mark.parametrize(("number", "blocks", "channels"), [(1, 21, 320), (2, 21, 352)])
def test_lite1_and_lite2_have_their_public_shapes(number, blocks, channels):
    network = load_backbone(f"efficientnet_lite{number}", "random").network.module
    assert len(network.blocks) == blocks
    assert network.conv_head.in_channels == channels
    assert network.conv_stem.out_channels == 32
