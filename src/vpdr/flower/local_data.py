"""The samples of a client, loaded from where its policy says, and a fingerprint of the source."""

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

from vpdr.client import MAX_ABS_COORDINATE, Samples, Shard
from vpdr.config import BenchmarkSection, RunConfig
from vpdr.errors import InvalidInput
from vpdr.federation import ClientSetup, ClientSetups, load_clients, load_selected_clients, model_spec_for
from vpdr.flower.owner import DataPolicy, Policy, Refusal, RefusalCode
from vpdr.rng import Streams
from vpdr.types import no_progress
from vpdr.validation import deep_merge

_BLOCK_SIZE, _BLOCK_COUNT = 4096, 16  # of a large file in a fingerprint; small files are read in full


def load_local_client(policy: Policy, config: RunConfig) -> tuple[ClientSetup, int]:
    """The client's samples with their frozen encoder, and the public number of classes.

    Raises:
        Refusal: the policy names no data, or data that do not fit the run.
    """
    if policy.data.features:
        shard = _load_feature_file(policy.data, config.model.dim)
        spec = model_spec_for(config, max(policy.data.place, 0))
        return ClientSetup(shard=shard, model_spec=spec), policy.data.classes
    if not policy.data.benchmark:
        raise Refusal(RefusalCode.NO_POLICY, "the policy names no data: set data.features or data.benchmark")
    position = (policy.name, policy.data.place) if config.model.family and policy.data.place >= 0 else None
    local_config = json.dumps(with_local_paths(policy, config).to_dict(), sort_keys=True)
    setups = _load_benchmark(local_config, position)
    if policy.name not in setups.clients:
        raise Refusal(RefusalCode.BENCHMARK, f"the benchmark has no client named {policy.name}")
    return setups.clients[policy.name], setups.classes


def with_local_paths(policy: Policy, config: RunConfig) -> RunConfig:
    """The configuration with every path replaced by the owner's.

    Guarantee: where labels are private, the split is the owner's manifest and no setting of the received
    benchmark section is used, since a split drawn by a server depends on every label.
    """
    data = policy.data
    benchmark: dict[str, Any] = {"root": "", "manifest": "", **data.settings}
    if policy.needs_own_split:
        benchmark = {**asdict(BenchmarkSection(kind=data.benchmark)), **benchmark}
    changes = {"benchmark": benchmark, "model": {"weights": data.weights}, "run": {"device": data.device}}
    return RunConfig.from_dict(deep_merge(config.to_dict(), changes))


@lru_cache(maxsize=1)  # simulated clients of one process share the benchmark
def _load_benchmark(config_json: str, position: tuple[str, int] | None) -> ClientSetups:
    config = RunConfig.from_dict(json.loads(config_json))
    streams = Streams(config.run.seed)
    if position is None:
        return load_clients(config, streams, no_progress)
    return load_selected_clients(config, streams, no_progress, dict([position]))


def _load_feature_file(data: DataPolicy, dim: int) -> Shard:
    """Load and check the owner's feature file; only then compare it with the dimension of the run."""
    path = Path(data.features)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            splits = [
                _make_samples(arrays[f"{split}_x"], arrays[f"{split}_y"], data.classes) for split in ("train", "test")
            ]
    except (OSError, KeyError, ValueError, TypeError) as error:
        details = f"{path} must hold train_x, train_y, test_x and test_y: {error}"
        raise Refusal(RefusalCode.OWN_DATA, details) from error
    if any(samples.frozen_features.shape[1] != dim for samples in splits):
        found_dim = splits[0].frozen_features.shape[1]
        raise Refusal(RefusalCode.BENCHMARK, f"the run has dimension {dim}, {path} has {found_dim}")
    return Shard(*splits)


def _make_samples(rows: np.ndarray, labels: np.ndarray, classes: int) -> Samples:
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise InvalidInput(f"expected features [n d] and n integer labels, got {rows.shape} and {labels.shape}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise InvalidInput(f"expected labels from 0 to {classes - 1}")
    if not bool((np.abs(rows) <= MAX_ABS_COORDINATE).all()):
        raise InvalidInput(f"expected features of at most {MAX_ABS_COORDINATE:g}, got NaN or larger ones")
    features: Float[Tensor, "n d"] = torch.from_numpy(rows.astype(np.float32))
    targets: Int[Tensor, " n"] = torch.from_numpy(labels.astype(np.int64))
    return Samples(features, targets)


def fingerprint(name: str, data: DataPolicy) -> bytes:
    """A digest of the data source, independent of the split, dimension or seed of a run."""
    if data.features:
        return hashlib.sha256(Path(data.features).read_bytes()).digest()
    digest = hashlib.sha256(json.dumps([name, data.benchmark]).encode())
    for key, value in sorted(data.settings.items()):
        content = _hash_files(value) if _is_existing_path(value) else repr(value).encode()
        digest.update(key.encode() + b"=" + content)
    return digest.digest()


def _is_existing_path(value: object) -> bool:
    return isinstance(value, str) and value != "" and Path(value).exists()


def _hash_files(path: str) -> bytes:
    """A digest of names, sizes and contents of all files; of large files only evenly spaced blocks.

    It detects another dataset, not every edit inside a large file.
    """
    digest = hashlib.sha256()
    root = Path(path)
    for file in sorted([root] if root.is_file() else root.rglob("*")):
        if file.is_file():
            size = file.stat().st_size
            header = json.dumps([str(file.relative_to(root)), size]).encode()
            digest.update(header + _sample_blocks(file, size))
    return digest.digest()


def _sample_blocks(file: Path, size: int) -> bytes:
    if size <= _BLOCK_SIZE * _BLOCK_COUNT:
        return file.read_bytes()
    with file.open("rb") as opened:
        blocks = []
        for index in range(_BLOCK_COUNT):
            opened.seek(index * (size - _BLOCK_SIZE) // (_BLOCK_COUNT - 1))
            blocks.append(opened.read(_BLOCK_SIZE))
    return b"".join(blocks)
