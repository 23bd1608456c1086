"""Backbones with their weights: pip-installed, from a folder or a file, from the hub, or random."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vpdr.checks import one_of
from vpdr.encoder.backbone import Backbone
from vpdr.encoder.checkpoints import from_hub, installed, read_weights
from vpdr.encoder.network import Network
from vpdr.encoder.pictures import IMAGENET, Eye, Lens, Normalisation
from vpdr.encoder.registry import BACKBONES, Entry
from vpdr.encoder.renaming import renamed
from vpdr.encoder.tokens import hashed_reader, reader_from
from vpdr.errors import InvalidInput
from vpdr.rng import Streams

RANDOM, HUB = "random", "hub:"
_EMBEDDINGS = ("words.weight", "positions.weight", "types.weight")
NORMALISATIONS: dict[str, Normalisation | None] = {"own": None, "imagenet": IMAGENET}


def load_backbone(
    name: str, weights: str = "", device: str = "cpu", *, pixels: int = 0, normalisation: str = "own"
) -> Backbone:
    """A frozen backbone. `weights`: "" (pip-installed), a folder, a file, `hub:owner/name`, or `random`.

    Only `hub:` ever uses a network. `pixels` 0 is the backbone's own size.
    """
    one_of(tuple(BACKBONES), backbone=name)
    one_of(tuple(NORMALISATIONS), normalisation=normalisation)
    entry = BACKBONES[name]
    with torch.device("meta"):  # nothing is drawn and nothing allocated: every value is loaded
        network = entry.make()
    eye, digest = _drawn(network, name) if weights == RANDOM else _stored(network, name, weights)
    if isinstance(eye, Lens):
        eye = Lens(NORMALISATIONS[normalisation] or eye.normalisation, pixels or eye.pixels)
    network.requires_grad_(False).train(False)
    return Backbone(
        name=name,
        traits=entry.traits,
        network=_placed(network, device),
        eye=eye,
        digest=digest,
        origin=weights or entry.package,
    )


def _stored(network: Network, name: str, weights: str) -> tuple[Eye, str]:
    """Fill the network from a checkpoint; how it sees, and the digest of the file."""
    entry = BACKBONES[name]
    path = _found(entry, name, weights)
    tensors, digest = read_weights(path, name)
    _fill(network, renamed(tensors, entry.rules), name, path)
    digest += _settle(network, path)
    if entry.pixels:
        return Lens(_normalisation(entry, path), entry.pixels), digest
    return reader_from(path if path.is_dir() else path.parent), digest


def _found(entry: Entry, name: str, weights: str) -> Path:
    if weights.startswith(HUB):
        return from_hub(weights.removeprefix(HUB))
    if weights:
        return Path(weights).expanduser()
    if not entry.package:
        raise InvalidInput(
            f"expected weights for {name}, got none; fetch {entry.source} into a folder and give its path, "
            f"or give {HUB}{entry.source} to let it be fetched, or {RANDOM}"
        )
    return installed(entry.package, entry.inside)


def _fill(network: Network, tensors: dict[str, Tensor], name: str, path: Path) -> None:
    """Every tensor of the network from the checkpoint; what else is in there (heads) is left out."""
    wanted = network.state_dict()
    parts = tuple(f"{part}." for part, _ in network.named_children())
    foreign = [key for key in tensors if key.startswith(parts) and key not in wanted]
    if foreign:
        raise InvalidInput(
            f"expected {name} weights in {path}, found {foreign[0]!r}, which it does not have; "
            "give a checkpoint of that architecture"
        )
    for key, empty in wanted.items():
        counter = key.endswith("num_batches_tracked")  # absent from old files, and used by nobody
        value = tensors.get(key, torch.tensor(0) if counter else None)
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
        wanted[key] = value.to(empty.dtype)
    network.load_state_dict(wanted, assign=True)


def _settle(network: Network, path: Path) -> str:
    """Take over the one constant that no tensor tells: checkpoints of one shape differ in it. Its mark."""
    eps = _said(path, "config.json").get("layer_norm_eps")
    norms = [part for part in network.modules() if isinstance(part, nn.LayerNorm) and part.eps != eps]
    if not isinstance(eps, float) or not norms:
        return ""
    for part in norms:
        part.eps = eps
    return f"-{eps:g}"


def _said(path: Path, file: str) -> dict[str, Any]:
    """What a checkpoint's folder tells about it; nothing where there is no such file."""
    try:
        said = json.loads((path / file).read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _normalisation(entry: Entry, path: Path) -> Normalisation:
    """What the checkpoint's folder says about its own pictures, else what is usual for the network."""
    said = _said(path, "preprocessor_config.json")
    try:
        (r, g, b), (x, y, z) = ([255.0 * float(v) for v in said[key]] for key in ("image_mean", "image_std"))
    except (ValueError, LookupError, TypeError):
        return entry.normalisation
    return Normalisation((r, g, b), (x, y, z))


def _drawn(network: Network, name: str) -> tuple[Eye, str]:
    """Fill the network from a stream of its own: the same values everywhere, good for tests only."""
    entry, streams = BACKBONES[name], Streams(0).apart(f"random weights of {name}")
    network.to_empty(device="cpu")
    hashed = hashlib.sha256()
    for key, value in network.state_dict().items():
        _draw(key, value, network.slope, streams.draw(key))
        hashed.update(value.numpy().tobytes())
    words = network.state_dict().get("words.weight")
    eye = Lens(entry.normalisation, entry.pixels) if words is None else hashed_reader(len(words))
    return eye, f"{RANDOM}-{hashed.hexdigest()}"


def _draw(key: str, value: Tensor, slope: float, rng: torch.Generator) -> None:
    if value.ndim == 3 or key in _EMBEDDINGS:
        nn.init.trunc_normal_(value, std=0.02, generator=rng)
    elif value.ndim > 1:
        nn.init.kaiming_uniform_(value, a=slope, generator=rng)
    else:
        value.fill_(1.0 if key.endswith(("weight", "running_var")) else 0.0)


def _placed(network: Network, device: str) -> Network:
    """On its device, where numbers are as exact as on a processor."""
    try:
        where = torch.device(device)
        if where.type == "cuda":
            torch.backends.cudnn.allow_tf32 = False
        return network.to(where)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(
            f"expected a device that this machine has, got {device!r}; use cpu, or cuda where there is one"
        ) from error
