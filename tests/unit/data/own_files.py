"""Writes small data of a user's own in every kind and format."""

import csv
import json

import numpy as np
import pytest

from tests.unit.data.format_files import write_image

TOPICS = {"business": "shares fell on friday", "sport": "the cup final was won"}
CLIENTS = ("north", "south")


def features(samples=48, dim=6, classes=2):
    """Features around two centres, labels, and a client for each."""
    labels = np.arange(samples) % classes
    x = np.random.default_rng(0).normal(size=(samples, dim)) + 3 * np.eye(dim)[labels]
    return x.astype(np.float32), labels, np.array(CLIENTS)[np.arange(samples) // 2 % 2]


def write_features(path):
    """One file in the format of its suffix."""
    x, labels, clients = features()
    names = np.array(list(TOPICS))[labels]
    if path.suffix == ".npz":
        np.savez(path, x=x, y=names, client=clients)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([*(f"f{column}" for column in range(x.shape[1])), "label", "client"])
            rows.writerows([*row.tolist(), *rest] for row, *rest in zip(x, names, clients, strict=True))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = {"embedding": [row.tolist() for row in x], "label": names.tolist(), "client": clients.tolist()}
        parquet.write_table(pyarrow.table(columns), path)
    return path


def text_rows(samples=48):
    names = list(TOPICS)
    return [
        {"text": f"{TOPICS[names[n % 2]]}, said source {n}", "label": names[n % 2], "client": CLIENTS[n // 2 % 2]}
        for n in range(samples)
    ]


def write_texts(path):
    rows = text_rows()
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_folder(root, domains=CLIENTS, classes=("cat", "dog"), each=12):
    for number, (domain, label) in enumerate([(domain, label) for domain in domains for label in classes]):
        for index in range(each):
            write_image(root / domain / label / f"{index:02d}.png", size=(36, 32), seed=100 * number + index)
    return root


def write_hugging_face(root, kind):
    """A dataset of images, texts or features, saved to disk."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    rows = text_rows()
    columns = {"label": [row["label"] for row in rows], "client": [row["client"] for row in rows]}
    types = {"label": datasets.ClassLabel(names=["sport", "business"]), "client": datasets.Value("string")}
    if kind == "image":
        paths = []
        for number in range(len(rows)):
            paths.append(root.with_name("images") / f"{number}.png")
            write_image(paths[-1], seed=number)
        columns["picture"] = [{"bytes": path.read_bytes(), "path": None} for path in paths]
        types["picture"] = datasets.Image()
    elif kind == "text":
        columns["text"], types["text"] = [row["text"] for row in rows], datasets.Value("string")
    else:
        columns["vector"] = [row.tolist() for row in features()[0]]
        types["vector"] = datasets.List(datasets.Value("float32"))
    whole = datasets.Dataset.from_dict(columns, features=datasets.Features(types))
    test = [row for row in range(len(rows)) if row % 8 in (0, 3, 5, 6)]  # both classes of both clients
    train = [row for row in range(len(rows)) if row not in test]
    datasets.DatasetDict({"train": whole.select(train), "test": whole.select(test)}).save_to_disk(root)
    return root
