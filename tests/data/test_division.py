"""The counts of the paper, who may share what, and a manifest that means one thing only."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpdr.data import (
    Benchmark,
    Division,
    Manifest,
    Roll,
    dirichlet,
    divide,
    keep,
    skew_labels,
    split_train_test,
)
from vpdr.data.manifest import as_runs, from_runs
from vpdr.errors import InvalidInput
from vpdr.rng import Streams

OFFICE = {"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}
PACS = {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}
DIGITS = {"mnist": (60000, 10000), "usps": (7291, 2007), "svhn": (73257, 26032), "syn": (10000, 2000)}


def roll(name, size, tested=None, classes=10, **settings):
    test = None if tested is None else np.arange(size, size + tested)
    labels = np.random.default_rng(size).integers(classes, size=size + (tested or 0))
    return Roll(name=name, labels=labels, official_test=test, **settings)


def benchmark(*rolls, classes=10):
    names = tuple(str(label) for label in range(classes))
    return Benchmark(name="b", classes=classes, class_names=names, domains=rolls)


def counts(manifest, part):
    return [len(getattr(portion, part)) for portion in manifest.portions]


@pytest.mark.parametrize(
    ("sizes", "train", "test"),
    [
        (OFFICE, [230, 269, 37, 70], [191, 224, 31, 59]),
        (PACS, [400, 491, 562, 943], [334, 409, 468, 785]),
    ],
)
@pytest.mark.parametrize("stratified", [True, False])
def test_drawn_splits_have_the_counts_of_the_paper(sizes, train, test, stratified):
    data = benchmark(*(roll(name, size) for name, size in sizes.items()))
    manifest = divide(data, Division(train_fraction=0.3, stratified=stratified), Streams(0))
    assert counts(manifest, "train") == train
    assert counts(manifest, "test") == test
    assert [portion.client for portion in manifest.portions] == list(sizes)


def test_official_splits_have_the_counts_of_the_paper():
    data = benchmark(*(roll(name, *size) for name, size in DIGITS.items()))
    manifest = divide(data, Division(train_fraction=0.1), Streams(0))
    assert counts(manifest, "train") == [6000, 729, 7325, 1000]
    assert counts(manifest, "test") == [10000, 2007, 26032, 2000]


def test_a_part_of_a_public_set_is_not_thinned_twice():
    data = benchmark(roll("mnist", 6000, 10000, whole=60000), roll("usps", 7291, 2007))
    assert counts(divide(data, Division(train_fraction=0.1), Streams(0)), "train") == [6000, 729]


def test_domains_are_drawn_as_the_quickstart_always_was():
    data, streams = benchmark(roll("a", 300), roll("b", 200)), Streams(5)
    manifest = divide(data, Division(test_fraction=0.25, train_fraction=0.5), streams)
    start = 0
    for domain, portion in zip(data.domains, manifest.portions, strict=True):
        train, test = split_train_test(domain.labels, 0.25, streams.draw("split", client=domain.name))
        train = keep(domain.labels, train, 0.5, streams.draw("keep", client=domain.name))
        assert np.array_equal(portion.train, start + train)
        assert np.array_equal(portion.test, start + test)
        start += len(domain)


@pytest.mark.parametrize("per_domain", [1, 3])
def test_label_skew_within_domains_is_drawn_as_the_quickstart_always_was(per_domain):
    data, streams = benchmark(roll("a", 300), roll("b", 200)), Streams(5)
    manifest = divide(data, Division(skew="label", per_domain=per_domain, concentration=0.5), streams)
    expected, start = {}, 0
    for domain in data.domains:
        train, _ = split_train_test(domain.labels, 0.2, streams.draw("split", client=domain.name))
        train = keep(domain.labels, train, 1.0, streams.draw("keep", client=domain.name))
        own, rng = domain.labels[train], streams.draw("skew", client=domain.name)
        if per_domain == 1:
            expected[domain.name] = start + train[skew_labels([own], 0.5, rng, 10)[0]]
        else:
            for number, part in enumerate(dirichlet(own, per_domain, 0.5, rng, 10), 1):
                expected[f"{domain.name}-{number}"] = start + train[part]
        start += len(domain)
    assert [portion.client for portion in manifest.portions] == list(expected)
    for portion in manifest.portions:
        assert np.array_equal(portion.train, expected[portion.client])


@given(st.sampled_from(["domain", "label", "pooled"]), st.integers(1, 3), st.integers(0, 99))
def test_no_row_is_trained_on_twice_and_none_is_tested_on_that_was_trained_on(skew, per_domain, seed):
    data = benchmark(roll("a", 300), roll("b", 200, 60))
    division = Division(
        skew=skew, concentration=0.5, clients=5, per_domain=per_domain, validation_fraction=0.2, minimum=5
    )
    manifest = divide(data, division, Streams(seed))
    used = np.concatenate([np.append(p.train, p.validation) for p in manifest.portions])
    assert len(set(used.tolist())) == len(used)
    tested = np.concatenate([p.test for p in manifest.portions])
    assert not set(used.tolist()) & set(tested.tolist())
    assert all(len(p.validation) for p in manifest.portions if len(p.train) > 20)


def test_a_pool_is_dealt_to_all_clients_and_everybody_is_tested_on_all_of_it():
    data = benchmark(*(roll(name, size) for name, size in OFFICE.items()))
    manifest = divide(data, Division(skew="pooled", clients=4), Streams(3))
    assert sum(counts(manifest, "train")) == 2533 - 505
    assert counts(manifest, "test") == [505] * 4
    assert min(counts(manifest, "train")) >= 10
    labels = data.labels
    assert set(labels[manifest.portions[0].test]) == set(range(10))
    shares = [np.bincount(labels[p.train], minlength=10).max() / len(p.train) for p in manifest.portions]
    assert max(shares) > 0.25
    assert [p.domain for p in manifest.portions] == [None] * 4


def test_twenty_clients_share_one_official_test_set():
    data = benchmark(roll("cifar10", 5000, 1000))
    manifest = divide(data, Division(skew="pooled"), Streams(0))
    assert len(manifest.portions) == 20
    assert {as_runs(portion.test) for portion in manifest.portions} == {"5000-5999"}
    assert {portion.domain for portion in manifest.portions} == {"cifar10"}


def test_a_local_test_set_has_the_clients_proportions():
    data = benchmark(roll("cifar10", 5000, 1000))
    manifest = divide(data, Division(skew="pooled", test="local"), Streams(0))
    for portion in manifest.portions:
        own = np.bincount(data.labels[portion.train], minlength=10) / len(portion.train)
        tested = np.bincount(data.labels[portion.test], minlength=10)
        assert np.all(np.abs(tested - own * len(portion.test)) <= 1)
        assert len(portion.test) >= 50


def test_a_manifest_survives_its_file_and_knows_its_data():
    data = benchmark(roll("a", 300), roll("b", 200))
    drawn = divide(data, Division(skew="label", per_domain=2, validation_fraction=0.1), Streams(0))
    again = Manifest.from_data(json.loads(json.dumps(drawn.to_data())))
    again.check(data)
    assert again.to_data() == drawn.to_data()
    for one, two in zip(drawn.portions, again.portions, strict=True):
        assert (one.client, one.domain) == (two.client, two.domain)
        assert np.array_equal(one.train, two.train)
        assert np.array_equal(one.validation, two.validation)


def test_a_manifest_refuses_other_data_in_one_line():
    data = benchmark(roll("a", 300), roll("b", 200))
    manifest = divide(data, Division(), Streams(0))
    with pytest.raises(InvalidInput, match="sizes 300, 200, got 300, 201; use the same data"):
        manifest.check(benchmark(roll("a", 300), roll("b", 201)))
    with pytest.raises(InvalidInput, match="the domains a, b, got a, c"):
        manifest.check(benchmark(roll("a", 300), roll("c", 200)))
    moved = Roll(name="b", labels=np.roll(data.domains[1].labels, 1))
    with pytest.raises(InvalidInput, match="labels with the digest"):
        manifest.check(benchmark(data.domains[0], moved))


@given(st.sets(st.integers(0, 60)))
def test_rows_are_written_in_runs(rows):
    rows = np.array(sorted(rows), dtype=np.int64)
    assert np.array_equal(from_runs(as_runs(rows), 61), rows)


@pytest.mark.parametrize("text", ["3-x", "5,4", "0-70", "4,4", "-3"])
def test_rows_that_mean_nothing_are_refused(text):
    with pytest.raises(InvalidInput, match="in a split"):
        from_runs(text, 61)


@pytest.mark.parametrize("content", [{}, {"format": 1}, {"format": 1, "domains": []}, {"format": 9}])
def test_a_file_that_is_no_split_is_refused(content):
    with pytest.raises(InvalidInput, match="draw it again"):
        Manifest.from_data(content)


@pytest.mark.parametrize(
    "wrong", [{"skew": "odd"}, {"test": "odd"}, {"clients": 0}, {"train_fraction": 0.0}, {"minimum": -1}]
)
def test_a_division_refuses_what_cannot_be(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Division(**wrong)


def test_a_domain_without_test_rows_is_named():
    data = benchmark(Roll(name="a", labels=np.arange(20) % 10, official_test=np.zeros(0, dtype=np.int64)))
    with pytest.raises(InvalidInput, match="domain a: expected training and test samples, got 20 and 0"):
        divide(data, Division(), Streams(0))
