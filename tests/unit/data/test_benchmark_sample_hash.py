"""Splits in which every sample is assigned by itself: another sample, or another label, moves no other row."""

from dataclasses import replace

import numpy as np
import pytest

from vpdr.data.benchmark import Benchmark, ImageDomain, LabelledDomain, Split, SplitConfig, TextDomain, split_benchmark
from vpdr.rng import Streams
from vpdr.validation import InvalidInput

KEY = b"k" * 32
SAMPLES, CLASSES = 750, 10
BY_ROW = SplitConfig(assignment="sample_hash", validation_fraction=0.1, train_fraction=0.9)
BY_CONTENT = replace(BY_ROW, identity="content")


def benchmark(labels: np.ndarray, images: np.ndarray, domains: int = 1) -> Benchmark:
    parts = zip(np.array_split(labels, domains), np.array_split(images, domains), strict=True)
    return Benchmark(
        name="toy",
        classes=CLASSES,
        class_names=tuple("abcdefghij"),
        domains=tuple(ImageDomain(name=f"d{n}", labels=y, images=x) for n, (y, x) in enumerate(parts)),
    )


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(CLASSES, size=SAMPLES), rng.integers(256, size=(SAMPLES, 2, 2, 3), dtype=np.uint8)


def parts_by_row(split: Split) -> dict[int, set[tuple[str, str]]]:
    """Where each row is."""
    places: dict[int, set[tuple[str, str]]] = {}
    for each in split.client_splits:
        for part in ("train", "validation", "test"):
            for row in getattr(each, part).tolist():
                places.setdefault(row, set()).add((each.client, part))
    return places


@pytest.mark.parametrize(
    "config", [BY_ROW, BY_CONTENT, replace(BY_ROW, per_domain=3), replace(BY_CONTENT, per_domain=3)]
)
@pytest.mark.parametrize("row", [0, 17, SAMPLES - 1])
def test_one_changed_sample_moves_no_other_row(config, row) -> None:
    labels, images = data()
    before = parts_by_row(split_benchmark(benchmark(labels, images, 2), config, Streams(0), key=KEY))
    for label in range(CLASSES):
        other_labels, other_images = labels.copy(), images.copy()
        other_labels[row], other_images[row] = label, 255 - images[row] + label
        after = parts_by_row(split_benchmark(benchmark(other_labels, other_images, 2), config, Streams(0), key=KEY))
        assert {each: place for each, place in after.items() if each != row} == {
            each: place for each, place in before.items() if each != row
        }
        if config.identity == "row":
            assert after.get(row) == before.get(row)  # the size of every part is public


def test_a_proportional_split_moves_other_rows() -> None:
    """What a label-dependent split with a public seed does: the reason for the other one."""
    labels, images = data()
    before = set(split_benchmark(benchmark(labels, images), SplitConfig(), Streams(0)).client_splits[0].train.tolist())
    moved = 0
    for label in range(CLASSES):
        other = labels.copy()
        other[0] = label
        after = set(
            split_benchmark(benchmark(other, images), SplitConfig(), Streams(0)).client_splits[0].train.tolist()
        )
        moved = max(moved, len(before - after - {0}))
    assert moved > 20


def test_one_removed_sample_moves_no_other_one() -> None:
    labels, images = data()
    kept = np.arange(SAMPLES) != 5
    whole = parts_by_row(split_benchmark(benchmark(labels, images), BY_CONTENT, Streams(0), key=KEY))
    less = parts_by_row(split_benchmark(benchmark(labels[kept], images[kept]), BY_CONTENT, Streams(0), key=KEY))
    assert less == {row - (row > 5): place for row, place in whole.items() if row != 5}


def test_the_shares_are_met_on_average() -> None:
    labels, images = data()
    (client,) = split_benchmark(benchmark(labels, images), BY_ROW, Streams(0), key=KEY).client_splits
    assert len(client.test) == pytest.approx(0.2 * SAMPLES, abs=50)
    assert len(client.validation) == pytest.approx(0.8 * 0.1 * SAMPLES, abs=35)
    assert len(client.train) == pytest.approx(0.8 * 0.9 * 0.9 * SAMPLES, abs=60)
    rows = np.concatenate([client.train, client.validation, client.test])
    assert len(np.unique(rows)) == len(rows)
    assert all(np.all(np.diff(part) > 0) for part in (client.train, client.validation, client.test))
    three = split_benchmark(benchmark(labels, images), replace(BY_ROW, per_domain=3), Streams(0), key=KEY)
    assert [each.client for each in three.client_splits] == ["d0-1", "d0-2", "d0-3"]
    trained = np.concatenate([each.train for each in three.client_splits])
    assert len(np.unique(trained)) == len(trained)


def test_the_key_and_the_seed_decide() -> None:
    labels, images = data()
    splits = [
        parts_by_row(split_benchmark(benchmark(labels, images), BY_ROW, Streams(seed), key=key))
        for seed, key in ((0, KEY), (0, KEY), (1, KEY), (0, b"x" * 32), (0, None), (1, None))
    ]
    assert splits[0] == splits[1] == splits[2]  # a key of the owner's: no seed of a server matters
    assert len({str(sorted(each.items())) for each in splits}) == 4


def test_a_published_test_set_stays_one() -> None:
    labels, images = data()
    domain = ImageDomain(name="d", labels=labels, images=images, official_test=np.arange(100))
    toy = replace(benchmark(labels, images), domains=(domain,))
    (client,) = split_benchmark(toy, BY_ROW, Streams(0), key=KEY).client_splits
    assert client.test.tolist() == list(range(100))


def test_texts_have_a_content_and_labels_have_none() -> None:
    labels, _ = data()
    texts = tuple(f"text {n}" for n in range(SAMPLES))
    toy = replace(benchmark(*data()), domains=(TextDomain(name="t", labels=labels, texts=texts),))
    (client,) = split_benchmark(toy, BY_CONTENT, Streams(0), key=KEY).client_splits
    assert len(client.train) > len(client.test) > 0
    bare = replace(toy, domains=(LabelledDomain(name="t", labels=labels),))
    with pytest.raises(InvalidInput, match="needs the samples"):
        split_benchmark(bare, BY_CONTENT, Streams(0), key=KEY)


@pytest.mark.parametrize("change", [{"skew": "label"}, {"skew": "pooled"}, {"test": "local"}])
def test_a_split_by_labels_cannot_be_sample_by_sample(change) -> None:
    with pytest.raises(InvalidInput, match="sample_hash"):
        replace(BY_ROW, **change)


def test_a_client_may_get_nothing() -> None:
    """How many samples there are is private under add-remove: an empty part is no error."""
    labels = np.arange(CLASSES)
    for count in (1, 0):
        domain = ImageDomain(name="d", labels=labels[:count], images=np.zeros((count, 2, 2, 3), np.uint8))
        toy = Benchmark(name="toy", classes=CLASSES, class_names=tuple("abcdefghij"), domains=(domain,))
        (client,) = split_benchmark(toy, BY_CONTENT, Streams(0), key=KEY).client_splits
        assert len(client.train) + len(client.test) + len(client.validation) <= count
