"""Coloured grounds without meaning: cloudy fields, stripes and blobs."""

import numpy as np
from jaxtyping import Float, UInt8
from scipy.ndimage import gaussian_filter

# A middle grey is its own negative: on brighter grounds a difference blend would hide the digit.
_BRIGHTEST = 110
_VARIATION = 40
_GRAIN = 4

Field = Float[np.ndarray, "h w"]


def textures(count: int, side: int, draw: np.random.Generator) -> UInt8[np.ndarray, "n h w 3"]:
    """`count` pictures, each of one kind: a field in [0, 1] mixes two variations of one colour."""
    kinds = draw.integers(len(_KINDS), size=count)
    fields = np.stack([_KINDS[kind](side, draw) for kind in kinds])[..., None]
    colour = draw.uniform(0, _BRIGHTEST, size=(count, 1, 1, 3))
    first, second = colour + draw.uniform(-_VARIATION, _VARIATION, size=(2, count, 1, 1, 3))
    grain = draw.normal(0, _GRAIN, size=(count, side, side, 3))
    mixed = first * fields + second * (1 - fields) + grain
    images: UInt8[np.ndarray, "n h w 3"] = np.clip(mixed, 0, 255).astype(np.uint8)
    return images


def _cloud(side: int, draw: np.random.Generator) -> Field:
    noise = _smooth(draw.normal(size=(side, side)), draw.uniform(1.0, 3.0))
    low, high = noise.min(), noise.max()
    field: Field = (noise - low) / (high - low)
    return field


def _stripes(side: int, draw: np.random.Generator) -> Field:
    rows, columns = np.mgrid[:side, :side]
    angle, period, phase = draw.uniform(0, np.pi), draw.uniform(4, 12), draw.uniform(0, 2 * np.pi)
    across = rows * np.sin(angle) + columns * np.cos(angle)
    field: Field = 0.5 + 0.5 * np.sin(2 * np.pi * across / period + phase)
    return field


def _blobs(side: int, draw: np.random.Generator) -> Field:
    noise = _smooth(draw.normal(size=(side, side)), draw.uniform(1.5, 2.5))
    return _smooth((noise > 0).astype(np.float64), 0.6)


def _smooth(field: Field, sigma: float) -> Field:
    smoothed: Field = gaussian_filter(field, sigma=sigma, mode="wrap")
    return smoothed


_KINDS = (_cloud, _stripes, _blobs)
