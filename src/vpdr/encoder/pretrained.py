"""Vision and text encoders of transformers as frozen backbones: weights, preprocessing and pooling of a directory."""

import hashlib
import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from vpdr.encoder import backbone
from vpdr.encoder.networks import Network
from vpdr.io import cache_key
from vpdr.types import Float, Int, Tensor
from vpdr.validation import DamagedFile, InvalidInput, format_error

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")  # the first one is preferred; each may be in parts
_MIN_SLICE_SIZE, _MAX_SLICES = 32, 8  # of a batch of texts
_UNSTATED_LENGTH = 100_000  # tokenisers state a huge number where they know no maximal length
_RESAMPLING = {0: "nearest-exact", 1: "bicubic", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers; 1 is Lanczos
_MAX_DIFFERENCE = 2.0  # of 255, between two ways of resizing
_OWN_RESIZE_PIXELS = 384  # from here on ConvNeXt's processor does not crop
_TEXT_POOLINGS = {"mean": "mean", "pooling_mode_mean_tokens": "mean", "cls": "first", "pooling_mode_cls_token": "first"}
_UNUSED_SETTINGS = {"_name_or_path", "architectures", "dtype", "transformers_version"}  # by the features

# What torch and safetensors raise for damaged files, and transformers for files that it does not understand.
_READ_ERRORS = (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, TypeError, ValueError, LookupError)
_LOAD_ERRORS = (OSError, ImportError, *_READ_ERRORS)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of a checkpoint; empty if there is none."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def read_weights(path: Path, name: str) -> tuple[dict[str, Tensor], str]:
    """The tensors of a file or of the weights in a directory, and the digest of the files."""
    tensors: dict[str, Tensor] = {}
    digests = []
    for file in _weight_files(path, name) if path.is_dir() else [path]:
        try:
            with file.open("rb") as content:
                digests.append(hashlib.file_digest(content, "sha256").hexdigest())
        except OSError as error:
            raise InvalidInput(
                f"cannot read the weights {file}: {error.strerror}; give a directory with {WEIGHT_FILES[0]}, "
                f"or a file with the tensors of {name}"
            ) from error
        try:
            tensors |= _read_tensors(file)
        except _READ_ERRORS as error:
            raise DamagedFile(
                f"expected {name} weights in {file}, got other or damaged content; download the file again"
            ) from error
    return tensors, digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _weight_files(directory: Path, name: str) -> list[Path]:
    for file in WEIGHT_FILES:
        parts = read_json(directory / f"{file}.index.json").get("weight_map", {}).values()
        if parts or (directory / file).is_file():
            return [directory / Path(part).name for part in sorted(set(parts)) or [file]]
    raise InvalidInput(
        f"expected {' or '.join(WEIGHT_FILES)} in {directory} for {name}, found neither; "
        "give the directory of the public checkpoint, or the path of a state-dict file"
    )


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Named tensors only: neither format can execute code here."""
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
    stored = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(stored, Mapping) and isinstance(stored.get("state_dict"), Mapping):
        stored = stored["state_dict"]  # a checkpoint of a trainer
    return {str(name): value for name, value in stored.items() if isinstance(value, Tensor)}


def check_tensors(
    module: nn.Module,
    what: str,
    missing: Iterable[str],
    unexpected: Iterable[str],
    mismatched: Iterable[tuple[str, Iterable[int], Iterable[int]]],
) -> None:
    """Refuse a checkpoint that lacks a tensor or is of another network; tensors of heads are ignored.

    `mismatched` are names with the shape in the checkpoint and in the module.
    """
    prefixes = tuple(f"{child}." for child, _ in module.named_children())
    problems = [f"{key!r}, which it does not have" for key in sorted(unexpected) if key.startswith(prefixes)]
    # batches are counted in new files only, and the counter is not used
    problems += [f"no tensor for {key!r}" for key in sorted(missing) if not key.endswith("num_batches_tracked")]
    problems += [f"{tuple(got)} for {key!r} and not {tuple(own)}" for key, got, own in sorted(mismatched)]
    if problems:
        raise InvalidInput(f"expected {what}, found {problems[0]}; give a checkpoint of that architecture")


@contextmanager
def _loading(what: str, advice: str) -> Iterator[None]:
    """Errors of transformers on one line, and no progress bars or reports on stderr."""
    from transformers.utils import logging

    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except _LOAD_ERRORS as error:
        raise InvalidInput(f"expected {what}, got {format_error(error)}; {advice}") from error
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


def empty_model(config: Any) -> Any:
    """The model of a config, without memory for its weights."""
    from transformers import AutoModel

    with torch.device("meta"):
        return AutoModel.from_config(config, trust_remote_code=False)


def load_model(config: Any, tensors: Mapping[str, Tensor], what: str) -> Any:
    """The model of a config with these weights, on the CPU; names of older versions of transformers are converted.

    A pooler of a dense layer and tanh (BERT, ViT) is left out: many checkpoints lack it, or have it untrained.
    """
    with _loading(what, "give the directory of an encoder"), torch.random.fork_rng(devices=[]):
        empty = empty_model(config)
        has_pooler = _has_tanh(empty) and "add_pooling_layer" in signature(type(empty)).parameters
        model, loading = type(empty).from_pretrained(
            None,
            config=config,
            state_dict=dict(tensors),
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # they are refused below
            output_loading_info=True,
            **({"add_pooling_layer": False} if has_pooler else {}),
        )
    unexpected = [key.removeprefix(f"{model.base_model_prefix}.") for key in loading["unexpected_keys"]]
    check_tensors(model, what, loading["missing_keys"], unexpected, loading["mismatched_keys"])
    return model


def _has_tanh(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Tanh) for module in model.modules())


@dataclass(frozen=True, slots=True)
class ImageFeatures:
    """Runs a vision encoder and pools what it returns.

    `pooling` is `own`: what the model pools itself, else its class token, else the mean over all positions; or
    `patches`: the mean over the tokens after the class token.
    """

    pooling: str
    fixed_pixels: int  # the size that its position embeddings are for, if they must be interpolated for others
    has_class_token: bool
    has_trained_pooler: bool

    @classmethod
    def of(cls, model: Any, pooling: str = "own") -> "ImageFeatures":
        """How to run this model."""
        pixels = model.config.to_dict().get("image_size", 0)
        interpolates = "interpolate_pos_encoding" in signature(model.forward).parameters
        names = {name.rpartition(".")[2] for name, _ in model.named_parameters()}
        return cls(
            pooling,
            fixed_pixels=(pixels if isinstance(pixels, int) else pixels[0]) if interpolates else 0,
            has_class_token=bool(names & {"cls_token", "class_embedding"}),
            has_trained_pooler=not _has_tanh(model),
        )

    def __call__(self, model: nn.Module, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b p"]:
        is_resized = self.fixed_pixels not in (0, x.shape[-1])
        output = model(pixel_values=x, **({"interpolate_pos_encoding": True} if is_resized else {}))
        hidden: Tensor = output["last_hidden_state"]
        pooled: Tensor | None = output.get("pooler_output") if self.has_trained_pooler else None
        if self.pooling == "patches":
            return hidden[:, 1:].mean(1)
        if pooled is not None:
            return pooled.flatten(1)
        if hidden.ndim == 4:
            return hidden.mean(dim=(2, 3))
        return hidden[:, 0] if self.has_class_token else hidden.mean(1)


@dataclass(frozen=True, slots=True)
class TextFeatures:
    """Runs a text encoder on ids and mask, and pools: `mean` over the unmasked tokens, or the `first` token.

    A large batch is processed in slices of texts of similar length: otherwise most of it would be padding,
    which costs as much time and memory as words.
    """

    pooling: str

    def __call__(self, model: nn.Module, x: Int[Tensor, "b 2 t"]) -> Float[Tensor, "b p"]:
        lengths = x[:, 1].sum(1)
        order = lengths.argsort(stable=True)
        features = []
        for rows in order.split(max(_MIN_SLICE_SIZE, -(-len(x) // _MAX_SLICES))):
            ids, mask = x[rows, :, : int(lengths[rows].max())].unbind(1)
            hidden: Tensor = model(input_ids=ids, attention_mask=mask)["last_hidden_state"]
            weights = mask.to(hidden)[:, :, None]
            mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
            features.append(hidden[:, 0] if self.pooling == "first" else mean)
        return torch.cat(features)[order.argsort()]


def read_image_preprocessor(directory: Path) -> backbone.ImagePreprocessor:
    """The preprocessing by the image processor of a directory.

    Its numbers are read, and the work is done by ours: in batches, and with gradients. Both are compared on an
    image, so a processor that does anything else is refused.
    """
    from transformers import AutoImageProcessor

    options = {"local_files_only": True, "trust_remote_code": False, "backend": "pil"}
    with _loading(f"preprocessor_config.json in {directory}", "copy it from the public checkpoint"):
        processor = AutoImageProcessor.from_pretrained(str(directory), **options)
    advice = "load the model yourself, and give vpdr.Backbone.from_module"
    with _loading(f"an image processor in {directory} that resizes, crops and normalises", advice):
        preprocessor = _preprocessor_from(processor.to_dict())
        image = backbone.example_images(preprocessor.pixels * 5 // 4)[0]
        expected = torch.as_tensor(np.asarray(processor(images=[image])["pixel_values"][0]))
        got = preprocessor.prepare(torch.from_numpy(image).permute(2, 0, 1)[None])[0]
        levels = (got - expected) * got.new_tensor(preprocessor.normalisation.std)[:, None, None]
        if levels.abs().max() > _MAX_DIFFERENCE:
            raise ValueError(f"one that does more ({type(processor).__name__})")
    return preprocessor


def _preprocessor_from(settings: Mapping[str, Any]) -> backbone.ImagePreprocessor:
    levels = 1 / settings["rescale_factor"] if settings.get("do_rescale") else 1.0
    mean, std = (settings["image_mean"], settings["image_std"]) if settings.get("do_normalize") else ([0] * 3, [1] * 3)
    size = settings["size"]
    pixels = size.get("shortest_edge") or size["height"]
    crop = settings["crop_size"]["height"] if settings.get("do_center_crop") else 0
    if settings.get("crop_pct") and not crop and pixels < _OWN_RESIZE_PIXELS:  # the size is that after the crop
        pixels, crop = int(pixels / settings["crop_pct"]), pixels
    return backbone.ImagePreprocessor(
        backbone.Normalisation.from_levels(mean, std, levels),
        pixels if settings.get("do_resize") else crop or pixels,
        crop=crop,
        interpolation=_RESAMPLING[settings.get("resample") or 2],
    )


def read_text_preprocessor(directory: Path, max_tokens: int = 0) -> backbone.TextPreprocessor:
    """The tokeniser of a directory, for texts of at most `max_tokens` (0: as many as the directory states)."""
    from transformers import AutoTokenizer

    what, advice = f"a tokeniser in {directory} (tokenizer.json)", "copy the whole directory of the public checkpoint"
    with _loading(what, advice):
        tokeniser = AutoTokenizer.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
        if len(tokeniser) <= len(tokeniser.all_special_tokens):  # transformers makes an empty one up
            raise ValueError("no vocabulary")
    stated = read_json(directory / "sentence_bert_config.json").get("max_seq_length") or tokeniser.model_max_length
    positions = read_json(directory / "config.json").get("max_position_embeddings", _UNSTATED_LENGTH)
    if stated >= _UNSTATED_LENGTH:
        stated = min(backbone.MAX_TOKENS, positions - 2)  # RoBERTa has two positions more than tokens
    length = max_tokens or min(stated, positions)

    def tokenise(texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = tokeniser(texts, truncation=True, max_length=length)["input_ids"]
        return ids

    return backbone.TextPreprocessor(tokenise, int(tokeniser.pad_token_id or 0))


def _text_pooling(directory: Path) -> str:
    """As a model of sentence-transformers states it, else the mean."""
    stated = read_json(directory / "1_Pooling" / "config.json")
    modes = [key for key, value in stated.items() if key.startswith("pooling_mode_") and value is True]
    mode = str(stated.get("pooling_mode", ", ".join(modes)) or "mean")
    if mode not in _TEXT_POOLINGS:
        raise InvalidInput(
            f"expected pooling by mean or cls in {directory / '1_Pooling'}, got {mode}; load the model yourself, and "
            "give vpdr.Backbone.from_module"
        )
    return _TEXT_POOLINGS[mode]


def load_encoder(directory: Path, name: str) -> backbone.Backbone:
    """The encoder of a directory with its own preprocessing; of a model of images and texts, its vision tower."""
    from transformers import AutoConfig

    advice = "for a model with code of its own, load it yourself and give vpdr.Backbone.from_module"
    with _loading(f"config.json of an encoder of transformers in {directory}", advice):
        config = AutoConfig.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
    config = config.vision_config if "vision_config" in config.sub_configs else config
    tensors, digest = read_weights(directory, name)
    model = load_model(config, tensors, f"weights of {name} in {directory}")
    preprocessor: backbone.Preprocessor
    compute: ImageFeatures | TextFeatures
    if model.main_input_name == "pixel_values":
        preprocessor, compute = read_image_preprocessor(directory), ImageFeatures.of(model)
    elif model.main_input_name == "input_ids":
        preprocessor, compute = read_text_preprocessor(directory), TextFeatures(_text_pooling(directory))
    else:
        raise InvalidInput(f"expected an encoder of images or texts, got one of {model.main_input_name}: {name}")
    settings = {key: value for key, value in config.to_dict().items() if key not in _UNUSED_SETTINGS}
    return backbone.Backbone.from_network(
        Network(model, compute, backbone.example_batch(preprocessor)),
        preprocessor,
        name=name,
        digest=digest,
        origin=str(directory),
        architecture=cache_key(settings, compute),
    )
