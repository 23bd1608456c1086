"""The full Vision Transformer, with random weights and with those of a public checkpoint's format."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.encoder.conftest import encoder, everything, pictures, stream, trunk
from vpdr.encoder import load_backbone

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A classifier, as the public checkpoints are, saved in their format, and the model itself."""
    folder = tmp_path_factory.mktemp("vit")
    config = transformers.ViTConfig(
        hidden_size=192, num_attention_heads=3, intermediate_size=768, initializer_range=0.2
    )
    with torch.random.fork_rng():
        model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(folder)
    return folder, model.vit


@torch.no_grad()
def by_transformers(model, images, **options):
    seen = (torch.from_numpy(images).permute(0, 3, 1, 2).float() - 127.5) / 127.5
    return model(seen, **options).last_hidden_state[:, 1:].mean(1)


def test_a_public_checkpoint_gives_what_its_own_library_gives(checkpoint):
    folder, model = checkpoint
    ours = load_backbone("vit_tiny", str(folder))
    images = pictures(2, 224)
    torch.testing.assert_close(ours.pooled(images), by_transformers(model, images), rtol=1e-4, atol=1e-4)
    assert "encoder.layer.0.attention.attention.query.weight" in {
        name.removeprefix("vit.") for name in load_file(folder / "model.safetensors")
    }, "the file has the names of the public checkpoints"


def test_the_names_of_the_newer_library_and_a_bare_file_are_read_too(checkpoint, tmp_path):
    folder, model = checkpoint
    torch.save(model.state_dict(), tmp_path / "bare.pth")
    save_file(model.state_dict(), tmp_path / "bare.safetensors")
    assert any(name.startswith("layers.0.attention.q_proj") for name in model.state_dict())
    images = pictures(1, 64)
    first = load_backbone("vit_tiny", str(folder), pixels=64).pooled(images)
    for file in ("bare.pth", "bare.safetensors"):
        assert torch.equal(load_backbone("vit_tiny", str(tmp_path / file), pixels=64).pooled(images), first)


def test_other_sizes_stretch_the_positions_as_the_library_does(checkpoint):
    folder, model = checkpoint
    images = pictures(2, 96)
    ours = load_backbone("vit_tiny", str(folder), pixels=96).pooled(images)
    theirs = by_transformers(model, images, interpolate_pos_encoding=True)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_folder_says_how_it_divides_by_small_deviations(checkpoint, tmp_path):
    folder, _ = checkpoint
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert load_backbone("vit_tiny", str(tmp_path)).network.norm.eps == 1e-12
    (tmp_path / "config.json").write_text('{"layer_norm_eps": 1e-06}')
    network = load_backbone("vit_tiny", str(tmp_path)).network
    assert {part.eps for part in network.modules() if isinstance(part, torch.nn.LayerNorm)} == {1e-6}


def test_other_constants_are_other_weights_to_the_cache(checkpoint, tmp_path):
    folder, _ = checkpoint
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    plain = load_backbone("vit_tiny", str(tmp_path)).digest
    (tmp_path / "config.json").write_text('{"layer_norm_eps": 1e-06}')
    assert load_backbone("vit_tiny", str(tmp_path)).digest == f"{plain}-1e-06"
    assert load_backbone("vit_tiny", str(folder)).digest == plain


def test_the_folder_says_how_pictures_are_normalised(checkpoint, tmp_path):
    folder, _ = checkpoint
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}')
    seen = load_backbone("vit_tiny", str(tmp_path)).eye.normalisation
    assert (seen.mean, seen.deviation) == ((0.0,) * 3, (255.0,) * 3)
    (tmp_path / "preprocessor_config.json").write_text("{")
    assert load_backbone("vit_tiny", str(tmp_path)).eye.normalisation.mean == (127.5,) * 3
    by_name = load_backbone("vit_tiny", str(tmp_path), normalisation="imagenet").eye.normalisation
    assert by_name.mean == (123.675, 116.28, 103.53)


@pytest.mark.parametrize("source", ["random", "checkpoint"])
def test_twelve_blocks_with_adapters_at_224_pixels_train(source, vit_tiny, checkpoint):
    backbone = vit_tiny if source == "random" else load_backbone("vit_tiny", str(checkpoint[0]))
    frozen = trunk(backbone)
    personal = encoder(frozen)
    inputs = everything(backbone.inputs(pictures(2, 224)))
    public = frozen.path(backbone.pooled(pictures(2, 224)))
    with torch.no_grad():
        assert torch.equal(personal(public, inputs), public), "at the start they are the public features"
    before = {name: value.clone() for name, value in backbone.network.state_dict().items()}
    target = torch.randn(2, 16, generator=stream("target"))
    optimiser = torch.optim.Adam(personal.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        loss = (personal(public, inputs) - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        grads = [adapter.up.weight.grad.abs().max() for adapter in personal.adapters.values()]
        assert len(grads) == 12
        assert min(grads) > 0, "every block's adapter learns"
        optimiser.zero_grad()
    assert losses[-1] < losses[0]
    assert all(torch.equal(before[name], value) for name, value in backbone.network.state_dict().items())
