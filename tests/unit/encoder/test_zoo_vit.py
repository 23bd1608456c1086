"""The Vision Transformer by name, with random weights and with weights in the format of public checkpoints."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.unit.encoder.conftest import full_batch, make_frozen_encoder, make_personal_encoder, random_images, stream
from vpdr.encoder.zoo import load_backbone

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A classifier, as the public checkpoints are, saved in their format, and the model itself."""
    directory = tmp_path_factory.mktemp("vit")
    config = transformers.ViTConfig(
        hidden_size=192, num_attention_heads=3, intermediate_size=768, initializer_range=0.2
    )
    with torch.random.fork_rng():
        model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(directory)
    return directory, model.vit


@torch.no_grad()
def by_transformers(model, images, **options):
    batch = (torch.from_numpy(images).permute(0, 3, 1, 2).float() - 127.5) / 127.5
    return model(batch, **options).last_hidden_state[:, 1:].mean(1)


def test_a_public_checkpoint_gives_the_features_of_transformers(checkpoint):
    directory, model = checkpoint
    ours = load_backbone("vit_tiny", str(directory))
    images = random_images(2, 224)
    torch.testing.assert_close(ours.pooled_features(images), by_transformers(model, images), rtol=1e-4, atol=1e-4)
    assert "encoder.layer.0.attention.attention.query.weight" in {
        name.removeprefix("vit.") for name in load_file(directory / "model.safetensors")
    }, "the file has the names of the public checkpoints"


def test_keys_of_newer_transformers_and_a_single_file_are_read(checkpoint, tmp_path):
    directory, model = checkpoint
    torch.save(model.state_dict(), tmp_path / "bare.pth")
    save_file(model.state_dict(), tmp_path / "bare.safetensors")
    assert any(name.startswith("layers.0.attention.q_proj") for name in model.state_dict())
    images = random_images(1, 64)
    first = load_backbone("vit_tiny", str(directory), pixels=64).pooled_features(images)
    for file in ("bare.pth", "bare.safetensors"):
        assert torch.equal(load_backbone("vit_tiny", str(tmp_path / file), pixels=64).pooled_features(images), first)


def test_other_sizes_interpolate_the_positions_as_transformers_does(checkpoint):
    directory, model = checkpoint
    images = random_images(2, 96)
    ours = load_backbone("vit_tiny", str(directory), pixels=96).pooled_features(images)
    theirs = by_transformers(model, images, interpolate_pos_encoding=True)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_checkpoint_sets_the_eps_of_layer_norm(checkpoint, tmp_path):
    directory, _ = checkpoint
    (tmp_path / "model.safetensors").write_bytes((directory / "model.safetensors").read_bytes())
    assert load_backbone("vit_tiny", str(tmp_path)).network.module.layernorm.eps == 1e-12
    (tmp_path / "config.json").write_text('{"layer_norm_eps": 1e-06}')
    network = load_backbone("vit_tiny", str(tmp_path)).network
    assert {norm.eps for norm in network.modules() if isinstance(norm, torch.nn.LayerNorm)} == {1e-6}


def test_another_eps_changes_the_digest_of_the_weights(checkpoint, tmp_path):
    directory, _ = checkpoint
    (tmp_path / "model.safetensors").write_bytes((directory / "model.safetensors").read_bytes())
    plain = load_backbone("vit_tiny", str(tmp_path)).digest
    (tmp_path / "config.json").write_text('{"layer_norm_eps": 1e-06}')
    assert load_backbone("vit_tiny", str(tmp_path)).digest == f"{plain}-1e-06"
    assert load_backbone("vit_tiny", str(directory)).digest == plain


def test_the_checkpoint_sets_the_normalisation_of_images(checkpoint, tmp_path):
    directory, _ = checkpoint
    (tmp_path / "model.safetensors").write_bytes((directory / "model.safetensors").read_bytes())
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}')
    normalisation = load_backbone("vit_tiny", str(tmp_path)).preprocessor.normalisation
    assert (normalisation.mean, normalisation.std) == ((0.0,) * 3, (255.0,) * 3)
    (tmp_path / "preprocessor_config.json").write_text("{")
    assert load_backbone("vit_tiny", str(tmp_path)).preprocessor.normalisation.mean == (127.5,) * 3
    by_name = load_backbone("vit_tiny", str(tmp_path), normalisation="imagenet").preprocessor.normalisation
    assert by_name.mean == (123.675, 116.28, 103.53)


@pytest.mark.parametrize("source", ["random", "checkpoint"])
def test_twelve_blocks_with_adapters_at_224_pixels_train(source, vit_tiny, checkpoint):
    backbone = vit_tiny if source == "random" else load_backbone("vit_tiny", str(checkpoint[0]))
    frozen_encoder = make_frozen_encoder(backbone)
    personal = make_personal_encoder(frozen_encoder)
    inputs = full_batch(backbone.make_inputs(random_images(2, 224)))
    public = frozen_encoder.projection(backbone.pooled_features(random_images(2, 224)))
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
