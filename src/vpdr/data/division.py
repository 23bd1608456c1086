"""How a benchmark is divided: the rule, and its draw from named streams."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from vpdr.checks import at_least, fraction, one_of, positive, share
from vpdr.data.domains import Benchmark, Roll
from vpdr.data.manifest import Manifest, Portion, digest_of
from vpdr.data.partition import Indices, alike, dirichlet, keep, skew_labels, split_train_test, whole_part
from vpdr.errors import InvalidInput
from vpdr.rng import Streams

EVEN = 1e6  # a concentration at which every client gets the same share of every class


@dataclass(frozen=True, kw_only=True, slots=True)
class Division:
    """Who gets what.

    `skew` is `domain` (a client's samples are its domain's), `label` (on top of that, each client has its own
    label proportions) or `pooled` (all domains are one pool that is dealt to `clients` with skewed labels).
    """

    test_fraction: float = 0.2  # where the benchmark has no official test set
    train_fraction: float = 1.0  # of what is left for training
    validation_fraction: float = (
        0.0  # of what is left for training; from what is not kept, where that is enough
    )
    skew: str = "domain"
    concentration: float = 0.1  # α of the label skew
    clients: int = 20  # that share the pool
    per_domain: int = 1  # clients that share one domain
    minimum: int = 10  # samples that a client keeps under label skew
    test: str = "whole"  # all test samples of the domain or pool; local: with the client's own proportions
    stratified: bool = True

    def __post_init__(self) -> None:
        fraction(test_fraction=self.test_fraction, validation_fraction=self.validation_fraction)
        share(train_fraction=self.train_fraction)
        one_of(tuple(_DEALERS), skew=self.skew)
        positive(concentration=self.concentration)
        at_least(1, clients=self.clients, per_domain=self.per_domain)
        at_least(0, minimum=self.minimum)
        one_of(tuple(_TESTS), test=self.test)

    def to_data(self) -> dict[str, Any]:
        """Every setting by its name."""
        return asdict(self)


def divide(benchmark: Benchmark, division: Division, streams: Streams) -> Manifest:
    """The training, validation and test rows of each client, drawn once."""
    labels = benchmark.labels
    portions = []
    for dealt in _DEALERS[division.skew](benchmark, division, streams):
        train, test = dealt.train, _TESTS[division.test](labels, dealt, streams)
        held = train[:0]
        if division.validation_fraction > 0:
            train, held = _held_out(labels, dealt, division, streams)
        portions.append(
            Portion(client=dealt.client, domain=dealt.domain, train=train, validation=held, test=test)
        )
    return Manifest(
        benchmark=benchmark.name,
        domains=tuple(domain.name for domain in benchmark.domains),
        sizes=tuple(len(domain) for domain in benchmark.domains),
        labels=digest_of(benchmark),
        portions=tuple(portions),
    )


def _held_out(
    labels: Indices, dealt: Portion, division: Division, streams: Streams
) -> tuple[Indices, Indices]:
    """Training and validation rows; what the division leaves unused is held out before any training row."""
    rng, unused = streams.draw("validation", client=dealt.client), dealt.validation
    wanted = max(1, whole_part(division.validation_fraction * (len(dealt.train) + len(unused))))
    if len(unused) >= wanted:
        return dealt.train, keep(labels, unused, wanted, rng)
    kept, away = split_train_test(labels[dealt.train], division.validation_fraction, rng)
    return dealt.train[kept], dealt.train[away]


def parts_of(labels: Indices, division: Division, rng: torch.Generator) -> tuple[Indices, ...]:
    """Which training samples of one domain each of its clients gets."""
    skewed = division.skew == "label"
    if skewed and division.per_domain == 1:
        return skew_labels([labels], division.concentration, rng, division.minimum)
    if division.per_domain > 1:
        alpha = division.concentration if skewed else EVEN
        return dirichlet(labels, division.per_domain, alpha, rng, division.minimum)
    return (np.arange(len(labels)),)


def _split(domain: Roll, division: Division, streams: Streams) -> tuple[Indices, Indices, Indices]:
    """The rows of a domain that are trained on, those that are left unused, and its test rows."""
    strata = domain.labels if division.stratified else np.zeros_like(domain.labels)
    if domain.official_test is None:
        rng = streams.draw("split", client=domain.name)
        train, test = split_train_test(strata, division.test_fraction, rng)
    else:
        test = domain.official_test
        train = np.setdiff1d(np.arange(len(domain)), test)
    if len(train) == 0 or len(test) == 0:
        raise InvalidInput(
            f"domain {domain.name}: expected training and test samples, got {len(train)} and {len(test)}; "
            "give both parts of the public set"
        )
    amount: int | float = division.train_fraction
    if domain.whole is not None:
        amount = min(len(train), max(1, whole_part(division.train_fraction * domain.whole)))
    kept = keep(strata, train, amount, streams.draw("keep", client=domain.name))
    return kept, np.setdiff1d(train, kept), test


def _by_domain(benchmark: Benchmark, division: Division, streams: Streams) -> list[Portion]:
    portions, start = [], 0
    for domain in benchmark.domains:
        train, unused, test = _split(domain, division, streams)
        parts = parts_of(domain.labels[train], division, streams.draw("skew", client=domain.name))
        for number, part in enumerate(parts, 1):
            name = domain.name if len(parts) == 1 else f"{domain.name}-{number}"
            dealt = Portion.dealt(name, domain.name, start + train[part], start + test)
            # With skewed labels, samples that nobody trains on are not like the client's own.
            alike_rows = start + unused if division.skew == "domain" else unused[:0]
            portions.append(replace(dealt, validation=alike_rows))
        start += len(domain)
    return portions


def _from_pool(benchmark: Benchmark, division: Division, streams: Streams) -> list[Portion]:
    trains, tests, start = [], [], 0
    for domain in benchmark.domains:
        train, _, test = _split(domain, division, streams)
        trains.append(start + train)
        tests.append(start + test)
        start += len(domain)
    train, test = np.concatenate(trains), np.concatenate(tests)
    rng = streams.draw("skew", client="pool")
    own = benchmark.labels[train]
    parts = dirichlet(own, division.clients, division.concentration, rng, division.minimum)
    only = benchmark.domains[0].name if len(benchmark.domains) == 1 else None
    return [
        Portion.dealt(f"client-{number:03d}", only, train[part], test) for number, part in enumerate(parts)
    ]


def _whole_test(_labels: Indices, portion: Portion, _streams: Streams) -> Indices:
    return portion.test


def _local_test(labels: Indices, portion: Portion, streams: Streams) -> Indices:
    rng = streams.draw("local test", client=portion.client)
    tested: Indices = portion.test[alike(labels[portion.test], labels[portion.train], rng)]
    return tested


_DEALERS = {"domain": _by_domain, "label": _by_domain, "pooled": _from_pool}
_TESTS = {"whole": _whole_test, "local": _local_test}
