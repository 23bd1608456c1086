"""Images are decoded once, and a cache file is complete or absent."""

import tracemalloc

import numpy as np
import pytest
from PIL import Image

from tests.unit.data.format_files import write_class_directories, write_image
from vpdr.data import BENCHMARK_SPECS
from vpdr.data import images as images_module
from vpdr.data.images import ImageArray, ImageFiles
from vpdr.data.spec import cached_images

PACS = BENCHMARK_SPECS["pacs"]


@pytest.fixture
def files(tmp_path):
    for number in range(5):
        write_image(tmp_path / "in" / f"{number}.png", size=(30 + number, 20), seed=number)
    return sorted((tmp_path / "in").iterdir())


def no_progress(done, total):
    pass


def cached(files, cache_dir, pixels=16, progress=no_progress):
    return cached_images(ImageFiles(files), "x", pixels=pixels, progress=progress, cache_dir=cache_dir)


def test_images_are_decoded_and_resized_as_pillow_does(files, tmp_path):
    reports = []
    images = cached(files, tmp_path / "cache", progress=lambda *done: reports.append(done))
    assert isinstance(images, np.memmap)
    assert reports[-1] == (5, 5)
    for path, image in zip(files, images, strict=True):
        with Image.open(path) as opened:
            expected = opened.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR)
        assert np.array_equal(image, np.asarray(expected))


def test_images_are_decoded_once_and_another_size_is_another_file(files, tmp_path, monkeypatch):
    cache_dir = tmp_path / "cache"
    first = np.array(cached(files, cache_dir))
    cached(files, cache_dir, pixels=8)
    assert len(list(cache_dir.iterdir())) == 2
    monkeypatch.setattr(images_module, "_decode", lambda path: pytest.fail("decoded again"))
    assert np.array_equal(cached(files, cache_dir), first)


def test_another_image_under_the_same_name_is_decoded(files, tmp_path):
    cache_dir = tmp_path / "cache"
    first = np.array(cached(files, cache_dir))
    write_image(files[2], size=(33, 21), seed=99)
    second = cached(files, cache_dir)
    assert not np.array_equal(first[2], second[2])
    assert np.array_equal(first[3], second[3])


def test_an_interrupted_call_leaves_nothing_and_the_next_one_succeeds(files, tmp_path, monkeypatch):
    cache_dir, real = tmp_path / "cache", images_module._decode

    def stop(path):
        if path == files[3]:
            raise KeyboardInterrupt
        return real(path)

    monkeypatch.setattr(images_module, "_decode", stop)
    with pytest.raises(KeyboardInterrupt):
        cached(files, cache_dir)
    assert list(cache_dir.iterdir()) == []
    monkeypatch.setattr(images_module, "_decode", real)
    assert len(cached(files, cache_dir)) == 5


@pytest.mark.parametrize("damage", [lambda b: b[:-10], lambda b: b"", lambda b: b"odd" + b[3:]])
def test_a_damaged_cache_file_is_written_again(files, tmp_path, damage):
    cache_dir = tmp_path / "cache"
    first = np.array(cached(files, cache_dir))
    (path,) = cache_dir.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert np.array_equal(cached(files, cache_dir), first)


def test_small_arrays_are_reduced_and_never_enlarged(tmp_path):
    grey = np.random.default_rng(0).integers(256, size=(3, 28, 28), dtype=np.uint8)
    source = ImageArray(grey, "x")
    for pixels, side in ((224, 28), (28, 28), (14, 14)):
        images = cached_images(source, "x", pixels=pixels, progress=no_progress, cache_dir=tmp_path)
        assert images.shape == (3, side, side, 3)
    assert np.array_equal(images[0, ..., 0], np.asarray(Image.fromarray(grey[0]).resize((14, 14), 2)))


def test_a_cache_file_is_for_its_owner_only(files, tmp_path):
    cached(files, tmp_path / "cache")
    (path,) = (tmp_path / "cache").iterdir()
    assert path.stat().st_mode & 0o077 == 0


def test_loading_labels_decodes_nothing(tmp_path, monkeypatch):
    for name in ("photo", "art", "cartoon", "sketch"):
        write_class_directories(tmp_path / name, PACS.class_names, each=1)
    monkeypatch.setattr(images_module, "_decode", lambda path: pytest.fail("decoded"))
    assert len(PACS.load_labels(tmp_path).labels) == 28


def test_memory_holds_one_block_however_many_images_there_are(files, tmp_path):
    many = files * 80  # 60 MB of pixels
    tracemalloc.start()
    try:
        images = cached(many, tmp_path / "cache", pixels=224)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert images.nbytes > 60e6
    assert peak < 30e6
