"""ResNets by name give the features of transformers, with both naming conventions and frozen statistics."""

import pytest
import torch
from torch import nn

from tests.unit.encoder.conftest import full_batch, make_frozen_encoder, make_personal_encoder, random_images, stream
from vpdr.encoder.personal import projection_for
from vpdr.encoder.zoo import load_backbone

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=["resnet18", "resnet34"])
def checkpoint(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("resnet")
    depths = {"resnet18": [2, 2, 2, 2], "resnet34": [3, 4, 6, 3]}[request.param]
    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=depths, layer_type="basic"
    )
    with torch.random.fork_rng():
        model = transformers.ResNetForImageClassification(config)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):  # trained statistics differ from the initial ones
                nn.init.uniform_(module.running_mean, -0.1, 0.1, generator=stream("mean"))
                nn.init.uniform_(module.running_var, 0.5, 1.5, generator=stream("variance"))
    model.eval().save_pretrained(directory)
    return request.param, directory, model.resnet


def test_a_public_checkpoint_gives_the_features_of_transformers(checkpoint):
    name, directory, model = checkpoint
    ours = load_backbone(name, str(directory), pixels=64)
    images = random_images(2, 64)
    with torch.no_grad():
        batch = ours.preprocessor.prepare(full_batch(ours.make_inputs(images)))
        theirs = model(batch).pooler_output.flatten(1)
    torch.testing.assert_close(ours.pooled_features(images), theirs, rtol=1e-4, atol=1e-5)


def torchvision_names(tensors):
    """A checkpoint of transformers with the keys of torchvision, and without batch counters."""
    names = {
        "embedder.embedder.convolution.": "conv1.",
        "embedder.embedder.normalization.": "bn1.",
        ".layer.0.convolution.": ".conv1.",
        ".layer.1.convolution.": ".conv2.",
        ".layer.0.normalization.": ".bn1.",
        ".layer.1.normalization.": ".bn2.",
        ".shortcut.convolution.": ".downsample.0.",
        ".shortcut.normalization.": ".downsample.1.",
        **{f"encoder.stages.{stage}.layers.": f"layer{stage + 1}." for stage in range(4)},
    }
    renamed = {}
    for key, value in tensors.items():
        for ours, theirs in names.items():
            key = key.replace(ours, theirs)
        if not key.endswith("num_batches_tracked"):
            renamed[key] = value
    return renamed


def test_keys_of_torchvision_are_read_without_batch_counters(checkpoint, tmp_path):
    name, directory, model = checkpoint
    ours = load_backbone(name, str(directory), pixels=64)
    tensors = torchvision_names(model.state_dict())
    assert {"conv1.weight", "bn1.running_var", "layer2.0.downsample.0.weight", "layer4.1.bn2.bias"} <= set(tensors)
    torch.save(tensors | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}, tmp_path / "x.pth")
    again = load_backbone(name, str(tmp_path / "x.pth"), pixels=64)
    assert torch.equal(ours.pooled_features(random_images()), again.pooled_features(random_images()))
    assert ours.digest != again.digest, "the digest is the file's"


def test_the_projection_is_the_convolution_the_frozen_normalisation_and_the_pooling_in_one(resnet18):
    projection = projection_for(resnet18.info, "random", 24, rng=stream())
    maps = torch.rand(3, 512, 4, 4, generator=stream("maps"))
    conv, frozen = nn.Conv2d(512, 24, 1, bias=False), nn.BatchNorm2d(24).eval()
    conv.weight.data = projection.linear.weight[:, :, None, None].clone()
    expected = frozen(conv(maps)).mean(dim=(2, 3)).detach()
    torch.testing.assert_close(projection(maps.mean(dim=(2, 3))), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["resnet18", "lite0"])
def test_frozen_statistics_stay_frozen_in_training_mode(request, name):
    backbone = request.getfixturevalue(name).with_pixels(64)
    before = {key: value.clone() for key, value in backbone.network.state_dict().items()}
    frozen_encoder = make_frozen_encoder(backbone)
    personal = make_personal_encoder(frozen_encoder).train()
    inputs = full_batch(backbone.make_inputs(random_images(4, 64)))
    optimiser = torch.optim.Adam(personal.parameters(), lr=1e-2)
    for _ in range(2):
        personal(torch.zeros(4, 16), inputs).square().sum().backward()
        optimiser.step()
    assert any(adapter.up.weight.abs().max() > 0 for adapter in personal.adapters.values())
    backbone.network.train()
    assert not any(module.training for module in backbone.network.modules())
    after = backbone.network.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
