"""Splits and partitions of samples as index arithmetic over their labels."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int64

from vpdr.errors import InvalidInput

_MAX_DRAWS = 10_000
_TOLERANCE = 1e-9  # 0.29 * 100 is below 29 only by a rounding error

Indices = Int64[np.ndarray, " _"]


def numpy_generator(rng: torch.Generator) -> np.random.Generator:
    """A numpy generator seeded from a torch generator."""
    return np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=rng)))


def split_train_test(labels: Indices, test_fraction: float, rng: torch.Generator) -> tuple[Indices, Indices]:
    """A stratified split into training and test indices.

    The test part has `floor(test_fraction * n)` samples, and each class contributes its share rounded up or
    down. A class with two samples or more is in both parts, even if that changes the total; the only sample
    of a class is for training.

    Args:
        labels: the class of each sample.
        test_fraction: the fraction of samples to test on, in (0, 1).
        rng: the generator to draw from.

    Returns:
        The sorted indices of the training and of the test samples.

    Raises:
        InvalidInput: the fraction would leave one part empty.
    """
    if not 0 < test_fraction < 1:
        raise InvalidInput(f"test_fraction must lie in (0, 1), got {test_fraction}; one part would be empty, use 0.2")
    sizes = _class_sizes(labels)
    counts = _round_to_total(sizes * test_fraction, floor_with_tolerance(len(labels) * test_fraction))
    counts = np.clip(counts, np.minimum(1, sizes // 2), np.maximum(sizes - 1, 0))
    test = _sample_per_class(labels, np.arange(len(labels)), counts, numpy_generator(rng))
    return np.setdiff1d(np.arange(len(labels)), test), test


def stratified_subset(labels: Indices, indices: Indices, amount: int | float, rng: torch.Generator) -> Indices:
    """A subset of `indices` with the same label proportions, each class rounded up or down.

    Args:
        labels: the class of each sample.
        indices: the samples to choose from.
        amount: a number of samples if it is an integer; a fraction of `indices` in (0, 1] if it is a float,
            rounded down to at least one sample.
        rng: the generator to draw from.

    Returns:
        The sorted indices of the subset.

    Raises:
        InvalidInput: the amount is out of range.
    """
    total = len(indices)
    if isinstance(amount, float):
        if not 0 < amount <= 1:
            raise InvalidInput(f"a fraction to keep must lie in (0, 1], got {amount}; for a count give an integer")
        amount = min(total, max(1, floor_with_tolerance(total * amount)))
    if not 0 <= amount <= total:
        raise InvalidInput(f"expected to keep between 0 and {total} samples, got {amount}; ask for fewer")
    quotas = _class_sizes(labels[indices]) * (amount / max(total, 1))
    return _sample_per_class(labels, indices, _round_to_total(quotas, amount), numpy_generator(rng))


def dirichlet_partition(
    labels: Indices, clients: int, concentration: float, rng: torch.Generator, minimum: int = 10
) -> tuple[Indices, ...]:
    """A partition of all samples among clients, each class by its own draw from Dir(concentration).

    Shares are rounded by largest remainders. The partition is drawn again until each client has `minimum`
    samples.

    Args:
        labels: the class of each sample.
        clients: the number of clients.
        concentration: the parameter of the Dirichlet distribution; lower is more skewed.
        rng: the generator to draw from.
        minimum: the number of samples that each client gets at least.

    Returns:
        The sorted indices of each client.

    Raises:
        InvalidInput: an argument is out of range, or no draw gives each client enough samples.

    >>> rng = torch.Generator().manual_seed(0)
    >>> parts = dirichlet_partition(np.arange(100) % 4, 3, 1.0, rng)
    >>> sum(len(part) for part in parts), min(len(part) for part in parts) >= 10
    (100, True)
    """
    _check_concentration(concentration)
    if clients < 1 or clients * minimum > len(labels):
        raise InvalidInput(
            f"expected at least one client and {minimum} samples for each, got {clients} clients "
            f"and {len(labels)} samples; lower the number of clients or the minimum"
        )
    generator, sizes = numpy_generator(rng), _class_sizes(labels)
    for _ in range(_MAX_DRAWS):
        shares = generator.dirichlet(np.full(clients, concentration), size=len(sizes))
        counts = np.stack([_round_to_total(share * size, int(size)) for share, size in zip(shares, sizes, strict=True)])
        if counts.sum(axis=0).min() >= minimum:
            return _assign(labels, counts, generator)
    raise InvalidInput(
        f"expected {minimum} samples or more for each of {clients} clients, got fewer in all {_MAX_DRAWS} "
        f"draws at concentration {concentration}; raise the concentration or lower the minimum"
    )


def skew_labels(
    labels_by_client: Sequence[Indices], concentration: float, rng: torch.Generator, minimum: int = 10
) -> tuple[Indices, ...]:
    """Label skew for clients that have their samples already: the subset that each client keeps.

    A client draws p ~ Dir(concentration) over the classes that it has and keeps the largest set with these
    proportions: m = floor(min over classes of n_c / p_c) samples, m p_c of class c, by largest remainders.
    If m is below `minimum` (or below all samples of a smaller client), m is raised to that; an exhausted
    class then contributes all its samples, and the others fill up in descending order of p.

    Args:
        labels_by_client: the labels of each client's samples.
        concentration: the parameter of the Dirichlet distribution; lower is more skewed.
        rng: the generator to draw from.
        minimum: the number of samples that each client keeps at least, if it has so many.

    Returns:
        For each client the sorted indices into its own samples.

    Raises:
        InvalidInput: the concentration is out of range, or a client has no samples.
    """
    _check_concentration(concentration)
    generator = numpy_generator(rng)
    subsets = []
    for client, labels in enumerate(labels_by_client):
        if len(labels) == 0:
            raise InvalidInput(f"expected samples for client {client}, got none; leave this client out")
        sizes = _class_sizes(labels)
        present = np.flatnonzero(sizes)
        shares = np.zeros(len(sizes))
        shares[present] = generator.dirichlet(np.full(len(present), concentration))
        counts = _skewed_counts(shares, sizes, min(max(minimum, 1), len(labels)))
        subsets.append(_sample_per_class(labels, np.arange(len(labels)), counts, generator))
    return tuple(subsets)


def match_label_proportions(labels: Indices, target_labels: Indices, rng: torch.Generator) -> Indices:
    """The largest subset with the class proportions of `target_labels`, by largest remainders."""
    sizes = _class_sizes(labels)
    target_sizes = np.bincount(target_labels, minlength=len(sizes))[: len(sizes)]
    shares = np.where(sizes > 0, target_sizes, 0).astype(np.float64)
    if not shares.any():
        return np.zeros(0, dtype=np.int64)
    counts = _skewed_counts(shares / shares.sum(), sizes, 1)
    return _sample_per_class(labels, np.arange(len(labels)), counts, numpy_generator(rng))


def _skewed_counts(shares: Float[np.ndarray, " c"], sizes: Indices, minimum: int) -> Indices:
    present = shares > _TOLERANCE
    largest = floor_with_tolerance(float(np.min(sizes[present] / shares[present])))
    total = min(max(largest, minimum), int(sizes.sum()))
    counts: Indices = np.minimum(_round_to_total(shares * total, total), sizes)
    for label in np.argsort(-shares, kind="stable"):
        counts[label] += min(sizes[label] - counts[label], total - counts.sum())
    return counts


def _check_concentration(concentration: float) -> None:
    if not 0 < concentration < float("inf"):
        raise InvalidInput(f"concentration must be positive and finite, got {concentration}; use 0.1 to 100")


def _class_sizes(labels: Indices) -> Indices:
    sizes: Indices = np.bincount(labels).astype(np.int64)
    return sizes


def floor_with_tolerance(value: float) -> int:
    """Round down, up to the rounding error of a float."""
    return int(value + _TOLERANCE)


def _round_to_total(quotas: Float[np.ndarray, " c"], total: int) -> Indices:
    """Integers next to `quotas` that add up to `total`: the largest remainders are rounded up."""
    counts = np.floor(quotas + _TOLERANCE).astype(np.int64)
    order = np.argsort(counts - quotas, kind="stable")
    counts[order[: max(total - counts.sum(), 0)]] += 1
    return counts


def _sample_per_class(labels: Indices, indices: Indices, counts: Indices, rng: np.random.Generator) -> Indices:
    """`counts[c]` of the `indices` of each class c, sorted."""
    classes = labels[indices]
    parts = [rng.permutation(indices[classes == label])[:count] for label, count in enumerate(counts)]
    return np.sort(np.concatenate(parts)) if parts else indices[:0]


def _assign(labels: Indices, counts: Int64[np.ndarray, "c m"], rng: np.random.Generator) -> tuple[Indices, ...]:
    """A partition in which client m gets `counts[c, m]` samples of class c."""
    parts: list[list[Indices]] = [[] for _ in range(counts.shape[1])]
    for label, row in enumerate(counts):
        rows = rng.permutation(np.flatnonzero(labels == label))
        for part, piece in zip(parts, np.split(rows, np.cumsum(row)[:-1]), strict=True):
            part.append(piece)
    return tuple(np.sort(np.concatenate(part)) for part in parts)
