"""Labelled samples grouped by domain, and their split among clients: index arithmetic, configuration, file."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vpdr.io import write_atomically
from vpdr.rng import Streams
from vpdr.types import Float, Float32, Int64, UInt8
from vpdr.validation import InvalidInput, above_0_at_most_1, at_least, at_least_0_below_1, one_of, positive

Indices = Int64[np.ndarray, " _"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledDomain:
    """The labels of one domain: enough to split it among clients."""

    name: str
    labels: Int64[np.ndarray, " n"]
    official_test: Int64[np.ndarray, " t"] | None = None  # rows of the published test set; None: it is drawn
    full_train_size: int | None = None  # of the published training set, if these samples are only a part of it

    def __len__(self) -> int:
        return len(self.labels)

    def contents(self) -> Iterable[bytes]:
        """What identifies each sample, whatever its place is."""
        raise InvalidInput(f"domain {self.name}: a split by content needs the samples, got labels; set identity=row")

    def _check_one_label_each(self, kind: str, samples: int) -> None:
        if samples != len(self.labels):
            raise InvalidInput(
                f"domain {self.name}: expected one label for each {kind}, "
                f"got {samples} {kind}s and {len(self.labels)} labels; check how it was read"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageDomain(LabelledDomain):
    """All images of one domain in RGB, not yet split into training and test; they may be mapped from disk."""

    images: UInt8[np.ndarray, "n h w 3"]

    def __post_init__(self) -> None:
        self._check_one_label_each("image", len(self.images))

    def contents(self) -> Iterable[bytes]:
        """The pixels of each image."""
        return (image.tobytes() for image in self.images)


@dataclass(frozen=True, kw_only=True, eq=False)
class TextDomain(LabelledDomain):
    """All texts of one domain, not yet split into training and test."""

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        self._check_one_label_each("text", len(self.texts))

    def contents(self) -> Iterable[bytes]:
        """The characters of each text."""
        return (text.encode(errors="surrogatepass") for text in self.texts)


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureDomain(LabelledDomain):
    """The features of all samples of one domain by a frozen encoder outside of vpdr."""

    features: Float32[np.ndarray, "n d"]

    def __post_init__(self) -> None:
        self._check_one_label_each("feature", len(self.features))

    def contents(self) -> Iterable[bytes]:
        """The numbers of each feature."""
        return (row.tobytes() for row in self.features)


@dataclass(frozen=True, kw_only=True, eq=False)
class Benchmark:
    """Several domains that share one set of classes.

    >>> domain = LabelledDomain(name="photo", labels=np.array([0, 1, 1]))
    >>> Benchmark(name="toy", classes=2, class_names=("cat", "dog"), domains=(domain,)).labels
    array([0, 1, 1])
    """

    name: str
    classes: int
    class_names: tuple[str, ...]
    domains: tuple[LabelledDomain, ...]  # in the order of the clients
    warnings: tuple[str, ...] = ()  # what the user should know about the data

    def __post_init__(self) -> None:
        if len(self.class_names) != self.classes:
            raise InvalidInput(
                f"benchmark {self.name}: expected {self.classes} class names, got {len(self.class_names)}; "
                "give one name for each class"
            )
        for domain in self.domains:
            if len(domain) and not 0 <= domain.labels.min() <= domain.labels.max() < self.classes:
                raise InvalidInput(
                    f"benchmark {self.name}: expected labels from 0 to {self.classes - 1}, got "
                    f"{domain.labels.min()} to {domain.labels.max()} in {domain.name}; check how it was read"
                )

    def check_every_class(self) -> None:
        """Refuse a class without samples to train on: a mistake, unless it is private which classes there are."""
        for label in np.setdiff1d(np.arange(self.classes), self.labels):
            raise InvalidInput(
                f"benchmark {self.name}: class {self.class_names[label]} has no samples in any domain; "
                "ask for more samples, or check how the data were read"
            )
        no_rows = np.zeros(0, dtype=np.int64)
        tests = [no_rows if each.official_test is None else each.official_test for each in self.domains]
        trained = [np.delete(each.labels, rows) for each, rows in zip(self.domains, tests, strict=True)]
        for label in np.setdiff1d(np.arange(self.classes), np.concatenate(trained)):
            raise InvalidInput(
                f"benchmark {self.name}: class {self.class_names[label]} has test samples only; move some of them "
                "to the training samples, or remove it"
            )

    @property
    def labels(self) -> Int64[np.ndarray, " n"]:
        """The labels of all domains, concatenated: a row of the benchmark is an index into this array."""
        return np.concatenate([domain.labels for domain in self.domains])

    @property
    def image_domains(self) -> tuple[ImageDomain, ...]:
        """The domains of a benchmark of images; another one is refused."""
        domains = tuple(domain for domain in self.domains if isinstance(domain, ImageDomain))
        if len(domains) != len(self.domains):
            raise InvalidInput(f"benchmark {self.name}: expected images, got something else; use another benchmark")
        return domains

    @property
    def text_domains(self) -> tuple[TextDomain, ...]:
        """The domains of a benchmark of texts; another one is refused."""
        domains = tuple(domain for domain in self.domains if isinstance(domain, TextDomain))
        if len(domains) != len(self.domains):
            raise InvalidInput(f"benchmark {self.name}: expected texts, got something else; use another benchmark")
        return domains


FORMAT_VERSION = 1
EVEN_CONCENTRATION = 1e6  # a concentration at which every client gets the same share of every class
SKEWS, TEST_RULES = ("domain", "label", "pooled"), ("whole", "local")
ASSIGNMENTS, IDENTITIES = ("proportional", "sample_hash"), ("row", "content")
_PARTS = ("train", "validation", "test")
_MAX_DRAWS = 10_000
_TOLERANCE = 1e-9  # 0.29 * 100 is below 29 only by a rounding error


def numpy_generator(rng: torch.Generator) -> np.random.Generator:
    """A numpy generator seeded from a torch generator."""
    return np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=rng)))


def split_train_test(labels: Indices, test_fraction: float, rng: torch.Generator) -> tuple[Indices, Indices]:
    """A stratified split: the sorted indices of the training and of the test samples.

    The test part has `floor(test_fraction * n)` samples, and each class contributes its share rounded up or
    down. A class with two samples or more is in both parts, even if that changes the total; the only sample
    of a class is for training.
    """
    if not 0 < test_fraction < 1:
        raise InvalidInput(f"test_fraction must lie in (0, 1), got {test_fraction}; one part would be empty, use 0.2")
    sizes = np.bincount(labels)
    counts = _round_to_total(sizes * test_fraction, _floor_with_tolerance(len(labels) * test_fraction))
    counts = np.clip(counts, np.minimum(1, sizes // 2), np.maximum(sizes - 1, 0))
    test = _sample_per_class(labels, np.arange(len(labels)), counts, numpy_generator(rng))
    return np.setdiff1d(np.arange(len(labels)), test), test


def stratified_subset(labels: Indices, indices: Indices, amount: int | float, rng: torch.Generator) -> Indices:
    """A sorted subset of `indices` with the same label proportions, each class rounded up or down.

    An integer `amount` is a number of samples; a float is a fraction of `indices` in (0, 1], rounded down to
    at least one sample.
    """
    total = len(indices)
    if isinstance(amount, float):
        if not 0 < amount <= 1:
            raise InvalidInput(f"a fraction to keep must lie in (0, 1], got {amount}; for a count give an integer")
        amount = min(total, max(1, _floor_with_tolerance(total * amount)))
    if not 0 <= amount <= total:
        raise InvalidInput(f"expected to keep between 0 and {total} samples, got {amount}; ask for fewer")
    quotas = np.bincount(labels[indices]) * (amount / max(total, 1))
    return _sample_per_class(labels, indices, _round_to_total(quotas, amount), numpy_generator(rng))


def dirichlet_partition(
    labels: Indices, clients: int, concentration: float, rng: torch.Generator, minimum: int = 10
) -> tuple[Indices, ...]:
    """A partition of all samples among clients, each class by its own draw from Dir(concentration).

    A lower concentration is more skewed. Shares are rounded by largest remainders. The partition is drawn
    again until each client has `minimum` samples. Returns the sorted indices of each client.

    >>> rng = torch.Generator().manual_seed(0)
    >>> parts = dirichlet_partition(np.arange(100) % 4, 3, 1.0, rng)
    >>> sum(len(part) for part in parts), min(len(part) for part in parts) >= 10
    (100, True)
    """
    positive(concentration=concentration)
    if clients < 1 or clients * minimum > len(labels):
        raise InvalidInput(
            f"expected at least one client and {minimum} samples for each, got {clients} clients "
            f"and {len(labels)} samples; lower the number of clients or the minimum"
        )
    generator, sizes = numpy_generator(rng), np.bincount(labels)
    for _ in range(_MAX_DRAWS):
        shares = generator.dirichlet(np.full(clients, concentration), size=len(sizes))
        counts = np.stack([_round_to_total(share * size, int(size)) for share, size in zip(shares, sizes, strict=True)])
        if counts.sum(axis=0).min() >= minimum:
            break
    else:
        raise InvalidInput(
            f"expected {minimum} samples or more for each of {clients} clients, got fewer in all {_MAX_DRAWS} "
            f"draws at concentration {concentration}; raise the concentration or lower the minimum"
        )
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for label, class_counts in enumerate(counts):
        rows = generator.permutation(np.flatnonzero(labels == label))
        for part, piece in zip(parts, np.split(rows, np.cumsum(class_counts)[:-1]), strict=True):
            part.append(piece)
    return tuple(np.sort(np.concatenate(part)) for part in parts)


def skew_labels(
    labels_by_client: Sequence[Indices], concentration: float, rng: torch.Generator, minimum: int = 10
) -> tuple[Indices, ...]:
    """Label skew for clients that have their samples already: sorted indices of those that each client keeps.

    A client draws p ~ Dir(concentration) over the classes that it has and keeps the largest set with these
    proportions: m = floor(min over classes of n_c / p_c) samples, m p_c of class c, by largest remainders.
    If m is below `minimum` (or below all samples of a smaller client), m is raised to that; an exhausted
    class then contributes all its samples, and the others fill up in descending order of p.
    """
    positive(concentration=concentration)
    generator = numpy_generator(rng)
    subsets = []
    for client, labels in enumerate(labels_by_client):
        if len(labels) == 0:
            raise InvalidInput(f"expected samples for client {client}, got none; leave this client out")
        sizes = np.bincount(labels)
        present = np.flatnonzero(sizes)
        shares = np.zeros(len(sizes))
        shares[present] = generator.dirichlet(np.full(len(present), concentration))
        counts = _skewed_counts(shares, sizes, min(max(minimum, 1), len(labels)))
        subsets.append(_sample_per_class(labels, np.arange(len(labels)), counts, generator))
    return tuple(subsets)


def _match_label_proportions(labels: Indices, target_labels: Indices, rng: torch.Generator) -> Indices:
    """The largest subset with the class proportions of `target_labels`, by largest remainders."""
    sizes = np.bincount(labels)
    target_sizes = np.bincount(target_labels, minlength=len(sizes))[: len(sizes)]
    shares = np.where(sizes > 0, target_sizes, 0).astype(np.float64)
    if not shares.any():
        return np.zeros(0, dtype=np.int64)
    counts = _skewed_counts(shares / shares.sum(), sizes, 1)
    return _sample_per_class(labels, np.arange(len(labels)), counts, numpy_generator(rng))


def _skewed_counts(shares: Float[np.ndarray, " c"], sizes: Indices, minimum: int) -> Indices:
    present = shares > _TOLERANCE
    largest = _floor_with_tolerance(float(np.min(sizes[present] / shares[present])))
    total = min(max(largest, minimum), int(sizes.sum()))
    counts: Indices = np.minimum(_round_to_total(shares * total, total), sizes)
    for label in np.argsort(-shares, kind="stable"):
        counts[label] += min(sizes[label] - counts[label], total - counts.sum())
    return counts


def _floor_with_tolerance(value: float) -> int:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitConfig:
    """How a benchmark is split among clients.

    With `skew` domain, each client has samples of one domain; with label, it has its own label proportions
    besides; with pooled, all domains form one pool, which is partitioned with skewed labels. Validation
    samples are taken from those that are not trained on, if they are enough. The test samples are the whole
    test set of the domain or pool, or local: a part of it with the client's own label proportions.

    With `assignment` proportional the parts have the same label proportions, so one changed label can move many rows.
    With sample_hash each sample is assigned to its part and its client by a keyed hash of its identity alone: its
    row, where samples are replaced, or its content, where they are added and removed.

    >>> SplitConfig(skew="pooled", clients=20, concentration=0.5).test_fraction
    0.2
    """

    test_fraction: float = 0.2  # of a domain, if it has no official test set
    train_fraction: float = 1.0  # of the remaining samples
    validation_fraction: float = 0.0  # of the remaining samples
    skew: str = "domain"
    concentration: float = 0.1  # the Dirichlet parameter α of the label skew
    clients: int = 20  # that share the pool
    per_domain: int = 1  # the number of clients that share one domain
    minimum: int = 10  # samples that a client keeps at least under label skew
    test: str = "whole"
    stratified: bool = True  # whether training and test samples have the same label proportions
    assignment: str = "proportional"
    identity: str = "row"  # sample_hash: what is hashed

    def __post_init__(self) -> None:
        at_least_0_below_1(test_fraction=self.test_fraction, validation_fraction=self.validation_fraction)
        above_0_at_most_1(train_fraction=self.train_fraction)
        one_of(SKEWS, skew=self.skew)
        positive(concentration=self.concentration)
        at_least(1, clients=self.clients, per_domain=self.per_domain)
        at_least(0, minimum=self.minimum)
        one_of(TEST_RULES, test=self.test)
        one_of(ASSIGNMENTS, assignment=self.assignment)
        one_of(IDENTITIES, identity=self.identity)
        if self.assignment == "sample_hash" and (self.skew != "domain" or self.test != "whole"):
            raise InvalidInput(
                f"assignment sample_hash reads no label, got skew {self.skew} and test {self.test}, which do; "
                "set skew=domain and test=whole"
            )

    def to_data(self) -> dict[str, Any]:
        """Every setting by its name."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ClientSplit:
    """The rows of the benchmark that one client has; each part is sorted."""

    client: str
    domain: str | None  # None: the samples come from several domains
    train: Indices
    validation: Indices
    test: Indices


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Split:
    """The rows of all clients, and a description of the data that these rows refer to."""

    benchmark: str
    domains: tuple[str, ...]
    sizes: tuple[int, ...]  # of the domains
    labels_digest: str  # of all labels (see `_hash_labels`)
    client_splits: tuple[ClientSplit, ...]

    def check(self, benchmark: Benchmark) -> None:
        """Refuse data for which the split was not drawn: another name, other domains, sizes or labels."""
        for what, expected, got in (
            ("the benchmark", self.benchmark, benchmark.name),
            ("the domains", ", ".join(self.domains), ", ".join(domain.name for domain in benchmark.domains)),
            ("sizes", ", ".join(map(str, self.sizes)), ", ".join(str(len(domain)) for domain in benchmark.domains)),
            ("labels with the digest", self.labels_digest[:12], _hash_labels(benchmark)[:12]),
        ):
            if expected != got:
                raise InvalidInput(
                    f"this split was drawn for {what} {expected}, got {got}; use the same data, or draw a new split"
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
        """The inverse of `to_data`; InvalidInput if the data are not those of a split."""
        try:
            if data["format"] != FORMAT_VERSION:
                raise InvalidInput(f"expected a split of format {FORMAT_VERSION}, got {data['format']}; draw it again")
            domains = {str(name): int(size) for name, size in data["domains"].items()}
            total = sum(domains.values())
            client_splits = []
            for client, stored in data["clients"].items():
                rows = {part: decode_ranges(stored[part], total) for part in _PARTS}
                client_splits.append(ClientSplit(client=client, domain=stored["domain"], **rows))
            return cls(
                benchmark=str(data["benchmark"]),
                domains=tuple(domains),
                sizes=tuple(domains.values()),
                labels_digest=str(data["labels"]),
                client_splits=tuple(client_splits),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                "expected a split as `vpdr data manifest` writes it, got something else; draw it again"
            ) from error


def write_split(path: Path, split: Split) -> None:
    """Write a split as JSON."""
    write_atomically(path, json.dumps(split.to_data(), indent=1).encode() + b"\n")


def read_split(path: Path) -> Split:
    """Read a split that `write_split` wrote; InvalidInput if the file cannot be read or is not a split."""
    try:
        return Split.from_data(json.loads(Path(path).read_bytes()))
    except OSError as error:
        raise InvalidInput(f"cannot read the split {path}: {error.strerror}; give a file that exists") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInput(f"expected a split as JSON in {path}, got something else; draw it again") from error


def _hash_labels(benchmark: Benchmark) -> str:
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


def split_benchmark(benchmark: Benchmark, config: SplitConfig, streams: Streams, *, key: bytes | None = None) -> Split:
    """Draw the training, validation and test rows of each client.

    No row is trained on by two clients, and none is both trained and tested on. `key` is that of a split by
    hashes; None takes a public one from the streams.

    >>> domain = LabelledDomain(name="photo", labels=np.arange(50) % 5)
    >>> names = tuple("abcde")
    >>> benchmark = Benchmark(name="toy", classes=5, class_names=names, domains=(domain,))
    >>> (client,) = split_benchmark(benchmark, SplitConfig(), Streams(0)).client_splits
    >>> len(client.train), len(client.test)
    (40, 10)
    """
    labels = benchmark.labels
    client_splits = []
    if config.assignment == "sample_hash":
        client_splits = _assign_by_hash(benchmark, config, key or streams.key("sample hash"))
        return _describe_split(benchmark, client_splits)
    for drawn in _draw_client_splits(benchmark, config, streams):
        train, unused, test = drawn.train, drawn.validation, drawn.test
        validation = unused[:0]
        if config.test == "local":
            rng = streams.generator("local test", client=drawn.client)
            test = test[_match_label_proportions(labels[test], labels[train], rng)]
        if config.validation_fraction > 0:  # unused rows are held out before any training row
            rng = streams.generator("validation", client=drawn.client)
            size = max(1, _floor_with_tolerance(config.validation_fraction * (len(train) + len(unused))))
            if len(unused) >= size:
                validation = stratified_subset(labels, unused, size, rng)
            else:
                remaining, held_out = split_train_test(labels[train], config.validation_fraction, rng)
                train, validation = train[remaining], train[held_out]
        client_splits.append(replace(drawn, train=train, validation=validation, test=test))
    return _describe_split(benchmark, client_splits)


def _describe_split(benchmark: Benchmark, client_splits: Sequence[ClientSplit]) -> Split:
    return Split(
        benchmark=benchmark.name,
        domains=tuple(domain.name for domain in benchmark.domains),
        sizes=tuple(len(domain) for domain in benchmark.domains),
        labels_digest=_hash_labels(benchmark),
        client_splits=tuple(client_splits),
    )


def _assign_by_hash(benchmark: Benchmark, config: SplitConfig, key: bytes) -> list[ClientSplit]:
    """Assign each sample by itself; a part, or a client, may be empty.

    Guarantee: the place of a sample is a function of the key, of public numbers and of its own identity.
    """
    client_splits, start = [], 0
    for domain in benchmark.domains:
        identities = [b"%d" % row for row in range(len(domain))]
        if config.identity == "content":
            identities = [hashlib.sha256(content).digest() for content in domain.contents()]
        is_test = hash_uniforms(key, f"{domain.name}/test", identities) < config.test_fraction
        if domain.official_test is not None:
            is_test = np.isin(np.arange(len(domain)), domain.official_test)
        is_kept = hash_uniforms(key, f"{domain.name}/keep", identities) < config.train_fraction
        is_validation = hash_uniforms(key, f"{domain.name}/validation", identities) < config.validation_fraction
        numbers = np.floor(hash_uniforms(key, f"{domain.name}/client", identities) * config.per_domain)
        for number in range(config.per_domain):
            own = ~is_test & is_kept & (numbers == number)
            client_splits.append(
                ClientSplit(
                    client=domain.name if config.per_domain == 1 else f"{domain.name}-{number + 1}",
                    domain=domain.name,
                    train=start + np.flatnonzero(own & ~is_validation),
                    validation=start + np.flatnonzero(own & is_validation),
                    test=start + np.flatnonzero(is_test),
                )
            )
        start += len(domain)
    return client_splits


def hash_uniforms(key: bytes, purpose: str, identities: Sequence[bytes]) -> Float[np.ndarray, " n"]:
    """A number in [0, 1) for each identity, by a keyed hash of the purpose and of that identity alone."""
    start = hashlib.blake2b(purpose.encode() + b"\0", key=key, digest_size=8)
    numbers = np.empty(len(identities))
    for row, identity in enumerate(identities):
        digest = start.copy()
        digest.update(identity)
        numbers[row] = (int.from_bytes(digest.digest(), "big") >> 11) * 2.0**-53  # exact in double precision
    return numbers


def _draw_client_splits(benchmark: Benchmark, config: SplitConfig, streams: Streams) -> list[ClientSplit]:
    """The rows of each client; its `validation` rows are the unused ones that are distributed like its own.

    With skewed labels there are none.
    """
    by_domain, start = [], 0
    for domain in benchmark.domains:
        by_domain.append(tuple(start + rows for rows in _split_domain(domain, config, streams)))
        start += len(domain)
    labels, client_splits = benchmark.labels, []
    if config.skew == "pooled":
        train, unused, test = (np.concatenate(rows) for rows in zip(*by_domain, strict=True))
        rng = streams.generator("skew", client="pool")
        parts = dirichlet_partition(labels[train], config.clients, config.concentration, rng, config.minimum)
        name = benchmark.domains[0].name if len(benchmark.domains) == 1 else None
        make_split = partial(ClientSplit, domain=name, validation=unused[:0], test=test)
        return [make_split(client=f"client-{number:03d}", train=train[part]) for number, part in enumerate(parts)]
    for domain, (train, unused, test) in zip(benchmark.domains, by_domain, strict=True):
        parts = partition_domain(labels[train], config, streams.generator("skew", client=domain.name))
        validation = unused if config.skew == "domain" else unused[:0]
        make_split = partial(ClientSplit, domain=domain.name, validation=validation, test=test)
        for number, part in enumerate(parts, 1):
            client = domain.name if len(parts) == 1 else f"{domain.name}-{number}"
            client_splits.append(make_split(client=client, train=train[part]))
    return client_splits


def partition_domain(labels: Indices, config: SplitConfig, rng: torch.Generator) -> tuple[Indices, ...]:
    """Partition the training samples of one domain among its clients: their indices into `labels`."""
    if config.per_domain > 1:
        concentration = config.concentration if config.skew == "label" else EVEN_CONCENTRATION
        return dirichlet_partition(labels, config.per_domain, concentration, rng, config.minimum)
    if config.skew == "label":
        return skew_labels([labels], config.concentration, rng, config.minimum)
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
        size = _floor_with_tolerance(config.train_fraction * domain.full_train_size)
        amount = min(len(candidates), max(1, size))
    train = stratified_subset(strata, candidates, amount, streams.generator("keep", client=domain.name))
    return train, np.setdiff1d(candidates, train), test
