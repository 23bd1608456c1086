"""Partitions cover, do not overlap, and keep proportions and minimums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpdr.data.benchmark import dirichlet_partition, skew_labels, split_train_test, stratified_subset
from vpdr.rng import Streams
from vpdr.validation import InvalidInput

seeds = st.integers(0, 2**31)
labels_of = st.lists(st.integers(0, 6), min_size=1, max_size=120).map(lambda x: np.array(x, dtype=np.int64))
fractions = st.floats(0.01, 0.99)


def stream(seed=0):
    return Streams(seed).generator("partition")


def sizes(labels, classes=7):
    return np.bincount(labels, minlength=classes)


@given(labels_of, fractions, seeds)
def test_split_covers_every_sample_once_and_divides_each_class_alike(labels, fraction, seed):
    train, test = split_train_test(labels, fraction, stream(seed))
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert np.all(np.abs(sizes(labels[test]) - fraction * sizes(labels)) <= 1)


@given(labels_of, fractions, seeds)
def test_split_has_each_class_of_two_or_more_on_both_sides(labels, fraction, seed):
    train, test = split_train_test(labels, fraction, stream(seed))
    many, single = sizes(labels) >= 2, sizes(labels) == 1
    assert np.all(sizes(labels[train])[many] >= 1)
    assert np.all(sizes(labels[test])[many] >= 1)
    assert np.all(sizes(labels[train])[single] == 1)


def test_split_and_subset_give_the_paper_sizes_of_amazon():
    labels = np.arange(958) % 10
    train, test = split_train_test(labels, 0.2, stream())
    assert (len(train), len(test)) == (767, 191)
    assert len(stratified_subset(labels, train, 0.3, stream())) == 230


def test_rounding_down_tolerates_the_rounding_error_of_a_float():
    labels = np.zeros(100, dtype=np.int64)
    assert len(split_train_test(labels, 0.29, stream())[1]) == 29
    assert len(stratified_subset(labels, np.arange(100), 0.29, stream())) == 29


@given(labels_of, st.data(), seeds)
def test_a_subset_takes_exactly_the_count_from_the_given_indices_in_proportion(labels, data, seed):
    pool = np.array(data.draw(st.permutations(range(len(labels)))))[: data.draw(st.integers(1, len(labels)))]
    count = data.draw(st.integers(0, len(pool)))
    subset = stratified_subset(labels, pool, count, stream(seed))
    assert len(set(subset.tolist())) == len(subset) == count
    assert set(subset.tolist()) <= set(pool.tolist())
    assert np.all(np.abs(sizes(labels[subset]) - sizes(labels[pool]) * count / len(pool)) <= 1)


@given(labels_of, st.integers(1, 6), st.floats(0.05, 50), seeds)
def test_dirichlet_is_a_disjoint_cover(labels, clients, concentration, seed):
    parts = dirichlet_partition(labels, clients, concentration, stream(seed), 0)
    assert len(parts) == clients
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


@given(seeds, st.integers(1, 5))
def test_dirichlet_gives_each_client_the_minimum(seed, clients):
    parts = dirichlet_partition(np.arange(400) % 10, clients, 0.5, stream(seed), 12)
    assert min(len(part) for part in parts) >= 12


def test_a_low_concentration_skews_and_a_high_one_does_not():
    labels = np.arange(5000) % 10

    def largest_share(concentration):
        parts = dirichlet_partition(labels, 10, concentration, stream(), 1)
        return np.mean([sizes(labels[part], 10).max() / len(part) for part in parts])

    assert largest_share(0.1) > 0.4
    assert largest_share(1000.0) < 0.15


def test_dirichlet_fails_if_no_draw_gives_the_minimum():
    with pytest.raises(InvalidInput, match="raise the concentration or lower the minimum"):
        dirichlet_partition(np.arange(100) % 2, 10, 0.01, stream(), 10)
    with pytest.raises(InvalidInput, match="11 clients and 100 samples"):
        dirichlet_partition(np.arange(100) % 2, 11, 1.0, stream(), 10)


@given(st.lists(labels_of, min_size=1, max_size=4), st.floats(0.02, 50), seeds, st.integers(0, 20))
def test_skew_keeps_distinct_own_samples_and_the_minimum(clients, concentration, seed, minimum):
    subsets = skew_labels(clients, concentration, stream(seed), minimum)
    assert len(subsets) == len(clients)
    for labels, part in zip(clients, subsets, strict=True):
        assert len(set(part.tolist())) == len(part) >= max(1, min(minimum, len(labels)))
        assert part.min() >= 0
        assert part.max() < len(labels)


def test_skew_keeps_the_largest_set_with_the_drawn_proportions():
    labels = np.arange(10_000) % 10
    for seed in range(20):
        (part,) = skew_labels([labels], 0.5, stream(seed), 1)
        assert 998 <= sizes(labels[part], 10).max() <= 1000  # the most frequent class is exhausted


def test_skew_is_stronger_the_lower_the_concentration():
    labels = [np.arange(1000) % 10] * 20

    def missing(concentration):
        subsets = skew_labels(labels, concentration, stream(), 10)
        return np.mean([np.mean(sizes(labels[0][part], 10) == 0) for part in subsets])

    assert missing(0.1) > 0.4
    assert missing(100.0) == 0


def test_skew_fills_up_a_small_client_and_can_keep_all_its_samples():
    labels = np.array([0, 0, 1, 2, 2, 2])
    (some,) = skew_labels([labels], 0.01, stream(), 4)
    (everything,) = skew_labels([labels], 0.01, stream(), 100)
    assert len(some) == 4
    assert everything.tolist() == list(range(6))


@pytest.mark.parametrize(
    "cut",
    [
        lambda labels, rng: split_train_test(labels, 0.3, rng),
        lambda labels, rng: (stratified_subset(labels, np.arange(len(labels)), 0.3, rng),),
        lambda labels, rng: dirichlet_partition(labels, 4, 0.5, rng, 5),
        lambda labels, rng: skew_labels([labels, labels], 0.5, rng),
    ],
)
def test_the_same_stream_gives_the_same_parts_and_another_gives_others(cut):
    labels = np.arange(300) % 7
    one, same, other = cut(labels, stream(1)), cut(labels, stream(1)), cut(labels, stream(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_split_refuses_a_fraction_that_leaves_one_side_empty(fraction):
    with pytest.raises(InvalidInput, match="test_fraction must lie in"):
        split_train_test(np.zeros(4, dtype=np.int64), fraction, stream())


@pytest.mark.parametrize("amount", [5, -1, 1.5, 0.0, float("nan")])
def test_a_subset_refuses_an_amount_out_of_range(amount):
    with pytest.raises(InvalidInput, match="keep"):
        stratified_subset(np.zeros(4, dtype=np.int64), np.arange(4), amount, stream())


@pytest.mark.parametrize("concentration", [0.0, -1.0, float("nan"), float("inf")])
def test_a_concentration_must_be_positive_and_finite(concentration):
    with pytest.raises(InvalidInput, match="concentration"):
        dirichlet_partition(np.zeros(40, dtype=np.int64), 2, concentration, stream())
    with pytest.raises(InvalidInput, match="concentration"):
        skew_labels([np.zeros(40, dtype=np.int64)], concentration, stream())


def test_skew_refuses_a_client_without_samples():
    with pytest.raises(InvalidInput, match="client 1"):
        skew_labels([np.zeros(4, dtype=np.int64), np.zeros(0, dtype=np.int64)], 1.0, stream())
