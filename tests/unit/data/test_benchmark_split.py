"""Splits have the sizes of the paper, no overlaps, and refuse other data."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpdr.data.benchmark import (
    Benchmark,
    LabelledDomain,
    Split,
    SplitConfig,
    decode_ranges,
    dirichlet_partition,
    encode_ranges,
    skew_labels,
    split_benchmark,
    split_train_test,
    stratified_subset,
)
from vpdr.rng import Streams
from vpdr.validation import InvalidInput

OFFICE = {"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}
PACS = {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}
DIGITS = {"mnist": (60000, 10000), "usps": (7291, 2007), "svhn": (73257, 26032), "syn": (10000, 2000)}


def make_domain(name, size, test_size=None, classes=10, **settings):
    test = None if test_size is None else np.arange(size, size + test_size)
    labels = np.random.default_rng(size).integers(classes, size=size + (test_size or 0))
    return LabelledDomain(name=name, labels=labels, official_test=test, **settings)


def make_benchmark(*domains, classes=10):
    names = tuple(str(label) for label in range(classes))
    return Benchmark(name="b", classes=classes, class_names=names, domains=domains)


def counts(split, part):
    return [len(getattr(client_split, part)) for client_split in split.client_splits]


@pytest.mark.parametrize(
    ("sizes", "train", "test"),
    [(OFFICE, [230, 269, 37, 70], [191, 224, 31, 59]), (PACS, [400, 491, 562, 943], [334, 409, 468, 785])],
)
@pytest.mark.parametrize("stratified", [True, False])
def test_drawn_splits_have_the_counts_of_the_paper(sizes, train, test, stratified):
    data = make_benchmark(*(make_domain(name, size) for name, size in sizes.items()))
    split = split_benchmark(data, SplitConfig(train_fraction=0.3, stratified=stratified), Streams(0))
    assert counts(split, "train") == train
    assert counts(split, "test") == test
    assert [client_split.client for client_split in split.client_splits] == list(sizes)


def test_official_splits_have_the_counts_of_the_paper():
    data = make_benchmark(*(make_domain(name, *size) for name, size in DIGITS.items()))
    split = split_benchmark(data, SplitConfig(train_fraction=0.1), Streams(0))
    assert counts(split, "train") == [6000, 729, 7325, 1000]
    assert counts(split, "test") == [10000, 2007, 26032, 2000]


def test_a_part_of_a_public_set_is_not_subsampled_twice():
    data = make_benchmark(make_domain("mnist", 6000, 10000, full_train_size=60000), make_domain("usps", 7291, 2007))
    assert counts(split_benchmark(data, SplitConfig(train_fraction=0.1), Streams(0)), "train") == [6000, 729]


def test_domains_are_drawn_from_the_same_streams_as_before():
    data, streams = make_benchmark(make_domain("a", 300), make_domain("b", 200)), Streams(5)
    split = split_benchmark(data, SplitConfig(test_fraction=0.25, train_fraction=0.5), streams)
    start = 0
    for domain, client_split in zip(data.domains, split.client_splits, strict=True):
        train, test = split_train_test(domain.labels, 0.25, streams.generator("split", client=domain.name))
        train = stratified_subset(domain.labels, train, 0.5, streams.generator("keep", client=domain.name))
        assert np.array_equal(client_split.train, start + train)
        assert np.array_equal(client_split.test, start + test)
        start += len(domain)


@pytest.mark.parametrize("per_domain", [1, 3])
def test_label_skew_within_domains_is_drawn_from_the_same_streams_as_before(per_domain):
    data, streams = make_benchmark(make_domain("a", 300), make_domain("b", 200)), Streams(5)
    split = split_benchmark(data, SplitConfig(skew="label", per_domain=per_domain, concentration=0.5), streams)
    expected, start = {}, 0
    for domain in data.domains:
        train, _ = split_train_test(domain.labels, 0.2, streams.generator("split", client=domain.name))
        train = stratified_subset(domain.labels, train, 1.0, streams.generator("keep", client=domain.name))
        own, rng = domain.labels[train], streams.generator("skew", client=domain.name)
        if per_domain == 1:
            expected[domain.name] = start + train[skew_labels([own], 0.5, rng, 10)[0]]
        else:
            for number, part in enumerate(dirichlet_partition(own, per_domain, 0.5, rng, 10), 1):
                expected[f"{domain.name}-{number}"] = start + train[part]
        start += len(domain)
    assert [client_split.client for client_split in split.client_splits] == list(expected)
    for client_split in split.client_splits:
        assert np.array_equal(client_split.train, expected[client_split.client])


@given(st.sampled_from(["domain", "label", "pooled"]), st.integers(1, 3), st.integers(0, 99))
def test_no_row_is_trained_on_twice_and_none_is_tested_on_that_was_trained_on(skew, per_domain, seed):
    data = make_benchmark(make_domain("a", 300), make_domain("b", 200, 60))
    config = SplitConfig(
        skew=skew, concentration=0.5, clients=5, per_domain=per_domain, validation_fraction=0.2, minimum=5
    )
    split = split_benchmark(data, config, Streams(seed))
    used = np.concatenate([np.append(p.train, p.validation) for p in split.client_splits])
    assert len(set(used.tolist())) == len(used)
    tested = np.concatenate([p.test for p in split.client_splits])
    assert not set(used.tolist()) & set(tested.tolist())
    assert all(len(p.validation) for p in split.client_splits if len(p.train) > 20)


def test_a_pool_is_partitioned_and_all_clients_are_tested_on_all_of_it():
    data = make_benchmark(*(make_domain(name, size) for name, size in OFFICE.items()))
    split = split_benchmark(data, SplitConfig(skew="pooled", clients=4), Streams(3))
    assert sum(counts(split, "train")) == 2533 - 505
    assert counts(split, "test") == [505] * 4
    assert min(counts(split, "train")) >= 10
    labels = data.labels
    assert set(labels[split.client_splits[0].test]) == set(range(10))
    shares = [np.bincount(labels[p.train], minlength=10).max() / len(p.train) for p in split.client_splits]
    assert max(shares) > 0.25
    assert [p.domain for p in split.client_splits] == [None] * 4


def test_twenty_clients_share_one_official_test_set():
    data = make_benchmark(make_domain("cifar10", 5000, 1000))
    split = split_benchmark(data, SplitConfig(skew="pooled"), Streams(0))
    assert len(split.client_splits) == 20
    assert {encode_ranges(client_split.test) for client_split in split.client_splits} == {"5000-5999"}
    assert {client_split.domain for client_split in split.client_splits} == {"cifar10"}


def test_a_local_test_set_has_the_clients_proportions():
    data = make_benchmark(make_domain("cifar10", 5000, 1000))
    split = split_benchmark(data, SplitConfig(skew="pooled", test="local"), Streams(0))
    for client_split in split.client_splits:
        own = np.bincount(data.labels[client_split.train], minlength=10) / len(client_split.train)
        tested = np.bincount(data.labels[client_split.test], minlength=10)
        assert np.all(np.abs(tested - own * len(client_split.test)) <= 1)
        assert len(client_split.test) >= 50


def test_a_split_read_from_its_file_is_equal_and_accepts_its_data():
    data = make_benchmark(make_domain("a", 300), make_domain("b", 200))
    drawn = split_benchmark(data, SplitConfig(skew="label", per_domain=2, validation_fraction=0.1), Streams(0))
    again = Split.from_data(json.loads(json.dumps(drawn.to_data())))
    again.check(data)
    assert again.to_data() == drawn.to_data()
    for one, two in zip(drawn.client_splits, again.client_splits, strict=True):
        assert (one.client, one.domain) == (two.client, two.domain)
        assert np.array_equal(one.train, two.train)
        assert np.array_equal(one.validation, two.validation)


def test_a_split_refuses_other_data_in_one_line():
    data = make_benchmark(make_domain("a", 300), make_domain("b", 200))
    split = split_benchmark(data, SplitConfig(), Streams(0))
    with pytest.raises(InvalidInput, match="sizes 300, 200, got 300, 201; use the same data"):
        split.check(make_benchmark(make_domain("a", 300), make_domain("b", 201)))
    with pytest.raises(InvalidInput, match="the domains a, b, got a, c"):
        split.check(make_benchmark(make_domain("a", 300), make_domain("c", 200)))
    moved = LabelledDomain(name="b", labels=np.roll(data.domains[1].labels, 1))
    with pytest.raises(InvalidInput, match="labels with the digest"):
        split.check(make_benchmark(data.domains[0], moved))


@given(st.sets(st.integers(0, 60)))
def test_rows_are_written_as_ranges(rows):
    rows = np.array(sorted(rows), dtype=np.int64)
    assert np.array_equal(decode_ranges(encode_ranges(rows), 61), rows)


@pytest.mark.parametrize("text", ["3-x", "5,4", "0-70", "4,4", "-3"])
def test_invalid_rows_are_refused(text):
    with pytest.raises(InvalidInput, match="in a split"):
        decode_ranges(text, 61)


@pytest.mark.parametrize("content", [{}, {"format": 1}, {"format": 1, "domains": []}, {"format": 9}])
def test_a_file_that_is_no_split_is_refused(content):
    with pytest.raises(InvalidInput, match="draw it again"):
        Split.from_data(content)


@pytest.mark.parametrize(
    "wrong", [{"skew": "odd"}, {"test": "odd"}, {"clients": 0}, {"train_fraction": 0.0}, {"minimum": -1}]
)
def test_an_invalid_setting_is_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        SplitConfig(**wrong)


def test_a_domain_without_test_rows_is_named():
    data = make_benchmark(
        LabelledDomain(name="a", labels=np.arange(20) % 10, official_test=np.zeros(0, dtype=np.int64))
    )
    with pytest.raises(InvalidInput, match="domain a: expected training and test samples, got 20 and 0"):
        split_benchmark(data, SplitConfig(), Streams(0))
