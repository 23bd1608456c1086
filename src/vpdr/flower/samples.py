"""A client's own data: where the owner says they are, and a fingerprint that never leaves the machine."""

import hashlib
import json
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client import Samples, Shard
from vpdr.client.usual import MOST
from vpdr.engines.seats import Seat, Seats, seat_at, seats_of
from vpdr.engines.trunks import member_of
from vpdr.errors import InvalidInput
from vpdr.flower.policy import DataTerms, Policy
from vpdr.flower.refusals import Code, Refused
from vpdr.plan.plan import Plan
from vpdr.plan.sections import BenchmarkSection
from vpdr.plan.values import merged
from vpdr.progress import quiet
from vpdr.rng import Streams

_BLOCK, _BLOCKS = 4096, 16  # of a large file in a folder; small ones, and files of features, count in full


def seat_of(policy: Policy, plan: Plan) -> tuple[Seat, int]:
    """The client's samples with what is frozen under them, and the public number of classes."""
    if policy.data.features:
        shard = _from_file(policy.data, plan.model.dim)
        return Seat(shard=shard, member=member_of(plan, max(policy.data.place, 0))), policy.data.classes
    if not policy.data.benchmark:
        raise Refused(Code.NO_POLICY, "the policy names no data: set data.features or data.benchmark")
    place = (policy.name, policy.data.place) if plan.model.family and policy.data.place >= 0 else None
    seats = _benchmark(json.dumps(at_home(policy, plan).to_data(), sort_keys=True), place)
    if policy.name not in seats.clients:
        raise Refused(Code.BENCHMARK, f"the benchmark has no client named {policy.name}")
    return seats.clients[policy.name], seats.classes


def at_home(policy: Policy, plan: Plan) -> Plan:
    """The plan as this machine reads it: every path is the owner's, whatever the plan says.

    Guarantee: where labels are private, so is the way to divide them: rows are those of the owner's manifest,
    and nothing of the plan's benchmark is read. A split that a server draws moves with each label.
    """
    data = policy.data
    own: dict[str, Any] = {"root": "", "manifest": "", **data.settings}
    if policy.divides:
        own = {**asdict(BenchmarkSection(kind=data.benchmark)), **own}
    changes = {"benchmark": own, "model": {"weights": data.weights}, "run": {"device": data.device}}
    return Plan.from_data(merged(plan.to_data(), changes))


@lru_cache(maxsize=1)  # simulated clients of one process share what they are cut from
def _benchmark(data: str, place: tuple[str, int] | None) -> Seats:
    plan = Plan.from_data(json.loads(data))
    streams = Streams(plan.run.seed)
    if place is None:
        return seats_of(plan, streams, quiet)
    return seat_at(plan, streams, quiet, dict([place]))


def _from_file(data: DataTerms, dim: int) -> Shard:
    """The owner's file, checked before anything of a plan but its dimension is looked at."""
    path = Path(data.features)
    try:
        with np.load(path, allow_pickle=False) as found:
            parts = [
                _samples(found[f"{part}_x"], found[f"{part}_y"], data.classes) for part in ("train", "test")
            ]
    except (OSError, KeyError, ValueError, TypeError) as error:
        wrong = f"{path} must hold train_x, train_y, test_x and test_y: {error}"
        raise Refused(Code.OWN_DATA, wrong) from error
    if any(part.public.shape[1] != dim for part in parts):
        raise Refused(Code.BENCHMARK, f"the plan has {dim} dimensions, {path} has {parts[0].public.shape[1]}")
    return Shard(*parts)


def _samples(rows: np.ndarray, labels: np.ndarray, classes: int) -> Samples:
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise InvalidInput(f"expected [n d] and n whole numbers, got {rows.shape} and {labels.shape}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise InvalidInput(f"expected labels from 0 to {classes - 1}, got some outside of it")
    if not bool((np.abs(rows) <= MOST).all()):
        raise InvalidInput(f"expected features of at most {MOST:g}, got NaN or larger ones")
    public: Float[Tensor, "n d"] = torch.from_numpy(rows.astype(np.float32))
    known: Int[Tensor, " n"] = torch.from_numpy(labels.astype(np.int64))
    return Samples(public, known)


def fingerprint(name: str, data: DataTerms) -> bytes:
    """A digest of the source itself, whatever a plan makes of it by its split, dimension or seed."""
    if data.features:
        return hashlib.sha256(Path(data.features).read_bytes()).digest()
    digest = hashlib.sha256(json.dumps([name, data.benchmark]).encode())
    for key, value in sorted(data.settings.items()):
        digest.update(key.encode() + b"=" + (_tree(value) if _is_place(value) else repr(value).encode()))
    return digest.digest()


def _is_place(value: object) -> bool:
    return isinstance(value, str) and value != "" and Path(value).exists()


def _tree(place: str) -> bytes:
    """Names, sizes and contents of all files: small ones in full, of large ones blocks spread over them.

    It notices another dataset, not every edit in the middle of a large file.
    """
    digest = hashlib.sha256()
    root = Path(place)
    for file in sorted([root] if root.is_file() else root.rglob("*")):
        if file.is_file():
            size = file.stat().st_size
            digest.update(json.dumps([str(file.relative_to(root)), size]).encode() + _extract(file, size))
    return digest.digest()


def _extract(file: Path, size: int) -> bytes:
    if size <= _BLOCK * _BLOCKS:
        return file.read_bytes()
    with file.open("rb") as opened:
        parts = []
        for number in range(_BLOCKS):
            opened.seek(number * (size - _BLOCK) // (_BLOCKS - 1))
            parts.append(opened.read(_BLOCK))
    return b"".join(parts)
