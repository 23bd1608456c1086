"""Features of a run at some of its rounds: the run is played again, which gives the same features."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client import Client, Samples
from vpdr.engines.build import build
from vpdr.engines.simulate import Course, simulate
from vpdr.files import write_atomically
from vpdr.plan import Plan

Seen = tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]
Album = dict[int, dict[str, Seen]]  # round -> client -> features and labels


def features_of(plan: Plan, rounds: Sequence[int], *, test: bool, folder: Path) -> Album:
    """What each client's own encoder makes of its training or test samples after these rounds (0: at first).

    Private: kept in the run's folder for its owner only, so that the figure can be drawn again.
    """
    file = folder / f"features-{'test' if test else 'train'}-{'-'.join(map(str, rounds))}.npz"
    if file.exists():
        return _loaded(file)
    federation = build(plan)
    album: Album = {}

    def look(course: Course) -> None:
        if course.done in rounds:
            album[course.done] = {client.id: _seen(client, test=test) for client in federation.clients}

    look(Course(0, {}, []))
    simulate(federation, watchers=[look])
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, _packed(album), mode=0o600)
    return album


def _seen(client: Client, *, test: bool) -> Seen:
    samples: Samples = client.shard.test if test else client.shard.train
    return client.personal_features(samples).clone(), samples.labels


def _packed(album: Album) -> bytes:
    arrays: dict[str, Any] = {}
    for t, clients in album.items():
        for name, (vectors, labels) in clients.items():
            arrays[f"{t}/{name}/x"], arrays[f"{t}/{name}/y"] = vectors.numpy(), labels.numpy()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _loaded(file: Path) -> Album:
    album: Album = {}
    with np.load(file, allow_pickle=False) as arrays:
        for key in arrays.files:
            t, name, part = key.split("/")
            if part == "x":
                labels = torch.from_numpy(arrays[f"{t}/{name}/y"])
                album.setdefault(int(t), {})[name] = (torch.from_numpy(arrays[key]), labels)
    return album
