"""The door of the server: uploads are checked, then become one set that knows who sent what."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.frameworks.base import Now
from vpdr.types import Prototypes


@dataclass(frozen=True, slots=True)
class Pool:
    """All prototypes of a round, with the position of the upload and the public share of each."""

    prototypes: Prototypes
    owners: Int[Tensor, " p"]
    shares: Float[Tensor, " p"]


def pool(uploads: Sequence[Prototypes], now: Now) -> Pool:
    """The union of all uploads, in double precision and in the given order; empty if nobody sent any."""
    if now.weights.shape != (len(uploads), now.classes):
        shape = list(now.weights.shape)
        raise InvalidInput(f"expected weights of shape [{len(uploads)}, {now.classes}], got {shape}")
    if not bool((now.weights >= 0).all() & now.weights.isfinite().all()):
        raise InvalidInput("weights of clients must be finite and not negative")
    for position, upload in enumerate(uploads):
        _check(upload, position, now)
    if not uploads:
        nobody = torch.zeros(0, dtype=torch.int64)
        empty = Prototypes(torch.zeros(0, now.dim, dtype=torch.float64), nobody)
        return Pool(empty, nobody, torch.zeros(0, dtype=torch.float64))
    owners = torch.arange(len(uploads)).repeat_interleave(torch.tensor([len(u.labels) for u in uploads]))
    joined = Prototypes.concat(uploads)
    noise = None if joined.variances is None else joined.variances.double()
    together = Prototypes(joined.vectors.double(), joined.labels, noise)
    return Pool(together, owners, now.weights[owners, joined.labels].double())


def _check(upload: Prototypes, position: int, now: Now) -> None:
    """Refuse what would spoil the broadcast for everybody."""
    who = f"upload {position}"
    if upload.vectors.shape != (len(upload.labels), now.dim):
        expected, found = [len(upload.labels), now.dim], list(upload.vectors.shape)
        raise InvalidInput(f"{who}: expected prototypes of shape {expected}, got {found}")
    if not bool(upload.vectors.isfinite().all()):
        raise InvalidInput(
            f"{who}: prototypes hold NaN or infinity; they would spoil every client's broadcast"
        )
    if bool(((upload.labels < 0) | (upload.labels >= now.classes)).any()):
        raise InvalidInput(f"{who}: labels must lie in [0, {now.classes}), got {upload.labels.tolist()}")
    if upload.variances is not None and not bool((upload.variances >= 0).all()):
        raise InvalidInput(f"{who}: published variances must not be negative")
