"""Writes small files in the formats of the public datasets."""

import bz2
import gzip
import pickle
import struct

import numpy as np


def noise(count, *shape, seed=0):
    return np.random.default_rng(seed).integers(256, size=(count, *shape), dtype=np.uint8)


def labels_of(count, classes=10):
    return (np.arange(count) % classes).astype(np.uint8)


def published_sizes(spec):
    """The published numbers of samples of a domain: training and test, or all."""
    return (sum(spec.train), sum(spec.test)) if spec.test else (sum(spec.train),)


def write_compressed(path, content):
    """Write bytes, compressed if the suffix says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    compress = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(compress(content))


def write_idx(path, array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    write_compressed(path, header + array.tobytes())


def write_mnist_idx(directory, suffix="", separator="-", train=20, test=10):
    for part, count, seed in (("train", train, 0), ("t10k", test, 1)):
        write_idx(directory / f"{part}-images{separator}idx3-ubyte{suffix}", noise(count, 28, 28, seed=seed))
        write_idx(directory / f"{part}-labels{separator}idx1-ubyte{suffix}", labels_of(count))


def write_digits_npz(path, side=28, train=20, test=10):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        x_train=noise(train, side, side),
        y_train=labels_of(train),
        x_test=noise(test, side, side, seed=1),
        y_test=labels_of(test),
    )


def write_usps_h5(path, train=20, test=10):
    import h5py

    with h5py.File(path, "w") as file:
        for part, count, seed in (("train", train, 0), ("test", test, 1)):
            group = file.create_group(part)
            group["data"] = (noise(count, 256, seed=seed) / 255).astype(np.float32)
            group["target"] = labels_of(count).astype(np.int32)


def write_usps_libsvm(directory, train=20, test=10):
    for name, count, seed in (("usps.bz2", train, 0), ("usps.t.bz2", test, 1)):
        lines = []
        for label, row in zip(labels_of(count), noise(count, 256, seed=seed), strict=True):
            values = " ".join(f"{i}:{x / 127.5 - 1:.6f}" for i, x in enumerate(row, 1))
            lines.append(f"{label + 1} {values} ")
        write_compressed(directory / name, "\n".join(lines).encode() + b"\n")


def write_svhn_mat(directory, train=20, test=10):
    from scipy.io import savemat

    directory.mkdir(parents=True, exist_ok=True)
    for part, count, seed in (("train", train, 0), ("test", test, 1)):
        labels = labels_of(count).astype(np.int64)
        content = {
            "X": noise(count, 32, 32, 3, seed=seed).transpose(1, 2, 3, 0),
            "y": np.where(labels == 0, 10, labels)[:, None],
        }
        savemat(directory / f"{part}_32x32.mat", content)


def write_image(path, size=(20, 16), seed=0, mode="RGB"):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise(size[1], size[0], 3, seed=seed)).convert(mode).save(path)


def write_class_directories(directory, classes, each=2, suffix=".jpg", start=0):
    for number, name in enumerate(classes):
        for index in range(each):
            write_image(directory / name / f"pic_{start + index:03d}{suffix}", seed=100 * number + index + start)


BATCHES = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]


def write_cifar_python(directory, each=10):
    """The published format: pickled by Python 2, whose strings are bytes, with numpy's old module."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(BATCHES):
        batch = noise(each, 3072, seed=number)
        array = (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
            + b"M"
            + struct.pack("<H", each)
            + b"M"
            + struct.pack("<H", 3072)
            + b"\x86"
            + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN"
            + 2 * b"J\xff\xff\xff\xff"
            + b"K\x00tb"
            + b"\x89T"
            + struct.pack("<i", batch.size)
            + batch.tobytes()
            + b"tb"
        )
        labels = b"](" + b"".join(b"K" + bytes([label]) for label in labels_of(each)) + b"e"
        content = b"\x80\x02}(U\x04data" + array + b"U\x06labels" + labels + b"u."
        (directory / name).write_bytes(content)


def write_cifar_python_3(directory, each=10):
    """Pickled again by Python 3."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(BATCHES):
        batch = {"data": noise(each, 3072, seed=number), "labels": labels_of(each).tolist()}
        (directory / name).write_bytes(pickle.dumps(batch, protocol=2))


def write_cifar_binary(directory, each=10):
    directory.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(BATCHES):
        records = np.concatenate([labels_of(each)[:, None], noise(each, 3072, seed=number)], axis=1)
        (directory / f"{name}.bin").write_bytes(records.tobytes())
