"""Where the next stage looks from: centres and radius, computed from public numbers only."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.mechanisms.clipping import clip
from vpdr.mechanisms.rapp.geometry import Geometry
from vpdr.mechanisms.rapp.seen import Seen
from vpdr.prototypes.means import ClassMeans
from vpdr.prototypes.shrinkage import blup
from vpdr.types import Prototypes

_FARTHEST = 1e4  # clip norms from the origin: a centre beyond is a mistake or an attack
_LEAST = 0.1  # of the squared radius that one move of the centres may leave
_IDLE = 0.3  # of the mean count of a class's centres
_FLOOR = 0.02  # of the square of the declared clip norm


def heard_centres(
    heard: Prototypes | None, geometry: Geometry, classes: int, reach: float
) -> Float[Tensor, "c r"]:
    """The last broadcast as one centre a class; the origin where nothing usable was heard.

    The server may have chosen it maliciously. It is public either way, so only its size is limited.
    """
    centres = torch.zeros(classes, geometry.dims[1], dtype=torch.float64)
    if heard is None or heard.vectors.ndim != 2 or heard.vectors.shape[1] != geometry.dims[0]:
        return centres
    known = heard.vectors.isfinite().all(dim=1) & (heard.labels >= 0) & (heard.labels < classes)
    if not bool(known.any()):
        return centres
    mapped = geometry.into(heard.vectors[known].double()).double()
    means = ClassMeans()(mapped, heard.labels[known])
    centres += means.vectors.mean(dim=0)  # a class that nobody mentions is most likely among the others
    centres[means.labels] = means.vectors
    return clip(torch.nan_to_num(centres), _FARTHEST * reach)


def spread_out(centres: Float[Tensor, "c r"], per_class: int, reach: float) -> Float[Tensor, "p r"]:
    """Several centres a class: apart by half a radius along cosine waves, so that Lloyd's steps can begin."""
    if per_class == 1:
        return centres
    return (centres[:, None] + 0.5 * reach * _directions(per_class, centres.shape[1])).flatten(0, 1)


def reseeded(
    centres: Float[Tensor, "p r"], counts: Float[Tensor, " p"], per_class: int, reach: float
) -> Float[Tensor, "p r"]:
    """A centre that (by the noisy counts) nobody is near goes to the busiest one of its class.

    The two are set apart by a quarter of a radius on either side, so that the next stage can divide them.
    """
    if per_class == 1:
        return centres
    away = 0.25 * reach * _directions(per_class, centres.shape[1])
    rows, sizes = centres.reshape(-1, per_class, centres.shape[1]).clone(), counts.reshape(-1, per_class)
    for row, size in zip(rows, sizes, strict=True):
        busiest, idle = int(size.argmax()), int(size.argmin())
        if size[idle] < _IDLE * size.mean():
            row[idle] = row[busiest] + away[idle]
            row[busiest] = row[busiest] - away[idle]
    return rows.flatten(0, 1)


def _directions(count: int, dim: int) -> Float[Tensor, "k r"]:
    """Unit vectors along cosine waves, in pairs of opposite ones."""
    places = torch.arange(dim, dtype=torch.float64) + 0.5
    waves = [torch.cos(math.pi * (number // 2 + 1) * places / dim) for number in range(count)]
    signs = [1 - 2 * (number % 2) for number in range(count)]
    return torch.stack([s * w / w.norm().clamp(min=1e-9) for s, w in zip(signs, waves, strict=True)])


def next_centres(
    seen: Seen, prior: Float[Tensor, "p r"], counts: Float[Tensor, " p"]
) -> Float[Tensor, "p r"]:
    """The broadcast, and of the client's own released deviation from it what is not noise."""
    away = seen.estimate(counts) - prior
    return prior + blup(away[None], seen.variances(counts)[None]).each[0]


def moved_moment(
    seen: Seen, centres: Float[Tensor, "p r"], counts: Float[Tensor, " p"], reach: float
) -> Float[Tensor, ""]:
    """The mean squared distance from the new centres: what they now explain is no longer distance.

    It stays within a public range, so that every radius is one that a stage can be looked at with.
    """
    explained = counts @ (centres - seen.centres).square().sum(dim=1) / counts.sum()
    most = (_FARTHEST * reach) ** 2
    least = min(max(_LEAST * float(seen.moment), _FLOOR * reach**2), most)
    return torch.nan_to_num(seen.moment - explained, nan=most).clamp(least, most)
