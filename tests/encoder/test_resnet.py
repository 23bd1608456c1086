"""ResNets against the library's own, in both naming conventions; frozen statistics stay frozen."""

import pytest
import torch
from torch import nn

from tests.encoder.conftest import encoder, everything, pictures, stream, trunk
from vpdr.encoder import load_backbone, path_of

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=["resnet18", "resnet34"])
def checkpoint(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("resnet")
    depths = {"resnet18": [2, 2, 2, 2], "resnet34": [3, 4, 6, 3]}[request.param]
    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=depths, layer_type="basic"
    )
    with torch.random.fork_rng():
        model = transformers.ResNetForImageClassification(config)
        for part in model.modules():
            if isinstance(part, nn.BatchNorm2d):  # as after a training: nothing is at its initial value
                nn.init.uniform_(part.running_mean, -0.1, 0.1, generator=stream("mean"))
                nn.init.uniform_(part.running_var, 0.5, 1.5, generator=stream("variance"))
    model.eval().save_pretrained(folder)
    return request.param, folder, model.resnet


def test_a_public_checkpoint_gives_what_its_own_library_gives(checkpoint):
    name, folder, model = checkpoint
    ours = load_backbone(name, str(folder), pixels=64)
    images = pictures(2, 64)
    with torch.no_grad():
        seen = ours.eye.prepare(everything(ours.inputs(images)))
        theirs = model(seen).pooler_output.flatten(1)
    torch.testing.assert_close(ours.pooled(images), theirs, rtol=1e-4, atol=1e-5)


def test_the_names_of_torchvision_are_read_even_without_counters(checkpoint, tmp_path):
    name, folder, _ = checkpoint
    ours = load_backbone(name, str(folder), pixels=64)
    named = {
        key: value
        for key, value in ours.network.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    assert {"conv1.weight", "bn1.running_var", "layer2.0.downsample.0.weight", "layer4.1.bn2.bias"} <= set(
        named
    )
    torch.save(
        named | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}, tmp_path / "x.pth"
    )
    again = load_backbone(name, str(tmp_path / "x.pth"), pixels=64)
    assert torch.equal(ours.pooled(pictures()), again.pooled(pictures()))
    assert ours.digest != again.digest, "the digest is the file's"


def test_the_projection_is_the_convolution_the_frozen_normalisation_and_the_pooling_in_one(resnet18):
    path = path_of(resnet18, "random", 24, rng=stream())
    maps = torch.rand(3, 512, 4, 4, generator=stream("maps"))
    conv, frozen = nn.Conv2d(512, 24, 1, bias=False), nn.BatchNorm2d(24).eval()
    conv.weight.data = path.projection.weight[:, :, None, None].clone()
    expected = frozen(conv(maps)).mean(dim=(2, 3)).detach()
    torch.testing.assert_close(path(maps.mean(dim=(2, 3))), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["resnet18", "lite0"])
def test_frozen_statistics_stay_frozen_in_training_mode(request, name):
    backbone = request.getfixturevalue(name).at(64)
    before = {key: value.clone() for key, value in backbone.network.state_dict().items()}
    frozen = trunk(backbone)
    personal = encoder(frozen).train()
    inputs = everything(backbone.inputs(pictures(4, 64)))
    optimiser = torch.optim.Adam(personal.parameters(), lr=1e-2)
    for _ in range(2):
        personal(torch.zeros(4, 16), inputs).square().sum().backward()
        optimiser.step()
    assert any(adapter.up.weight.abs().max() > 0 for adapter in personal.adapters.values())
    backbone.network.train()
    assert not any(part.training for part in backbone.network.modules())
    after = backbone.network.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
