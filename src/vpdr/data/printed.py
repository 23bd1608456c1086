"""Printed digits: drawn from fonts, in colour, each a little turned, shifted and scaled."""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int64, UInt8

from vpdr.errors import InvalidInput

# The text faces among matplotlib's fonts; its symbol faces have no digits or old-style ones.
FACES = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-Bold"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)

_OVERSAMPLING = 3
_LEAST_CONTRAST = 80


def printed_digits(
    count: int, side: int, folder: Path, draw: np.random.Generator
) -> tuple[UInt8[np.ndarray, "n h w 3"], Int64[np.ndarray, " n"]]:
    """`count` pictures with their labels, every digit equally often (to one)."""
    labels = np.arange(count, dtype=np.int64) % 10
    paths = [folder / f"{face}.ttf" for face in FACES]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise InvalidInput(
            f"expected the font {missing[0]} in {folder}, found none; run pip install 'vpdr[demo]'"
        )
    faces = draw.integers(len(paths), size=count)
    images = [_drawn(str(label), paths[face], side, draw) for label, face in zip(labels, faces, strict=True)]
    return np.stack(images), labels


def _drawn(text: str, path: Path, side: int, draw: np.random.Generator) -> UInt8[np.ndarray, "h w 3"]:
    """One digit, drawn large and reduced so that its edges are smooth."""
    # Pillow comes with the optional fonts, so it is imported where it is used.
    from PIL import Image, ImageDraw, ImageFont

    large = side * _OVERSAMPLING
    font = ImageFont.truetype(str(path), int(large * draw.uniform(0.55, 0.95)))
    mask = Image.new("L", (large, large))
    centre = large / 2 + draw.uniform(-0.1, 0.1, size=2) * large
    ImageDraw.Draw(mask).text((centre[0], centre[1]), text, fill=255, font=font, anchor="mm")
    mask = mask.rotate(draw.uniform(-20, 20), resample=Image.Resampling.BILINEAR)
    mask = mask.resize((side, side), Image.Resampling.BOX)
    ink, paper = _colours(draw)
    cover = np.asarray(mask, dtype=np.float64)[..., None] / 255
    image: UInt8[np.ndarray, "h w 3"] = (ink * cover + paper * (1 - cover)).round().astype(np.uint8)
    return image


def _colours(draw: np.random.Generator) -> Float[np.ndarray, "2 3"]:
    """Ink and a darker paper, drawn again until the difference is enough to read."""
    while True:
        pair = draw.uniform(0, 255, size=(2, 3))
        if pair[0].mean() - pair[1].mean() >= _LEAST_CONTRAST:
            return pair
