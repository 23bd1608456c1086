from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch

from vpdr.cache import default_folder
from vpdr.encoder import Backbone, cache, cached_pooled, load_backbone
from vpdr.encoder.cache import cache_key
from vpdr.errors import InvalidInput


@pytest.fixture
def images():
    return np.random.default_rng(3).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)


@dataclass(frozen=True, kw_only=True, eq=False)
class Counting(Backbone):
    """A stand-in whose features cost nothing and whose calls are counted."""

    calls: list[int]

    def pooled(self, raw, *, rows=None, batch=0, progress=None):
        self.calls.append(len(rows))
        return torch.full((len(rows), 1280), float(self.pixels) + len(self.calls))


def counting_with(lite0, **changes):
    parts = {field.name: getattr(lite0, field.name) for field in fields(Backbone)}
    return Counting(**{**parts, "digest": "counting", **changes}, calls=[])


@pytest.fixture
def counting(lite0):
    return counting_with(lite0)


def test_the_second_time_nothing_is_computed(tmp_path, images, counting):
    heard = []
    first = cached_pooled(counting, images, folder=tmp_path / "new" / "folder")
    second = cached_pooled(
        counting, images, folder=tmp_path / "new" / "folder", progress=lambda *at: heard.append(at)
    )
    assert torch.equal(first, second)
    assert len(counting.calls) == 1
    assert heard == [(3, 3)]


def test_kept_features_are_for_their_owner_only(tmp_path, images, counting):
    cached_pooled(counting, images, folder=tmp_path)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_real_features_survive_the_disk_bit_for_bit(tmp_path, images, lite0):
    computed = cached_pooled(lite0, images, pixels=64, folder=tmp_path)
    assert torch.equal(computed, cached_pooled(lite0, images, pixels=64, folder=tmp_path))
    assert torch.equal(computed, lite0.at(64).pooled(images))


def key(backbone, images):
    return cache_key(backbone, backbone.inputs(images), torch.arange(len(images)))


def test_weights_sight_and_pictures_are_all_in_the_name(images, lite0):
    keys = {key(lite0.at(64), images), key(lite0.at(96), images)}
    changed = images.copy()
    changed[0, 0, 0, 0] ^= 1
    keys.add(key(lite0.at(64), changed))
    keys.add(key(lite0.at(64), images.reshape(3, 8, 32, 3)))
    keys.add(key(replace(lite0.at(64), digest="other"), images))
    keys.add(key(load_backbone("efficientnet_lite0", pixels=64, normalisation="imagenet"), images))
    assert len(keys) == 6
    assert key(lite0.at(64), images) in keys


def test_texts_are_named_by_their_tokens(minilm, tmp_path):
    keys = {key(minilm, texts) for texts in (["a b", "c"], ["a", "b c"], ["c", "a b"], ["a b c"])}
    assert len(keys) == 4
    texts = ["some words", "more words than before", "few"]
    made = cached_pooled(minilm, texts, folder=tmp_path)
    assert torch.equal(made, cached_pooled(minilm, tuple(texts), folder=tmp_path))
    torch.testing.assert_close(made, minilm.pooled(texts))


def test_an_interrupted_computation_goes_on_at_its_last_whole_chunk(tmp_path, lite0, monkeypatch):
    monkeypatch.setattr(cache, "CHUNK", 2)
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    first, heard = counting_with(lite0), []

    def stop(done, total):
        heard.append((done, total))

    monkeypatch.setattr(cache, "store", once_then_fail(cache.store))
    with pytest.raises(KeyboardInterrupt):
        cached_pooled(first, images, folder=tmp_path, progress=stop)
    assert first.calls == [2, 2]
    monkeypatch.undo()
    monkeypatch.setattr(cache, "CHUNK", 2)
    second = counting_with(lite0)
    made = cached_pooled(second, images, folder=tmp_path, progress=stop)
    assert second.calls == [2, 1]
    assert heard[0] == (2, 5)
    assert made[:, 0].tolist() == [225, 225, 225, 225, 226]


def once_then_fail(store):
    done = []

    def wrapped(path, arrays):
        if done:
            raise KeyboardInterrupt
        done.append(path)
        store(path, arrays)

    return wrapped


def test_pictures_are_read_from_a_memory_map(tmp_path, lite0, images):
    mapped = np.memmap(tmp_path / "pictures", np.uint8, "w+", shape=images.shape)
    mapped[:] = images
    assert key(lite0, mapped) == key(lite0, images)
    assert torch.equal(lite0.at(32).pooled(mapped), lite0.at(32).pooled(images))
    rows = torch.tensor([2, 0])
    taken = lite0.inputs(mapped).take(rows)
    assert torch.equal(taken.batch(torch.tensor([0])), lite0.inputs(images).batch(torch.tensor([2])))
    assert len(taken.take(torch.tensor([1]))) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: b"",
        lambda c: c[:10],
        lambda c: c[:-1],
        lambda c: c[:-1] + bytes([c[-1] ^ 1]),
        lambda c: c + b"x",
    ],
)
def test_a_damaged_file_is_computed_anew_and_mended(tmp_path, images, counting, damage):
    first = cached_pooled(counting, images, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    again = cached_pooled(counting, images, folder=tmp_path)
    assert len(counting.calls) == 2
    assert not torch.equal(first, again)
    assert torch.equal(again, cached_pooled(counting, images, folder=tmp_path))
    assert len(counting.calls) == 2


def test_the_default_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("VPDR_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv("VPDR_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "vpdr"


def test_a_folder_that_cannot_be_is_one_line(tmp_path, images, counting):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InvalidInput, match="cannot"):
        cached_pooled(counting, images, folder=tmp_path / "file")
