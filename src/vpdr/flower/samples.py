"""A client's own data: where the owner says they are, and a fingerprint that never leaves the machine."""

import hashlib
import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client import Samples, Shard
from vpdr.engines.build import quiet
from vpdr.engines.seats import Seat, Seats, seats_of
from vpdr.engines.trunks import member_of
from vpdr.errors import InvalidInput
from vpdr.flower.policy import DataTerms, Policy
from vpdr.flower.refusals import Code, Refused
from vpdr.plan.plan import Plan
from vpdr.plan.values import merged
from vpdr.rng import Streams

_HEAD = 4096  # bytes of each file of a folder that count; all bytes of a file of features


def seat_of(policy: Policy, plan: Plan) -> tuple[Seat, int]:
    """The client's samples with what is frozen under them, and the public number of classes."""
    if policy.data.features:
        shard = _from_file(Path(policy.data.features), plan.model.dim)
        return Seat(shard=shard, member=member_of(plan, 0)), policy.data.classes
    if not policy.data.benchmark:
        raise Refused(Code.NO_POLICY, "the policy names no data: set data.features or data.benchmark")
    seats = _benchmark(json.dumps(at_home(policy.data, plan).to_data(), sort_keys=True))
    if policy.name not in seats.clients:
        raise Refused(Code.BENCHMARK, f"the benchmark has no client named {policy.name}")
    return seats.clients[policy.name], seats.classes


def at_home(data: DataTerms, plan: Plan) -> Plan:
    """The plan as this machine reads it: every path is the owner's, whatever the plan says."""
    own = {"root": "", "manifest": "", **data.settings}
    changes = {"benchmark": own, "model": {"weights": data.weights}, "run": {"device": data.device}}
    return Plan.from_data(merged(plan.to_data(), changes))


@lru_cache(maxsize=1)  # simulated clients of one process share what they are cut from
def _benchmark(data: str) -> Seats:
    plan = Plan.from_data(json.loads(data))
    return seats_of(plan, Streams(plan.run.seed), quiet)


def _from_file(path: Path, dim: int) -> Shard:
    try:
        with np.load(path, allow_pickle=False) as found:
            parts = [_samples(found[f"{part}_x"], found[f"{part}_y"]) for part in ("train", "test")]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise InvalidInput(f"{path} must hold train_x, train_y, test_x and test_y: {error}") from error
    if any(part.public.shape[1] != dim for part in parts):
        raise Refused(Code.BENCHMARK, f"the plan has {dim} dimensions, {path} has {parts[0].public.shape[1]}")
    return Shard(*parts)


def _samples(rows: np.ndarray, labels: np.ndarray) -> Samples:
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
    """Names, sizes and beginnings of all files."""
    digest = hashlib.sha256()
    root = Path(place)
    for file in sorted([root] if root.is_file() else root.rglob("*")):
        if file.is_file():
            with file.open("rb") as opened:
                head = opened.read(_HEAD)
            heading = json.dumps([str(file.relative_to(root)), file.stat().st_size])
            digest.update(heading.encode() + head)
    return digest.digest()
