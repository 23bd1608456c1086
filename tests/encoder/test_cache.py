import numpy as np
import pytest
import torch

from vpdr.cache import default_folder
from vpdr.encoder import EfficientNetLite0, cached_pooled
from vpdr.encoder.cache import cache_key
from vpdr.errors import InvalidInput


@pytest.fixture
def images():
    return np.random.default_rng(3).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)


class Counting(EfficientNetLite0):
    """A stand-in whose features cost nothing and whose calls are counted."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.digest = "counting"

    def pooled(self, images, *, pixels=96, batch=16, progress=None):
        self.calls += 1
        return torch.full((len(images), 1280), float(pixels) + self.calls)


@pytest.fixture
def counting():
    return Counting()


def test_the_second_time_nothing_is_computed(tmp_path, images, counting):
    heard = []
    first = cached_pooled(counting, images, folder=tmp_path / "new" / "folder")
    second = cached_pooled(
        counting, images, folder=tmp_path / "new" / "folder", progress=lambda *at: heard.append(at)
    )
    assert torch.equal(first, second)
    assert counting.calls == 1
    assert heard == [(3, 3)]


def test_kept_features_are_for_their_owner_only(tmp_path, images, counting):
    cached_pooled(counting, images, folder=tmp_path)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_real_features_survive_the_disk_bit_for_bit(tmp_path, images, lite0):
    computed = cached_pooled(lite0, images, pixels=64, folder=tmp_path)
    assert torch.equal(computed, cached_pooled(lite0, images, pixels=64, folder=tmp_path))
    assert torch.equal(computed, lite0.pooled(images, pixels=64))


def test_weights_size_and_pictures_are_all_in_the_name(images, counting):
    keys = {cache_key(counting, images, 64), cache_key(counting, images, 96)}
    changed = images.copy()
    changed[0, 0, 0, 0] ^= 1
    keys.add(cache_key(counting, changed, 64))
    keys.add(cache_key(counting, images.reshape(3, 8, 32, 3), 64))
    counting.digest = "other"
    keys.add(cache_key(counting, images, 64))
    assert len(keys) == 5


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
    assert counting.calls == 2
    assert not torch.equal(first, again)
    assert torch.equal(again, cached_pooled(counting, images, folder=tmp_path))
    assert counting.calls == 2


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


def test_a_network_without_weights_has_no_cache(tmp_path, images):
    with pytest.raises(InvalidInput, match="use load_lite0"):
        cached_pooled(EfficientNetLite0(), images, folder=tmp_path)
