"""Pictures are decoded once, and what lies in the cache is whole or not there."""

import tracemalloc

import numpy as np
import pytest
from PIL import Image

from tests.data.format_files import class_folders, picture
from vpdr.data import SOURCES, rasters
from vpdr.data.picture_cache import cached_pictures
from vpdr.data.rasters import PictureFiles, Stack

PACS = SOURCES["pacs"]


@pytest.fixture
def files(tmp_path):
    for number in range(5):
        picture(tmp_path / "in" / f"{number}.png", size=(30 + number, 20), seed=number)
    return sorted((tmp_path / "in").iterdir())


def cached(files, folder, pixels=16, heard=None):
    def told(done, total):
        if heard is not None:
            heard.append((done, total))

    return cached_pictures(PictureFiles(files), "x", pixels=pixels, progress=told, folder=folder)


def test_pictures_are_what_pillow_makes_of_them(files, tmp_path):
    heard = []
    images = cached(files, tmp_path / "cache", heard=heard)
    assert isinstance(images, np.memmap)
    assert heard[-1] == (5, 5)
    for path, image in zip(files, images, strict=True):
        with Image.open(path) as opened:
            expected = opened.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR)
        assert np.array_equal(image, np.asarray(expected))


def test_they_are_decoded_once_and_another_size_is_another_file(files, tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    first = np.array(cached(files, folder))
    cached(files, folder, pixels=8)
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(rasters, "_decoded", lambda path: pytest.fail("decoded again"))
    assert np.array_equal(cached(files, folder), first)


def test_another_picture_under_the_same_name_is_noticed(files, tmp_path):
    folder = tmp_path / "cache"
    first = np.array(cached(files, folder))
    picture(files[2], size=(33, 21), seed=99)
    second = cached(files, folder)
    assert not np.array_equal(first[2], second[2])
    assert np.array_equal(first[3], second[3])


def test_an_interrupted_call_leaves_nothing_and_the_next_one_does_it_all(files, tmp_path, monkeypatch):
    folder, real = tmp_path / "cache", rasters._decoded

    def stop(path):
        if path == files[3]:
            raise KeyboardInterrupt
        return real(path)

    monkeypatch.setattr(rasters, "_decoded", stop)
    with pytest.raises(KeyboardInterrupt):
        cached(files, folder)
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(rasters, "_decoded", real)
    assert len(cached(files, folder)) == 5


@pytest.mark.parametrize("damage", [lambda b: b[:-10], lambda b: b"", lambda b: b"odd" + b[3:]])
def test_a_damaged_cache_file_is_made_again(files, tmp_path, damage):
    folder = tmp_path / "cache"
    first = np.array(cached(files, folder))
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert np.array_equal(cached(files, folder), first)


def test_small_arrays_are_reduced_and_never_enlarged(tmp_path):
    grey = np.random.default_rng(0).integers(256, size=(3, 28, 28), dtype=np.uint8)
    stack = Stack(grey, "x")
    for pixels, side in ((224, 28), (28, 28), (14, 14)):
        images = cached_pictures(stack, "x", pixels=pixels, progress=lambda *_: None, folder=tmp_path)
        assert images.shape == (3, side, side, 3)
    assert np.array_equal(images[0, ..., 0], np.asarray(Image.fromarray(grey[0]).resize((14, 14), 2)))


def test_a_cache_file_is_for_its_owner_only(files, tmp_path):
    cached(files, tmp_path / "cache")
    (path,) = (tmp_path / "cache").iterdir()
    assert path.stat().st_mode & 0o077 == 0


def test_a_labels_roll_decodes_nothing(tmp_path, monkeypatch):
    for name in ("photo", "art", "cartoon", "sketch"):
        class_folders(tmp_path / name, PACS.class_names, each=1)
    monkeypatch.setattr(rasters, "_decoded", lambda path: pytest.fail("decoded"))
    assert len(PACS.roll(tmp_path).labels) == 28


def test_memory_holds_a_block_however_many_pictures_there_are(files, tmp_path):
    many = files * 80  # 60 MB of pixels
    tracemalloc.start()
    try:
        images = cached(many, tmp_path / "cache", pixels=224)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert images.nbytes > 60e6
    assert peak < 30e6
