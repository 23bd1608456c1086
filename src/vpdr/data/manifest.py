"""A division as it was drawn: which rows each client has, kept so that a run can be repeated anywhere."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpdr.data.domains import Benchmark
from vpdr.data.partition import Indices
from vpdr.errors import InvalidInput

FORMAT = 1
_PARTS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Portion:
    """One client's rows of the benchmark, its domains counted one after the other; each part is sorted.

    `domain` is None for a client of a pool of several domains.
    """

    client: str
    domain: str | None
    train: Indices
    validation: Indices
    test: Indices

    @classmethod
    def dealt(cls, client: str, domain: str | None, train: Indices, test: Indices) -> "Portion":
        """A portion nothing was held out of."""
        return cls(client=client, domain=domain, train=train, validation=train[:0], test=test)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Manifest:
    """Everybody's rows, and what the data must be for these rows to mean the same samples."""

    benchmark: str
    domains: tuple[str, ...]
    sizes: tuple[int, ...]
    labels: str  # a digest
    portions: tuple[Portion, ...]

    def check(self, benchmark: Benchmark) -> None:
        """Refuse data that are not those the division was drawn for."""
        names = tuple(domain.name for domain in benchmark.domains)
        sizes = tuple(len(domain) for domain in benchmark.domains)
        for what, expected, got in (
            ("the benchmark", self.benchmark, benchmark.name),
            ("the domains", self.domains, names),
            ("sizes", self.sizes, sizes),
            ("labels with the digest", self.labels[:12], digest_of(benchmark)[:12]),
        ):
            if expected != got:
                raise InvalidInput(
                    f"this split was drawn for {what} {_words(expected)}, got {_words(got)}; "
                    "use the same data, or draw a new split"
                )

    def to_data(self) -> dict[str, Any]:
        """As JSON has it; rows are written as runs, `0-3,7`."""
        return {
            "format": FORMAT,
            "benchmark": self.benchmark,
            "domains": dict(zip(self.domains, self.sizes, strict=True)),
            "labels": self.labels,
            "clients": {
                portion.client: {
                    "domain": portion.domain,
                    "train": as_runs(portion.train),
                    "validation": as_runs(portion.validation),
                    "test": as_runs(portion.test),
                }
                for portion in self.portions
            },
        }

    @classmethod
    def from_data(cls, data: Any) -> "Manifest":
        """The inverse of `to_data`; anything else that a file may hold is refused."""
        try:
            if data["format"] != FORMAT:
                raise InvalidInput(
                    f"expected a split of format {FORMAT}, got {data['format']}; draw it again"
                )
            domains = {str(name): int(size) for name, size in data["domains"].items()}
            return cls(
                benchmark=str(data["benchmark"]),
                domains=tuple(domains),
                sizes=tuple(domains.values()),
                labels=str(data["labels"]),
                portions=tuple(
                    _portion(client, part, sum(domains.values())) for client, part in data["clients"].items()
                ),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                "expected a split as `vpdr data manifest` writes it, got something else; draw it again"
            ) from error


def digest_of(benchmark: Benchmark) -> str:
    """What the labels of a benchmark are, in a few letters: another order gives another digest."""
    content = hashlib.sha256()
    for domain in benchmark.domains:
        content.update(f"{domain.name}/{len(domain)}/".encode())
        content.update(domain.labels.astype("<i8").tobytes())
    return content.hexdigest()


def as_runs(rows: Indices) -> str:
    """Sorted rows in short: `0-3,7`."""
    if len(rows) == 0:
        return ""
    edges = np.flatnonzero(np.diff(rows) != 1)
    starts, ends = rows[np.append(0, edges + 1)], rows[np.append(edges, len(rows) - 1)]
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return ",".join(str(start) if start == end else f"{start}-{end}" for start, end in pairs)


def from_runs(text: str, total: int) -> Indices:
    """The inverse of `as_runs`, refused where it is not sorted or leaves the `total` rows."""
    rows = np.zeros(0, dtype=np.int64)
    try:
        ends = [[int(number) for number in run.split("-")] for run in text.split(",") if run]
        if ends:
            rows = np.concatenate([np.arange(run[0], run[-1] + 1, dtype=np.int64) for run in ends])
    except ValueError as error:
        raise InvalidInput(f"expected rows such as 0-3,7 in a split, got {text[:40]!r}") from error
    if len(rows) and not (rows[0] >= 0 and rows[-1] < total and np.all(np.diff(rows) > 0)):
        raise InvalidInput(f"expected sorted rows below {total} in a split, got {text[:40]!r}; draw it again")
    return rows


def _portion(client: str, part: Any, total: int) -> Portion:
    train, validation, test = (from_runs(part[name], total) for name in _PARTS)
    return Portion(client=client, domain=part["domain"], train=train, validation=validation, test=test)


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
