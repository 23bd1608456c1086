import pytest
import torch

from vpdr.data.quickstart import make_blobs
from vpdr.rng import Streams
from vpdr.validation import InvalidInput


def test_blobs_have_the_requested_shapes_and_labels():
    shards = make_blobs(3, 4, 5, 6, Streams(0))
    assert len(shards) == 3
    for train_x, train_y, test_x, test_y in shards:
        assert train_x.shape == test_x.shape == (24, 5)
        assert train_y.bincount().tolist() == test_y.bincount().tolist() == [6] * 4


def test_classes_are_separable_and_clients_differ_by_the_shift():
    near, far = (make_blobs(2, 5, 32, 200, Streams(1), shift=shift) for shift in (0.0, 3.0))
    for shard in far:
        centres = torch.stack([shard.train_x[shard.train_y == c].mean(0) for c in range(5)])
        guess = torch.cdist(shard.test_x, centres).argmin(1)
        assert (guess == shard.test_y).float().mean() > 0.95
    gap = [(a.train_x.mean(0) - b.train_x.mean(0)).norm() for a, b in (near, far)]
    assert gap[0] < 1
    assert gap[1] > 10


def test_another_number_of_clients_does_not_change_the_first():
    few, many = make_blobs(1, 3, 4, 5, Streams(2)), make_blobs(4, 3, 4, 5, Streams(2))
    assert torch.equal(few[0].train_x, many[0].train_x)
    assert not torch.equal(many[0].train_x, many[1].train_x)


def test_a_size_of_zero_is_refused():
    with pytest.raises(InvalidInput, match="at least one client"):
        make_blobs(1, 3, 0, 5, Streams(0))
