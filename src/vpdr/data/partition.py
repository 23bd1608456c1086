"""Which samples go where: index arithmetic over labels, without touching a sample."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int64

from vpdr.errors import InvalidInput

_REDRAWS = 10_000

# A share such as 0.29 * 100 is a hair below a whole number only because it is a float.
_TOLERANCE = 1e-9

Indices = Int64[np.ndarray, " _"]


def numpy_generator(rng: torch.Generator) -> np.random.Generator:
    """A numpy generator that continues a named stream."""
    return np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=rng)))


def split_train_test(labels: Indices, test_fraction: float, rng: torch.Generator) -> tuple[Indices, Indices]:
    """Training and test indices, each class divided alike.

    The test part has `floor(test_fraction * n)` samples, and each class gives its share rounded up or down.
    A class with two samples or more is on both sides, even where that changes the total; the only sample
    of a class is for training.
    """
    if not 0 < test_fraction < 1:
        raise InvalidInput(
            f"test_fraction must lie in (0, 1), got {test_fraction}; one part would be empty, use 0.2"
        )
    sizes = _sizes(labels)
    tested = _rounded(sizes * test_fraction, whole_part(len(labels) * test_fraction))
    tested = np.clip(tested, np.minimum(1, sizes // 2), np.maximum(sizes - 1, 0))
    test = _pick(labels, np.arange(len(labels)), tested, numpy_generator(rng))
    return np.setdiff1d(np.arange(len(labels)), test), test


def keep(labels: Indices, indices: Indices, amount: int | float, rng: torch.Generator) -> Indices:
    """A part of `indices` with the label proportions of the whole, each class rounded up or down.

    An integer `amount` is a number of samples, a float a fraction of `indices` (rounded down, at least one).
    """
    total = len(indices)
    if isinstance(amount, float):
        if not 0 < amount <= 1:
            raise InvalidInput(
                f"a fraction to keep must lie in (0, 1], got {amount}; for a count give an integer"
            )
        amount = min(total, max(1, whole_part(total * amount)))
    if not 0 <= amount <= total:
        raise InvalidInput(f"expected to keep between 0 and {total} samples, got {amount}; ask for fewer")
    quotas = _sizes(labels[indices]) * (amount / max(total, 1))
    return _pick(labels, indices, _rounded(quotas, amount), numpy_generator(rng))


def dirichlet(
    labels: Indices, clients: int, concentration: float, rng: torch.Generator, minimum: int = 10
) -> tuple[Indices, ...]:
    """Every sample to exactly one client: each class is divided by its own draw from Dir(concentration).

    Shares are rounded by largest remainders. The whole division is drawn again until each client has
    `minimum` samples.
    """
    _check_concentration(concentration)
    if clients < 1 or clients * minimum > len(labels):
        raise InvalidInput(
            f"expected at least one client and {minimum} samples for each, got {clients} clients "
            f"and {len(labels)} samples; lower the number of clients or the minimum"
        )
    draw, sizes = numpy_generator(rng), _sizes(labels)
    for _ in range(_REDRAWS):
        shares = draw.dirichlet(np.full(clients, concentration), size=len(sizes))
        counts = np.stack([_rounded(p * size, int(size)) for p, size in zip(shares, sizes, strict=True)])
        if counts.sum(axis=0).min() >= minimum:
            return _deal(labels, counts, draw)
    raise InvalidInput(
        f"expected {minimum} samples or more for each of {clients} clients, got fewer in all {_REDRAWS} "
        f"draws at concentration {concentration}; raise the concentration or lower the minimum"
    )


def skew_labels(
    labels_by_client: Sequence[Indices], concentration: float, rng: torch.Generator, minimum: int = 10
) -> tuple[Indices, ...]:
    """Label skew on top of domains: the indices that each client keeps, within its own labels.

    A client draws p ~ Dir(concentration) over the classes that it has and keeps the largest set with those
    proportions: m = floor(min over classes of n_c / p_c) samples, m p_c of class c, by largest remainders.
    Where m is below `minimum` (or below all samples of a smaller client), m is raised to that; a class
    that has run out then gives all it has, and the others fill up in the order of their p.
    """
    _check_concentration(concentration)
    draw = numpy_generator(rng)
    kept = []
    for client, labels in enumerate(labels_by_client):
        if len(labels) == 0:
            raise InvalidInput(f"expected samples for client {client}, got none; leave this client out")
        sizes = _sizes(labels)
        present = np.flatnonzero(sizes)
        shares = np.zeros(len(sizes))
        shares[present] = draw.dirichlet(np.full(len(present), concentration))
        counts = _skewed(shares, sizes, min(max(minimum, 1), len(labels)))
        kept.append(_pick(labels, np.arange(len(labels)), counts, draw))
    return tuple(kept)


def alike(labels: Indices, wanted: Indices, rng: torch.Generator) -> Indices:
    """The largest part of `labels` that has the class proportions of `wanted`, by largest remainders."""
    sizes = _sizes(labels)
    shares = np.where(sizes > 0, np.bincount(wanted, minlength=len(sizes))[: len(sizes)], 0).astype(
        np.float64
    )
    if not shares.any():
        return np.zeros(0, dtype=np.int64)
    counts = _skewed(shares / shares.sum(), sizes, 1)
    return _pick(labels, np.arange(len(labels)), counts, numpy_generator(rng))


def _skewed(shares: Float[np.ndarray, " c"], sizes: Indices, least: int) -> Indices:
    drawn = shares > _TOLERANCE
    exact = whole_part(float(np.min(sizes[drawn] / shares[drawn])))
    total = min(max(exact, least), int(sizes.sum()))
    counts: Indices = np.minimum(_rounded(shares * total, total), sizes)
    for label in np.argsort(-shares, kind="stable"):
        counts[label] += min(sizes[label] - counts[label], total - counts.sum())
    return counts


def _check_concentration(concentration: float) -> None:
    if not 0 < concentration < float("inf"):
        raise InvalidInput(f"concentration must be positive and finite, got {concentration}; use 0.1 to 100")


def _sizes(labels: Indices) -> Indices:
    sizes: Indices = np.bincount(labels).astype(np.int64)
    return sizes


def whole_part(value: float) -> int:
    """Rounded down, but for the error of a float."""
    return int(value + _TOLERANCE)


def _rounded(quotas: Float[np.ndarray, " c"], total: int) -> Indices:
    """Whole numbers next to `quotas` that add up to `total`: the largest remainders are rounded up."""
    whole = np.floor(quotas + _TOLERANCE).astype(np.int64)
    order = np.argsort(whole - quotas, kind="stable")
    whole[order[: max(total - whole.sum(), 0)]] += 1
    return whole


def _pick(labels: Indices, indices: Indices, counts: Indices, draw: np.random.Generator) -> Indices:
    """`counts[c]` of the `indices` of each class c, sorted."""
    own = labels[indices]
    parts = [draw.permutation(indices[own == label])[:count] for label, count in enumerate(counts)]
    return np.sort(np.concatenate(parts)) if parts else indices[:0]


def _deal(
    labels: Indices, counts: Int64[np.ndarray, "c m"], draw: np.random.Generator
) -> tuple[Indices, ...]:
    """Row c of `counts` says how many samples of class c each client gets."""
    parts: list[list[Indices]] = [[] for _ in range(counts.shape[1])]
    for label, row in enumerate(counts):
        mine = draw.permutation(np.flatnonzero(labels == label))
        for part, piece in zip(parts, np.split(mine, np.cumsum(row)[:-1]), strict=True):
            part.append(piece)
    return tuple(np.sort(np.concatenate(part)) for part in parts)
