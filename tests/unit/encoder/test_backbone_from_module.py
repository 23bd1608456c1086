"""Modules and functions from Python as backbones."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from tests.unit.encoder.conftest import full_batch, make_frozen_encoder, make_personal_encoder, random_images, stream
from vpdr import Backbone
from vpdr.encoder.backbone import cached_pooled_features
from vpdr.encoder.zoo import BACKBONES, BackboneSpec, load_backbone
from vpdr.validation import InvalidInput


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(dim, dim, 3, padding=1), nn.BatchNorm2d(dim)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.blocks = nn.ModuleList(Block(8) for _ in range(3))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x.mean(dim=(2, 3))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 6)

    def forward(self, ids, mask):
        return (self.words(ids) * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)


def word_lengths(texts):
    return [[len(word) for word in text.split()] for text in texts]


def build(module_class):
    with torch.random.fork_rng():
        return module_class()


def test_a_module_is_copied_frozen_and_in_evaluation_mode():
    module = build(Small).train()
    backbone = Backbone.from_module(module, pixels=32)
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert not any(each.training for each in backbone.network.modules())
    assert not any(parameter.requires_grad for parameter in backbone.network.parameters())
    before = backbone.pooled_features(random_images())
    nn.init.zeros_(module.stem.weight)
    assert torch.equal(backbone.pooled_features(random_images()), before)
    assert Backbone.from_module(module, pixels=32).digest != backbone.digest


def test_images_are_normalised_as_stated():
    module = build(Small).eval()
    backbone = Backbone.from_module(module, pixels=32, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    images = random_images(2, 32)
    mean, std = (torch.tensor(each)[:, None, None] for each in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
    with torch.no_grad():
        expected = module((torch.from_numpy(images).permute(0, 3, 1, 2) / 255 - mean) / std)
    torch.testing.assert_close(backbone.pooled_features(images), expected, rtol=1e-4, atol=1e-5)


def test_adapters_follow_the_blocks_of_a_module():
    backbone = Backbone.from_module(build(Small), pixels=32)
    personal = make_personal_encoder(make_frozen_encoder(backbone), width=4)
    inputs = full_batch(backbone.make_inputs(random_images(4, 32)))
    public = personal.frozen_encoder.projection(backbone.features(inputs))
    assert torch.equal(personal(public, inputs), public)
    personal(public, inputs).square().sum().backward()
    assert len(personal.adapters) == 3
    assert all(adapter.up.weight.grad.abs().max() > 0 for adapter in personal.adapters.values())
    assert len(personal.state_dict()) == 6


def test_texts_are_given_as_ids_and_mask():
    module = build(Words)
    backbone = Backbone.from_module(module, tokenise=word_lengths, padding_id=29)
    assert (backbone.modality, backbone.pixels, backbone.pooled_dim) == ("text", 0, 6)
    features = backbone.pooled_features(["a bb", "ccc"])
    torch.testing.assert_close(features[0], module.words.weight[[1, 2]].mean(0).detach())
    torch.testing.assert_close(features[1], module.words.weight[3].detach())


def test_a_function_has_the_adapter_after_its_features_only():
    backbone = Backbone.from_module(lambda x: x.mean(dim=(2, 3)), pixels=32, name="brightness")
    images = np.full((2, 16, 16, 3), 51, dtype=np.uint8)
    torch.testing.assert_close(backbone.pooled_features(images), torch.full((2, 3), 0.2))
    frozen = make_frozen_encoder(backbone)
    assert make_personal_encoder(frozen, adapters="last", width=2) is not None
    with pytest.raises(InvalidInput, match=r"expected a list of equal blocks in brightness .* set model.adapters=last"):
        make_personal_encoder(frozen)


def test_features_are_stored_under_a_version_only(tmp_path):
    images = random_images()
    cached_pooled_features(Backbone.from_module(build(Small), pixels=32), images, cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
    module = build(Small)
    for version in ("a", "b", "a"):
        backbone = Backbone.from_module(module, pixels=32, version=version)
        features = cached_pooled_features(backbone, images, cache_dir=tmp_path)
        assert torch.equal(features, backbone.pooled_features(images))
    assert len(list(tmp_path.iterdir())) == 2


class MixesBatch(Small):
    def forward(self, x):
        features = super().forward(x)
        return features - features.mean(0)


class DrawsMask(Small):
    def forward(self, x):
        return super().forward(x) * torch.rand(8)


class GivesMaps(Small):
    def forward(self, x):
        return self.stem(x)


class GivesNothing(Small):
    def forward(self, x):
        return None


class GivesNan(Small):
    def forward(self, x):
        return super().forward(x) * float("nan")


class Fails(Small):
    def forward(self, x):
        return self.stem(x[:, :2])


@pytest.mark.parametrize(
    ("module_class", "message"),
    [
        (MixesBatch, "depend on one sample each, but the feature of a sample changes with the rest of its batch"),
        (DrawsMask, "or from call to call"),
        (GivesNan, "expected features of GivesNan that are finite"),
        (GivesMaps, r"expected pooled features from GivesMaps \(batch x dim\), got shape \(2, 8, 8, 8\)"),
        (GivesNothing, "got a NoneType for 2 samples"),
        (Fails, "cannot compute features with Fails .*expected input.* to have 3 channels, but got 2"),
    ],
)
def test_modules_that_give_no_features_of_single_samples_are_refused(module_class, message):
    before = torch.random.get_rng_state()
    with pytest.raises(InvalidInput, match=message):
        Backbone.from_module(build(module_class), pixels=32)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_batch_normalisation_is_no_reason_to_refuse_a_module():
    module = build(Small).train()
    with torch.random.fork_rng():
        module(torch.rand(4, 3, 32, 32, generator=stream("x")))
    assert Backbone.from_module(module, pixels=32).pooled_dim == 8


def test_a_module_is_registered_under_a_name():
    backbone = Backbone.from_module(build(Small), pixels=32)
    BACKBONES.register("mine", BackboneSpec.of(backbone))
    try:
        loaded = load_backbone("mine", pixels=64)
        assert (loaded.name, loaded.pixels) == ("mine", 64)
        assert loaded.network is backbone.network
    finally:
        BACKBONES.unregister("mine")


def test_a_name_from_python_cannot_be_loaded():
    with pytest.raises(InvalidInput, match=r"backbone python:mine was given from Python; call vpdr.build"):
        load_backbone("python:mine")


def test_two_threads_do_not_share_adapters():
    """Features without adapters are computed by other threads while a client trains."""
    backbone = Backbone.from_module(build(Small), pixels=32)
    images = random_images(64, 32)
    alone = backbone.pooled_features(images, batch_size=4)
    personal = make_personal_encoder(make_frozen_encoder(backbone), width=4)
    for adapter in personal.adapters.values():
        nn.init.ones_(adapter.up.weight)
    found = {}

    def nested(x):  # an adapter that computes public features, as another thread would in the middle of a call
        found["pooled"] = backbone.pooled_features(images, batch_size=4)
        return personal.adapters["1"](x)

    inputs = full_batch(backbone.make_inputs(images[:2]))
    with torch.no_grad():
        features = backbone.features(inputs, {1: nested, 2: personal.adapters["2"]})
        expected = backbone.features(inputs, {1: personal.adapters["1"], 2: personal.adapters["2"]})
    assert torch.equal(found["pooled"], alone)
    assert torch.equal(features, expected)


def test_a_copy_of_a_network_has_hooks_of_its_own():
    backbone = Backbone.from_module(build(Small), pixels=32)
    network = copy.deepcopy(backbone.network)
    x = backbone.preprocessor.prepare(full_batch(backbone.make_inputs(random_images(2, 32))))
    for each in (network, backbone.network):
        doubled = each.features(x, {2: lambda y: 2 * y})
        torch.testing.assert_close(doubled, 2 * each.features(x, {}))
