"""Encoders of transformers by `hf:`, as small random models that the library builds and saves itself."""

import json
from dataclasses import dataclass
from typing import Any

import huggingface_hub
import jaxtyping
import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from tests.unit.encoder.conftest import (
    full_batch,
    make_frozen_encoder,
    make_personal_encoder,
    random_images,
    save_tokeniser,
    stream,
)
from vpdr.encoder.personal import make_head
from vpdr.encoder.zoo import load_backbone
from vpdr.validation import DamagedFile, InvalidInput

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48}
VISION = {**SIZES, "image_size": 32, "patch_size": 8}
TEXT = {**SIZES, "vocab_size": 64, "max_position_embeddings": 40, "bos_token_id": 0, "eos_token_id": 2}
WINDOWS = {"image_size": 32, "patch_size": 4, "embed_dim": 12, "num_heads": [2, 2], "window_size": 4}
STAGES = {"hidden_sizes": [8, 16], "depths": [1, 2]}
SQUARE, SHORTEST = {"height": 32, "width": 32}, {"shortest_edge": 32}
TOKENS, MAPS, HIERARCHY = (
    [(24, False)] * 3,
    [(8, True), (16, True), (16, True)],
    [(12, False), (24, False), (24, False)],
)


def pooler_output(output):
    return output.pooler_output.flatten(1)


def first_token(output):
    return output.last_hidden_state[:, 0]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A small model; the places of its adapters, and how its features follow from what transformers returns."""

    config: transformers.PreTrainedConfig
    sites: list[tuple[int, bool]]
    pool: Any = None  # None: the mean over the tokens
    processor: Any = None  # None: a tokeniser
    tower: bool = False  # whether the vision tower of a model of images and texts is used


VIT, CLIP = (
    transformers.ViTImageProcessorPil(size=SQUARE),
    transformers.CLIPImageProcessorPil(size={"shortest_edge": 36}, crop_size=SQUARE),
)
CASES = {
    "vit": Case(config=transformers.ViTConfig(**VISION), sites=TOKENS, pool=first_token, processor=VIT),
    "deit": Case(config=transformers.DeiTConfig(**VISION), sites=TOKENS, pool=first_token, processor=VIT),
    "dinov2": Case(
        config=transformers.Dinov2Config(**VISION),
        sites=TOKENS,
        pool=pooler_output,
        processor=transformers.BitImageProcessorPil(size={"shortest_edge": 36}, crop_size=SQUARE),
    ),
    "swin": Case(
        config=transformers.SwinConfig(**WINDOWS, depths=[1, 2]), sites=HIERARCHY, pool=pooler_output, processor=VIT
    ),
    "convnext": Case(
        config=transformers.ConvNextConfig(**STAGES, num_stages=2, layer_scale_init_value=1.0),
        sites=MAPS,
        pool=pooler_output,
        processor=transformers.ConvNextImageProcessorPil(size=SHORTEST),
    ),
    "resnet": Case(
        config=transformers.ResNetConfig(**STAGES, embedding_size=8), sites=MAPS, pool=pooler_output, processor=VIT
    ),
    "clip": Case(
        config=transformers.CLIPConfig(text_config=TEXT, vision_config=VISION),
        sites=TOKENS,
        pool=pooler_output,
        processor=CLIP,
        tower=True,
    ),
    "clip_vision": Case(
        config=transformers.CLIPVisionConfig(**VISION), sites=TOKENS, pool=pooler_output, processor=CLIP
    ),
    "siglip": Case(
        config=transformers.SiglipConfig(text_config=TEXT, vision_config=VISION),
        sites=TOKENS,
        pool=pooler_output,
        processor=transformers.SiglipImageProcessorPil(size=SQUARE),
        tower=True,
    ),
    "bert": Case(config=transformers.BertConfig(**TEXT), sites=TOKENS),
    "roberta": Case(config=transformers.RobertaConfig(**TEXT, pad_token_id=1), sites=TOKENS),
    "distilbert": Case(
        config=transformers.DistilBertConfig(
            dim=24, n_layers=3, n_heads=2, hidden_dim=48, vocab_size=64, max_position_embeddings=40
        ),
        sites=TOKENS,
    ),
    "mpnet": Case(config=transformers.MPNetConfig(**TEXT), sites=TOKENS),
    "albert": Case(config=transformers.AlbertConfig(**TEXT, embedding_size=8), sites=TOKENS[:1]),  # one, shared
}
TEXTS = ["w1", "w3 w4 w5 w6 w7 w8 w9", "w20 w21", ""]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The directory of a case, and the model that was saved there."""
    done = {}

    def save(name):
        if name not in done:
            case, directory = CASES[name], tmp_path_factory.mktemp(name)
            with torch.random.fork_rng():
                model = transformers.AutoModel.from_config(case.config).eval()
                for parameter in model.parameters():  # initial weights are too small to tell samples apart
                    if parameter.ndim > 1:
                        torch.nn.init.normal_(parameter, std=0.2, generator=stream(name))
            model.save_pretrained(directory)
            if case.processor is None:
                save_tokeniser(directory)
            else:
                case.processor.save_pretrained(directory)
            done[name] = directory, model.vision_model if case.tower else model
        return done[name]

    return save


def samples_for(backbone):
    return random_images(4, 40) if backbone.modality == "image" else TEXTS


@pytest.fixture(params=CASES)
def loaded(request, saved):
    directory, model = saved(request.param)
    return CASES[request.param], load_backbone(f"hf:{directory}"), model, directory


def test_features_are_those_of_the_library(loaded):
    case, backbone, model, _ = loaded
    batch = backbone.preprocessor.prepare(full_batch(backbone.make_inputs(samples_for(backbone))))
    with torch.no_grad():
        if case.pool is not None:
            expected = case.pool(model(pixel_values=batch))
        else:
            ids, mask = batch.unbind(1)
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
            expected = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    features = backbone.pooled_features(samples_for(backbone))
    assert features.shape[1] == backbone.pooled_dim == backbone.info.pooled_dim
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)
    assert features.std(dim=0).mean() > 1e-3, "the samples have different features"


def test_adapters_follow_the_blocks_and_start_without_effect(loaded):
    case, backbone, _, _ = loaded
    assert [tuple(site) for site in backbone.network.adapter_sites] == case.sites
    frozen = make_frozen_encoder(backbone)
    personal = make_personal_encoder(frozen, width=8)
    inputs = full_batch(backbone.make_inputs(samples_for(backbone)))
    public = frozen.projection(backbone.features(inputs))
    assert torch.equal(personal(public, inputs), public)
    head = make_head(16, 2, rng=stream("head"), dropout=0.0)
    loss = torch.nn.functional.cross_entropy(head(personal(public, inputs)), torch.tensor([0, 1, 0, 1]))
    loss.backward()
    assert all(adapter.up.weight.grad.abs().max() > 0 for adapter in personal.adapters.values())
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert all(
        parameter.grad is None for parameter in (*backbone.network.parameters(), *frozen.projection.parameters())
    )
    assert sorted(personal.state_dict()) == sorted(
        f"adapters.{block}.{part}.weight" for block in range(len(case.sites)) for part in ("down", "up")
    )
    for adapter in personal.adapters.values():
        torch.nn.init.normal_(adapter.up.weight, std=0.5, generator=stream("up"))
    assert not torch.allclose(personal(public, inputs), public, atol=1e-3), "every call applies the adapters"
    assert torch.equal(frozen.projection(backbone.features(inputs)), public), "and a call without them does not"


def test_widths_of_adapters_follow_the_widths_of_blocks(saved):
    for name, widths in {"swin": [4, 8, 8], "convnext": [4, 8, 8], "vit": [8, 8, 8]}.items():
        backbone = load_backbone(f"hf:{saved(name)[0]}")
        personal = make_personal_encoder(make_frozen_encoder(backbone), width=8)
        assert [adapter.down.weight.shape[0] for adapter in personal.adapters.values()] == widths


def test_a_second_load_is_the_same(loaded):
    _, backbone, _, directory = loaded
    again = load_backbone(f"hf:{directory}")
    samples = samples_for(backbone)
    assert torch.equal(again.pooled_features(samples), backbone.pooled_features(samples))
    assert (again.digest, again.preprocessing_key) == (backbone.digest, backbone.preprocessing_key)


def test_batches_do_not_mix_samples_and_padding_changes_nothing(loaded):
    _, backbone, _, _ = loaded
    samples = samples_for(backbone)
    together = backbone.pooled_features(samples, batch_size=4)
    alone = torch.cat([backbone.pooled_features(samples[row : row + 1]) for row in range(4)])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_loading_says_nothing_and_draws_nothing(saved, capfd, recwarn):
    directory = saved("clip")[0]  # the text tower is left out
    capfd.readouterr()
    before = torch.random.get_rng_state()
    load_backbone(f"hf:{directory}")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


@pytest.fixture
def without_shape_checks():
    """The compiler cannot trace the checks of shapes that tests add to every function."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_graphs_of_the_compiler_apply_the_adapters(saved, without_shape_checks):
    """The front end of torch.compile, without code generation."""
    check_compiled(load_backbone(f"hf:{saved('vit')[0]}"), backend="eager")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="code generation is tested where there is a GPU")
@pytest.mark.parametrize("name", ["vit", "bert"])
def test_compiled_encoders_on_a_gpu_give_the_same_features(saved, name, without_shape_checks):
    check_compiled(load_backbone(f"hf:{saved(name)[0]}", device="cuda"), backend="inductor")


def check_compiled(backbone, backend):
    frozen = make_frozen_encoder(backbone)
    first, second = (make_personal_encoder(frozen, width=4).eval() for _ in range(2))
    inputs = full_batch(backbone.make_inputs(samples_for(backbone)))
    for adapter in second.adapters.values():
        torch.nn.init.normal_(adapter.up.weight, std=0.5, generator=stream("up"))
    torch.compiler.reset()
    with torch.no_grad():
        features = [torch.compile(each, backend=backend)(torch.zeros(4, 16), inputs) for each in (first, second)]
        for compiled, encoder in zip(features, (first, second), strict=True):
            torch.testing.assert_close(compiled, encoder(torch.zeros(4, 16), inputs), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(*features, atol=1e-3)


@pytest.mark.parametrize("name", ["vit", "dinov2", "convnext", "clip", "siglip"])
@pytest.mark.parametrize("shape", [(40, 40), (32, 32), (50, 64)])
def test_preprocessing_is_that_of_the_image_processor(saved, name, shape):
    """Up to the rounding to bytes, which the processor does after each of the two directions of resizing."""
    if name in ("vit", "siglip") and shape[0] != shape[1]:
        pytest.skip("both make squares")
    backbone, processor = load_backbone(f"hf:{saved(name)[0]}"), CASES[name].processor
    noise = Image.fromarray(random_images(1, 10)[0]).resize(shape[::-1], Image.Resampling.BICUBIC)
    image = np.asarray(noise)
    ours = backbone.preprocessor.prepare(full_batch(backbone.make_inputs(image[None])))[0]
    theirs = torch.as_tensor(np.asarray(processor(images=[image])["pixel_values"][0]))
    std = torch.tensor(backbone.preprocessor.normalisation.std)[:, None, None]
    assert ((ours - theirs) * std).abs().max() < (1e-2 if shape == (32, 32) and name == "vit" else 1.5)


def test_gradients_reach_the_pixels(saved):
    backbone = load_backbone(f"hf:{saved('clip')[0]}")
    images = full_batch(backbone.make_inputs(random_images(2, 50))).float().requires_grad_()
    backbone.features(images).square().sum().backward()
    assert images.grad.abs().max() > 0


def test_other_sizes_of_images(saved):
    vit = load_backbone(f"hf:{saved('vit')[0]}", pixels=64)
    model = saved("vit")[1]
    batch = vit.preprocessor.prepare(full_batch(vit.make_inputs(random_images(2, 64))))
    with torch.no_grad():
        expected = first_token(model(pixel_values=batch, interpolate_pos_encoding=True))
    torch.testing.assert_close(vit.pooled_features(random_images(2, 64)), expected, rtol=1e-4, atol=1e-5)
    clip = load_backbone(f"hf:{saved('clip')[0]}", pixels=72)
    assert (clip.pixels, clip.preprocessor.crop) == (72, 64)


def test_a_size_that_the_model_cannot_take_is_one_line(tmp_path):
    config = transformers.HieraConfig(
        image_size=[64, 64], embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 8], mlp_ratio=1.0
    )
    with torch.random.fork_rng():
        transformers.HieraModel(config).save_pretrained(tmp_path)
    transformers.ViTImageProcessorPil(size={"height": 64, "width": 64}).save_pretrained(tmp_path)
    assert load_backbone(f"hf:{tmp_path}").pooled_dim == 64
    with pytest.raises(InvalidInput, match=r"cannot take images of 100 pixels \(.*\); leave pixels out"):
        load_backbone(f"hf:{tmp_path}", pixels=100)


def copy_of(directory, target, *, without=()):
    for path in directory.iterdir():
        if path.name not in without:
            (target / path.name).write_bytes(path.read_bytes())
    return target


def test_the_length_of_texts_is_what_the_directory_states(saved, tmp_path):
    long = ["w1 " * 100]
    assert load_backbone(f"hf:{saved('bert')[0]}").make_inputs(long).lengths.tolist() == [38], "from the positions"
    copy_of(saved("bert")[0], tmp_path)
    save_tokeniser(tmp_path, model_max_length=20)
    assert load_backbone(f"hf:{tmp_path}").make_inputs(long).lengths.tolist() == [20]
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 10}')
    assert load_backbone(f"hf:{tmp_path}").make_inputs(long).lengths.tolist() == [10]


def test_the_pooling_of_texts_is_what_sentence_transformers_states(saved, tmp_path):
    directory, model = saved("bert")
    copy_of(directory, tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    batch = full_batch(load_backbone(f"hf:{directory}").make_inputs(TEXTS))
    with torch.no_grad():
        expected = first_token(model(input_ids=batch[:, 0], attention_mask=batch[:, 1]))
    keys = set()
    for stated in ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, {"pooling_mode": "cls"}):
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(stated))
        backbone = load_backbone(f"hf:{tmp_path}")
        keys.add(backbone.preprocessing_key)
        torch.testing.assert_close(backbone.pooled_features(TEXTS), expected, rtol=1e-4, atol=1e-5)
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    keys.add(load_backbone(f"hf:{tmp_path}").preprocessing_key)
    assert len(keys) == 2, "features of another pooling are stored elsewhere"
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(InvalidInput, match=r"expected pooling by mean or cls .* got pooling_mode_max_tokens"):
        load_backbone(f"hf:{tmp_path}")


def test_checkpoints_in_parts_and_pickles_are_read(saved, tmp_path):
    directory, model = saved("bert")
    whole = load_backbone(f"hf:{directory}").pooled_features(TEXTS)
    for name in ("parts", "pickle"):
        (tmp_path / name).mkdir()
        copy_of(directory, tmp_path / name, without={"model.safetensors"})
    model.save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    assert (tmp_path / "parts" / "model.safetensors.index.json").exists()
    torch.save(model.state_dict(), tmp_path / "pickle" / "pytorch_model.bin")
    digests = set()
    for name in ("parts", "pickle"):
        backbone = load_backbone(f"hf:{tmp_path / name}")
        assert torch.equal(backbone.pooled_features(TEXTS), whole)
        digests.add(backbone.digest)
    assert len(digests) == 2


def test_weights_of_lower_precision_are_computed_in_float32(saved, tmp_path):
    directory, model = saved("vit")
    copy_of(directory, tmp_path)
    model.half().save_pretrained(tmp_path)
    model.float()
    assert load_backbone(f"hf:{tmp_path}").pooled_features(random_images()).dtype == torch.float32
    assert next(load_backbone(f"hf:{tmp_path}").network.parameters()).dtype == torch.float32


class Payload:
    def __reduce__(self):
        return (print, ("code was run",))


def test_a_pickle_with_code_is_refused_and_not_run(saved, tmp_path, capsys):
    copy_of(saved("bert")[0], tmp_path, without={"model.safetensors"})
    torch.save({"weight": Payload()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(DamagedFile, match="got other or damaged content"):
        load_backbone(f"hf:{tmp_path}")
    assert "code was run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "expected config.json of an encoder of transformers in"),
        ("preprocessor_config.json", "expected preprocessor_config.json in .* copy it from the public checkpoint"),
        ("model.safetensors", "expected model.safetensors or pytorch_model.bin in .* found neither"),
    ],
)
def test_an_incomplete_directory_is_one_line(saved, tmp_path, missing, message):
    copy_of(saved("vit")[0], tmp_path, without={missing})
    if missing == "preprocessor_config.json":  # nor one that follows from the type of the model
        assert not (tmp_path / missing).exists()
    with pytest.raises(InvalidInput, match=message):
        load_backbone(f"hf:{tmp_path}")


def test_texts_without_a_tokeniser_are_one_line(saved, tmp_path):
    copy_of(saved("bert")[0], tmp_path, without={"tokenizer.json", "tokenizer_config.json"})
    with pytest.raises(InvalidInput, match="expected a tokeniser in"):
        load_backbone(f"hf:{tmp_path}")


def test_a_checkpoint_that_lacks_layers_is_refused(saved, tmp_path):
    directory, _ = saved("vit")
    copy_of(directory, tmp_path)
    config = json.loads((directory / "config.json").read_text())
    for layers, message in ((4, "found no tensor for 'layers.3"), (2, "found 'layers.2.*which it does not have")):
        (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
        with pytest.raises(InvalidInput, match=message):
            load_backbone(f"hf:{tmp_path}")


def test_code_of_a_checkpoint_is_not_run(saved, tmp_path):
    copy_of(saved("vit")[0], tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mine", "auto_map": {"AutoConfig": "code.Config"}}')
    (tmp_path / "code.py").write_text("raise SystemExit('code was run')")
    with pytest.raises(InvalidInput, match=r"expected config\.json of an encoder"):
        load_backbone(f"hf:{tmp_path}")


def test_a_processor_that_does_more_is_refused(saved, tmp_path):
    copy_of(saved("vit")[0], tmp_path)
    transformers.MobileViTImageProcessorPil(
        size=SHORTEST, crop_size=SQUARE, do_flip_channel_order=True
    ).save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match=r"that resizes, crops and normalises, got .*vpdr.Backbone.from_module"):
        load_backbone(f"hf:{tmp_path}")


def test_models_of_other_kinds_are_refused(saved, tmp_path):
    config = transformers.ViTMAEConfig(**VISION)  # drops random patches in each call
    with torch.random.fork_rng():
        transformers.ViTMAEModel(config).save_pretrained(tmp_path)
    CASES["vit"].processor.save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match="from call to call; remove batch statistics and random masks"):
        load_backbone(f"hf:{tmp_path}")
    speech = transformers.Wav2Vec2Config(
        **SIZES,
        conv_dim=[8],
        conv_kernel=[4],
        conv_stride=[4],
        num_feat_extract_layers=1,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
    )
    with torch.random.fork_rng():
        transformers.Wav2Vec2Model(speech).save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match="expected an encoder of images or texts, got one of input_values"):
        load_backbone(f"hf:{tmp_path}")


def test_a_directory_needs_no_hub_and_an_id_without_network_is_one_line(saved, tmp_path, monkeypatch):
    def offline(repository, allow_patterns):
        raise huggingface_hub.errors.LocalEntryNotFoundError("outgoing traffic has been disabled")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    directory = saved("vit")[0]
    assert load_backbone(f"hf:{directory}").origin == str(directory)
    with pytest.raises(InvalidInput, match=r"cannot download owner/name from the hub: outgoing .*local directory"):
        load_backbone("hf:owner/name")
    assert load_backbone("hf:owner/name", str(directory)).name == "hf:owner/name", "a local copy of a public model"
    with pytest.raises(InvalidInput, match=r"expected the directory of a model, got owner/name"):
        load_backbone("hf:owner/name", "owner/name")
    with pytest.raises(InvalidInput, match="has weights of its own; leave out weights=random"):
        load_backbone(f"hf:{directory}", "random")
    for name in (str(tmp_path / "none"), "/no/such/place", "~/no such place"):
        with pytest.raises(InvalidInput, match=r"expected the directory of a model, got .* which is none"):
            load_backbone(f"hf:{name}")


def test_an_id_is_read_from_the_cache_of_the_hub(saved, monkeypatch):
    directory = saved("vit")[0]
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda repository, allow_patterns: str(directory))
    assert load_backbone("hf:owner/name").pooled_dim == 24
    assert load_backbone("hf:/no/such/place", "hub:owner/name").pooled_dim == 24
