"""How a benchmark is split among clients: the configuration, the draw, and the split as a file."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vpdr.data.benchmark import Benchmark, LabelledDomain
from vpdr.data.partition import (
    Indices,
    dirichlet_partition,
    floor_with_tolerance,
    match_label_proportions,
    skew_labels,
    split_train_test,
    stratified_subset,
)
from vpdr.errors import InvalidInput
from vpdr.io import write_atomically
from vpdr.rng import Streams
from vpdr.validation import above_0_at_most_1, at_least, at_least_0_below_1, one_of, positive

FORMAT_VERSION = 1
EVEN_CONCENTRATION = 1e6  # a concentration at which every client gets the same share of every class
_PARTS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitConfig:
    """How a benchmark is split among clients.

    Args:
        test_fraction: the fraction of a domain to test on, if it has no official test set.
        train_fraction: the fraction of the remaining samples to train on.
        validation_fraction: the fraction of the remaining samples to validate on; taken from those that are
            not trained on, if they are enough.
        skew: `domain` (each client has samples of one domain), `label` (the same, and each client has its
            own label proportions) or `pooled` (all domains form one pool, which is partitioned with skewed
            labels).
        concentration: the Dirichlet parameter α of the label skew.
        clients: the number of clients that share the pool.
        per_domain: the number of clients that share one domain.
        minimum: the number of samples that a client keeps at least under label skew.
        test: `whole` (all test samples of the domain or pool) or `local` (with the client's own label
            proportions).
        stratified: whether training and test samples have the same label proportions.

    Raises:
        InvalidInput: a setting is out of range.

    >>> SplitConfig(skew="pooled", clients=20, concentration=0.5).test_fraction
    0.2
    """

    test_fraction: float = 0.2
    train_fraction: float = 1.0
    validation_fraction: float = 0.0
    skew: str = "domain"
    concentration: float = 0.1
    clients: int = 20
    per_domain: int = 1
    minimum: int = 10
    test: str = "whole"
    stratified: bool = True

    def __post_init__(self) -> None:
        at_least_0_below_1(test_fraction=self.test_fraction, validation_fraction=self.validation_fraction)
        above_0_at_most_1(train_fraction=self.train_fraction)
        one_of(tuple(_PARTITIONERS), skew=self.skew)
        positive(concentration=self.concentration)
        at_least(1, clients=self.clients, per_domain=self.per_domain)
        at_least(0, minimum=self.minimum)
        one_of(tuple(_TEST_RULES), test=self.test)

    def to_data(self) -> dict[str, Any]:
        """Every setting by its name."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ClientSplit:
    """The rows of the benchmark that one client has; each part is sorted.

    Args:
        client: the name of the client.
        domain: the domain of its samples; None if they come from several domains.
        train: the rows to train on.
        validation: the rows to validate on.
        test: the rows to test on.
    """

    client: str
    domain: str | None
    train: Indices
    validation: Indices
    test: Indices


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Split:
    """The rows of all clients, and a description of the data that these rows refer to.

    Args:
        benchmark: the name of the benchmark.
        domains: the names of its domains.
        sizes: the number of samples of each domain.
        labels_digest: the digest of all labels (see `hash_labels`).
        client_splits: the rows of each client.
    """

    benchmark: str
    domains: tuple[str, ...]
    sizes: tuple[int, ...]
    labels_digest: str
    client_splits: tuple[ClientSplit, ...]

    def check(self, benchmark: Benchmark) -> None:
        """Check that the split was drawn for these data.

        Raises:
            InvalidInput: the name, domains, sizes or labels differ.
        """
        names = tuple(domain.name for domain in benchmark.domains)
        sizes = tuple(len(domain) for domain in benchmark.domains)
        for what, expected, got in (
            ("the benchmark", self.benchmark, benchmark.name),
            ("the domains", self.domains, names),
            ("sizes", self.sizes, sizes),
            ("labels with the digest", self.labels_digest[:12], hash_labels(benchmark)[:12]),
        ):
            if expected != got:
                raise InvalidInput(
                    f"this split was drawn for {what} {_format_value(expected)}, got {_format_value(got)}; "
                    "use the same data, or draw a new split"
                )

    def to_data(self) -> dict[str, Any]:
        """The split as JSON data; rows are written as ranges, `0-3,7`."""
        return {
            "format": FORMAT_VERSION,
            "benchmark": self.benchmark,
            "domains": dict(zip(self.domains, self.sizes, strict=True)),
            "labels": self.labels_digest,
            "clients": {
                client_split.client: {
                    "domain": client_split.domain,
                    **{part: encode_ranges(getattr(client_split, part)) for part in _PARTS},
                }
                for client_split in self.client_splits
            },
        }

    @classmethod
    def from_data(cls, data: Any) -> "Split":
        """The inverse of `to_data`.

        Raises:
            InvalidInput: the data are not those of a split.
        """
        try:
            if data["format"] != FORMAT_VERSION:
                raise InvalidInput(f"expected a split of format {FORMAT_VERSION}, got {data['format']}; draw it again")
            domains = {str(name): int(size) for name, size in data["domains"].items()}
            return cls(
                benchmark=str(data["benchmark"]),
                domains=tuple(domains),
                sizes=tuple(domains.values()),
                labels_digest=str(data["labels"]),
                client_splits=tuple(
                    _client_split_from_data(client, parts, sum(domains.values()))
                    for client, parts in data["clients"].items()
                ),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                "expected a split as `vpdr data manifest` writes it, got something else; draw it again"
            ) from error


def write_split(path: Path, split: Split) -> None:
    """Write a split as JSON."""
    write_atomically(path, json.dumps(split.to_data(), indent=1).encode() + b"\n")


def read_split(path: Path) -> Split:
    """Read a split that `write_split` wrote.

    Raises:
        InvalidInput: the file cannot be read, or is not a split.
    """
    try:
        return Split.from_data(json.loads(Path(path).read_bytes()))
    except OSError as error:
        raise InvalidInput(f"cannot read the split {path}: {error.strerror}; give a file that exists") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInput(f"expected a split as JSON in {path}, got something else; draw it again") from error


def hash_labels(benchmark: Benchmark) -> str:
    """A digest of the labels of all domains, in their order."""
    digest = hashlib.sha256()
    for domain in benchmark.domains:
        digest.update(f"{domain.name}/{len(domain)}/".encode())
        digest.update(domain.labels.astype("<i8").tobytes())
    return digest.hexdigest()


def encode_ranges(rows: Indices) -> str:
    """Sorted rows in short: `0-3,7`."""
    if len(rows) == 0:
        return ""
    edges = np.flatnonzero(np.diff(rows) != 1)
    starts, ends = rows[np.append(0, edges + 1)], rows[np.append(edges, len(rows) - 1)]
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return ",".join(str(start) if start == end else f"{start}-{end}" for start, end in pairs)


def decode_ranges(text: str, total: int) -> Indices:
    """The inverse of `encode_ranges`; rows that are not sorted or not below `total` are refused."""
    rows = np.zeros(0, dtype=np.int64)
    try:
        ranges = [[int(number) for number in run.split("-")] for run in text.split(",") if run]
        if ranges:
            rows = np.concatenate([np.arange(run[0], run[-1] + 1, dtype=np.int64) for run in ranges])
    except ValueError as error:
        raise InvalidInput(f"expected rows such as 0-3,7 in a split, got {text[:40]!r}") from error
    if len(rows) and not (rows[0] >= 0 and rows[-1] < total and np.all(np.diff(rows) > 0)):
        raise InvalidInput(f"expected sorted rows below {total} in a split, got {text[:40]!r}; draw it again")
    return rows


def _client_split_from_data(client: str, parts: Any, total: int) -> ClientSplit:
    train, validation, test = (decode_ranges(parts[name], total) for name in _PARTS)
    return ClientSplit(client=client, domain=parts["domain"], train=train, validation=validation, test=test)


def _format_value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def split_benchmark(benchmark: Benchmark, config: SplitConfig, streams: Streams) -> Split:
    """Draw the training, validation and test rows of each client.

    Args:
        benchmark: the labels to split.
        config: how to split them.
        streams: the random streams to draw from.

    Returns:
        The rows of all clients. No row is trained on by two clients, and none is both trained and tested on.

    Raises:
        InvalidInput: a domain has no training or no test samples, or too few for its clients.

    >>> domain = LabelledDomain(name="photo", labels=np.arange(50) % 5)
    >>> names = tuple("abcde")
    >>> benchmark = Benchmark(name="toy", classes=5, class_names=names, domains=(domain,))
    >>> (client,) = split_benchmark(benchmark, SplitConfig(), Streams(0)).client_splits
    >>> len(client.train), len(client.test)
    (40, 10)
    """
    labels = benchmark.labels
    client_splits = []
    for drawn in _PARTITIONERS[config.skew](benchmark, config, streams):
        train, validation = drawn.train, drawn.train[:0]
        test = _TEST_RULES[config.test](labels, drawn, streams)
        if config.validation_fraction > 0:
            train, validation = _hold_out(labels, drawn, config, streams)
        client_splits.append(replace(drawn, train=train, validation=validation, test=test))
    return Split(
        benchmark=benchmark.name,
        domains=tuple(domain.name for domain in benchmark.domains),
        sizes=tuple(len(domain) for domain in benchmark.domains),
        labels_digest=hash_labels(benchmark),
        client_splits=tuple(client_splits),
    )


def partition_domain(labels: Indices, config: SplitConfig, rng: torch.Generator) -> tuple[Indices, ...]:
    """Partition the training samples of one domain among its clients.

    Args:
        labels: the class of each training sample.
        config: how many clients share the domain, and whether their labels are skewed.
        rng: the generator to draw from.

    Returns:
        The indices of each client.

    Raises:
        InvalidInput: there are too few samples for the clients.
    """
    skewed = config.skew == "label"
    if skewed and config.per_domain == 1:
        return skew_labels([labels], config.concentration, rng, config.minimum)
    if config.per_domain > 1:
        concentration = config.concentration if skewed else EVEN_CONCENTRATION
        return dirichlet_partition(labels, config.per_domain, concentration, rng, config.minimum)
    return (np.arange(len(labels)),)


def _split_domain(domain: LabelledDomain, config: SplitConfig, streams: Streams) -> tuple[Indices, Indices, Indices]:
    """The training rows of a domain, the rows that remain unused, and its test rows."""
    strata = domain.labels if config.stratified else np.zeros_like(domain.labels)
    if domain.official_test is None:
        rng = streams.generator("split", client=domain.name)
        candidates, test = split_train_test(strata, config.test_fraction, rng)
    else:
        test = domain.official_test
        candidates = np.setdiff1d(np.arange(len(domain)), test)
    if len(candidates) == 0 or len(test) == 0:
        raise InvalidInput(
            f"domain {domain.name}: expected training and test samples, "
            f"got {len(candidates)} and {len(test)}; give both parts of the public dataset"
        )
    amount: int | float = config.train_fraction
    if domain.full_train_size is not None:
        size = floor_with_tolerance(config.train_fraction * domain.full_train_size)
        amount = min(len(candidates), max(1, size))
    train = stratified_subset(strata, candidates, amount, streams.generator("keep", client=domain.name))
    return train, np.setdiff1d(candidates, train), test


def _partition_by_domain(benchmark: Benchmark, config: SplitConfig, streams: Streams) -> list[ClientSplit]:
    """Clients of one domain each; their `validation` rows are the unused ones that resemble their own."""
    client_splits, start = [], 0
    for domain in benchmark.domains:
        train, unused, test = _split_domain(domain, config, streams)
        parts = partition_domain(domain.labels[train], config, streams.generator("skew", client=domain.name))
        # With skewed labels, the unused samples are not distributed like the client's own.
        validation = start + unused if config.skew == "domain" else unused[:0]
        for number, part in enumerate(parts, 1):
            name = domain.name if len(parts) == 1 else f"{domain.name}-{number}"
            client_splits.append(
                ClientSplit(
                    client=name, domain=domain.name, train=start + train[part], validation=validation, test=start + test
                )
            )
        start += len(domain)
    return client_splits


def _partition_pool(benchmark: Benchmark, config: SplitConfig, streams: Streams) -> list[ClientSplit]:
    trains, tests, start = [], [], 0
    for domain in benchmark.domains:
        train, _, test = _split_domain(domain, config, streams)
        trains.append(start + train)
        tests.append(start + test)
        start += len(domain)
    train, test = np.concatenate(trains), np.concatenate(tests)
    labels, rng = benchmark.labels[train], streams.generator("skew", client="pool")
    parts = dirichlet_partition(labels, config.clients, config.concentration, rng, config.minimum)
    name = benchmark.domains[0].name if len(benchmark.domains) == 1 else None
    return [
        ClientSplit(client=f"client-{number:03d}", domain=name, train=train[part], validation=train[:0], test=test)
        for number, part in enumerate(parts)
    ]


def _hold_out(
    labels: Indices, client_split: ClientSplit, config: SplitConfig, streams: Streams
) -> tuple[Indices, Indices]:
    """Training and validation rows; unused rows are held out before any training row."""
    train, unused = client_split.train, client_split.validation
    rng = streams.generator("validation", client=client_split.client)
    size = max(1, floor_with_tolerance(config.validation_fraction * (len(train) + len(unused))))
    if len(unused) >= size:
        return train, stratified_subset(labels, unused, size, rng)
    remaining, held_out = split_train_test(labels[train], config.validation_fraction, rng)
    return train[remaining], train[held_out]


def _whole_test(_labels: Indices, client_split: ClientSplit, _streams: Streams) -> Indices:
    return client_split.test


def _local_test(labels: Indices, client_split: ClientSplit, streams: Streams) -> Indices:
    train, test = client_split.train, client_split.test
    rng = streams.generator("local test", client=client_split.client)
    rows: Indices = test[match_label_proportions(labels[test], labels[train], rng)]
    return rows


_PARTITIONERS = {"domain": _partition_by_domain, "label": _partition_by_domain, "pooled": _partition_pool}
_TEST_RULES = {"whole": _whole_test, "local": _local_test}
