from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch

from vpdr.encoder.backbone import Backbone, cached_pooled_features, feature_cache_key
from vpdr.encoder.zoo import load_backbone
from vpdr.io import default_cache_dir, save_arrays
from vpdr.validation import InvalidInput


@pytest.fixture
def images():
    return np.random.default_rng(3).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)


@dataclass(frozen=True, kw_only=True, eq=False)
class CountingBackbone(Backbone):
    """A backbone with constant features that counts its calls."""

    calls: list[int]

    def pooled_features(self, raw, *, rows=None, batch_size=0, progress=None):
        self.calls.append(len(rows))
        return torch.full((len(rows), 1280), float(self.pixels) + len(self.calls))


def make_counting(lite0, **changes):
    parts = {field.name: getattr(lite0, field.name) for field in fields(Backbone)}
    return CountingBackbone(**{**parts, "digest": "counting", **changes}, calls=[])


@pytest.fixture
def counting(lite0):
    return make_counting(lite0)


def test_cached_features_are_not_computed_again(tmp_path, images, counting):
    reports = []
    first = cached_pooled_features(counting, images, cache_dir=tmp_path / "new" / "directory")
    second = cached_pooled_features(
        counting, images, cache_dir=tmp_path / "new" / "directory", progress=lambda *done: reports.append(done)
    )
    assert torch.equal(first, second)
    assert len(counting.calls) == 1
    assert reports == [(3, 3)]


def test_cached_features_are_for_their_owner_only(tmp_path, images, counting):
    cached_pooled_features(counting, images, cache_dir=tmp_path)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_cached_features_equal_computed_ones_bit_for_bit(tmp_path, images, lite0):
    computed = cached_pooled_features(lite0, images, pixels=64, cache_dir=tmp_path)
    assert torch.equal(computed, cached_pooled_features(lite0, images, pixels=64, cache_dir=tmp_path))
    assert torch.equal(computed, lite0.with_pixels(64).pooled_features(images))


def key(backbone, images):
    return feature_cache_key(backbone, backbone.make_inputs(images), torch.arange(len(images)))


def test_the_key_depends_on_weights_preprocessing_and_images(images, lite0):
    keys = {key(lite0.with_pixels(64), images), key(lite0.with_pixels(96), images)}
    changed = images.copy()
    changed[0, 0, 0, 0] ^= 1
    keys.add(key(lite0.with_pixels(64), changed))
    keys.add(key(lite0.with_pixels(64), images.reshape(3, 8, 32, 3)))
    keys.add(key(replace(lite0.with_pixels(64), digest="other"), images))
    keys.add(key(load_backbone("efficientnet_lite0", pixels=64, normalisation="imagenet"), images))
    assert len(keys) == 6
    assert key(lite0.with_pixels(64), images) in keys


def test_the_key_of_texts_depends_on_their_tokens(minilm, tmp_path):
    keys = {key(minilm, texts) for texts in (["a b", "c"], ["a", "b c"], ["c", "a b"], ["a b c"])}
    assert len(keys) == 4
    texts = ["some words", "more words than before", "few"]
    features = cached_pooled_features(minilm, texts, cache_dir=tmp_path)
    assert torch.equal(features, cached_pooled_features(minilm, tuple(texts), cache_dir=tmp_path))
    torch.testing.assert_close(features, minilm.pooled_features(texts))


def test_an_interrupted_computation_continues_after_its_last_complete_chunk(tmp_path, lite0, monkeypatch):
    monkeypatch.setattr("vpdr.encoder.backbone.CHUNK_SIZE", 2)
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    first, reports = make_counting(lite0), []

    def record(done, total):
        reports.append((done, total))

    monkeypatch.setattr("vpdr.encoder.backbone.save_arrays", once_then_fail(save_arrays))
    with pytest.raises(KeyboardInterrupt):
        cached_pooled_features(first, images, cache_dir=tmp_path, progress=record)
    assert first.calls == [2, 2]
    monkeypatch.undo()
    monkeypatch.setattr("vpdr.encoder.backbone.CHUNK_SIZE", 2)
    second = make_counting(lite0)
    features = cached_pooled_features(second, images, cache_dir=tmp_path, progress=record)
    assert second.calls == [2, 1]
    assert reports[0] == (2, 5)
    assert features[:, 0].tolist() == [225, 225, 225, 225, 226]


def once_then_fail(save):
    done = []

    def wrapped(path, arrays):
        if done:
            raise KeyboardInterrupt
        done.append(path)
        save(path, arrays)

    return wrapped


def test_images_are_read_from_a_memory_map(tmp_path, lite0, images):
    mapped = np.memmap(tmp_path / "images", np.uint8, "w+", shape=images.shape)
    mapped[:] = images
    assert key(lite0, mapped) == key(lite0, images)
    assert torch.equal(lite0.with_pixels(32).pooled_features(mapped), lite0.with_pixels(32).pooled_features(images))
    rows = torch.tensor([2, 0])
    subset = lite0.make_inputs(mapped).take(rows)
    assert torch.equal(subset.batch(torch.tensor([0])), lite0.make_inputs(images).batch(torch.tensor([2])))
    assert len(subset.take(torch.tensor([1]))) == 1


@pytest.mark.parametrize(
    "damage",
    [lambda c: b"", lambda c: c[:10], lambda c: c[:-1], lambda c: c[:-1] + bytes([c[-1] ^ 1]), lambda c: c + b"x"],
)
def test_a_damaged_file_is_computed_and_written_again(tmp_path, images, counting, damage):
    first = cached_pooled_features(counting, images, cache_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(damage(content))
    second = cached_pooled_features(counting, images, cache_dir=tmp_path)
    assert len(counting.calls) == 2
    assert not torch.equal(first, second)
    assert torch.equal(second, cached_pooled_features(counting, images, cache_dir=tmp_path))
    assert len(counting.calls) == 2


def test_the_default_directory_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("VPDR_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path
    monkeypatch.delenv("VPDR_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "vpdr"


def test_a_directory_that_cannot_be_created_is_one_line(tmp_path, images, counting):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InvalidInput, match="cannot"):
        cached_pooled_features(counting, images, cache_dir=tmp_path / "file")
