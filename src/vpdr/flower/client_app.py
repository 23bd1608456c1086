"""The client app: load the owner's samples, check the policy, run one round, charge the ledger, reply.

A reply is either a `RoundReply` or one refusal code; error texts stay in the owner's directory.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vpdr.client import MAX_ABS_COORDINATE, Client, Samples, Shard, evaluate_client
from vpdr.config import BenchmarkSection, RunConfig, resolve, rules
from vpdr.data import read_dataset
from vpdr.data.benchmark import hash_uniforms
from vpdr.encoder import zoo
from vpdr.federation import builder, rounds
from vpdr.flower import messages, owner
from vpdr.privacy import Adjacency, BudgetExceeded
from vpdr.privacy.ledger import entry_to_dict
from vpdr.rng import Streams
from vpdr.types import Prototypes, no_progress
from vpdr.validation import InvalidInput, VpdrError, deep_merge

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp

NODE_DIRS_VAR = "VPDR_HOMES"  # environment variable: parent directory of the simulated nodes
REFUSAL_ERROR_CODE = 6  # flwr's MOD_FAILED_PRECONDITION
_BLOCK_SIZE, _BLOCK_COUNT = 4096, 16  # of a large file in a fingerprint; small files are read in full

# metrics that are sent, by the policy's `metrics`; they are computed from private data without noise
_METRICS_BY_POLICY = {
    "nothing": {"epsilon"},
    "accuracy": {"losses", "accuracy", "epsilon", "seconds"},
    "everything": {"losses", "accuracy", "features", "release", "epsilon", "seconds"},
}


def client_app() -> "ClientApp":
    """A Flower client app; the node's configuration names the directory of its owner.

    Guarantee: a reply is either the result of `handle_request`, or one refusal code without data.
    """
    from flwr.app import ConfigRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def hello(message: "Message", context: "Context") -> "Message":
        def handle(store: owner.NodeStore) -> "RecordDict":
            name = handle_hello(store, messages.hello_from_record(message.content))
            return RecordDict({"hello": ConfigRecord({"name": name})})

        return reply_or_refusal(message, context, handle)

    @app.train()
    def train(message: "Message", context: "Context") -> "Message":
        def handle(store: owner.NodeStore) -> "RecordDict":
            reply = handle_request(store, messages.request_from_record(message.content))
            return messages.reply_to_record(reply)

        return reply_or_refusal(message, context, handle)

    return app


def reply_or_refusal(
    message: "Message", context: "Context", handler: Callable[[owner.NodeStore], "RecordDict"]
) -> "Message":
    """Reply with the result of `handler`, or with a refusal code; the details go to the owner's log."""
    from flwr.app import Error, Message

    store = None
    try:
        store = _node_store_for(context)
        return Message(handler(store), reply_to=message)
    except Exception as error:  # noqa: BLE001 - an error text may hold private data and must not be sent
        if store is not None:
            text = str(error) if isinstance(error, VpdrError) else f"{type(error).__name__}: {error}"
            log_to_owner(store, text)
        code = owner.RefusalCode.BUDGET if isinstance(error, BudgetExceeded) else owner.RefusalCode.FAILED
        code = error.code if isinstance(error, owner.Refusal) else code
        return Message(Error(code=REFUSAL_ERROR_CODE, reason=str(code)), reply_to=message)


def log_to_owner(store: owner.NodeStore, message: str) -> None:
    """Write to the owner's log, if that is possible."""
    try:
        store.log_error(message)
    except OSError:
        return  # a full disk must not turn a refusal into a traceback


def _node_store_for(context: "Context") -> owner.NodeStore:
    """The node's directory: from its node config, or for simulated nodes from the environment."""
    directory = context.node_config.get("folder")
    if isinstance(directory, str) and directory:
        return owner.NodeStore(Path(directory))
    root, partition_id = os.environ.get(NODE_DIRS_VAR), context.node_config.get("partition-id")
    if root and isinstance(partition_id, int):
        return owner.NodeStore(Path(root) / owner.node_dir_name(partition_id))
    raise owner.Refusal(owner.RefusalCode.NO_POLICY, "start the node with --node-config 'folder=\"...\"'")


def handle_hello(store: owner.NodeStore, config: RunConfig) -> str:
    """The client's name, if its policy allows this run; reads no data."""
    policy = store.policy()
    owner.check_config_against_policy(policy, config)
    return policy.name


def handle_request(store: owner.NodeStore, request: messages.RoundRequest) -> messages.RoundReply:
    """Run one round on the client, or refuse it; a repeated request gets the saved reply again.

    Guarantee: whatever the server sends, a reply was allowed by the owner's policy and charged to the
    owner's ledger before; a refusal leaves the personal model as it was. A refusal by the policy, the order
    of messages or the broadcast costs nothing; a disk that fails after the charge loses the upload only.
    """
    policy = store.policy()
    owner.check_config_against_policy(policy, request.config)
    with store.lock():
        saved = store.load(request.run)
        if saved is not None:  # messages come in order, with the configuration of the first one
            if saved["identity"] != request.config.config_hash:
                details = f"run {request.run} began with configuration {saved['identity']}"
                raise owner.Refusal(owner.RefusalCode.OTHER_PLAN, details)
            if request.message_index < saved["hop"]:
                details = f"message {request.message_index} after message {saved['hop']}"
                raise owner.Refusal(owner.RefusalCode.ROUND_ORDER, details)
            if request.message_index == saved["hop"]:  # after a lost reply or a restart
                arrays, metadata = saved["answer"]["upload"], saved["answer"]["facts"]
                upload = None if arrays is None else Prototypes.from_arrays(arrays)
                return messages.RoundReply(upload=upload, metadata=_allowed_metadata(metadata, policy.allow.metrics))
        digest = fingerprint(policy.name, policy.data)
        store.ledger(policy)  # before the binding: a bound directory without a ledger has lost it
        store.bind_dataset(digest)
        client, metadata, upload = _run_round(store, policy, request, saved)
        reply = messages.RoundReply(upload=upload, metadata=_allowed_metadata(metadata, policy.allow.metrics))
        state = {
            "hop": request.message_index,
            "client": client.state_dict(),
            "identity": request.config.config_hash,
            "answer": {"upload": None if upload is None else upload.to_arrays(), "facts": dict(reply.metadata)},
        }
        store.save(request.run, state)
        store.append_metrics({"run": request.run, "round": request.message_index - 1, **metadata["measured"]})
        return reply


def _allowed_metadata(metadata: Mapping[str, Any], level: str) -> dict[str, Any]:
    """The metadata without metrics that the policy does not allow (any more)."""
    names = _METRICS_BY_POLICY[level]
    metrics = {name: value for name, value in metadata["measured"].items() if name in names}
    return {**metadata, "measured": metrics, "seconds": metadata["seconds"] if "seconds" in names else 0.0}


def _run_round(
    store: owner.NodeStore, policy: owner.Policy, request: messages.RoundRequest, saved: Mapping[str, Any] | None
) -> tuple[Client, dict[str, Any], Prototypes | None]:
    """Close the last round and open this one; returns the client, all metadata and the upload."""

    def load_client() -> Client:
        """The client in its saved state, with a ledger that also charges the owner's."""
        torch.set_num_threads(request.config.run.threads)
        setup, classes = load_local_client(policy, request.config, store.split_key())
        factory = _client_factory(json.dumps(with_local_paths(policy, request.config).to_dict()), classes)
        client = factory.make_client(policy.name, setup)
        owner_ledger = store.ledger(policy, request.run)
        client.ledger = owner.RunLedger(**client.ledger.header, owner_ledger=owner_ledger)
        if saved is not None:
            client.load_state_dict(saved["client"])
        return client

    client, timer, last_round = load_client(), rounds.PhaseTimer(), request.message_index - 1
    losses: dict[str, float] = {}
    if request.finetune:
        broadcast = messages.validate_broadcast(client, request.broadcast)
        with timer.phase("finetune"):
            client, losses = finetune_or_restore(client, broadcast, last_round, load_client, store.log_error)
    measure_accuracy = request.config.run.is_evaluation_round(last_round)
    try:
        evaluation = evaluate_client(client, measure_accuracy)
    except Exception as error:  # noqa: BLE001 - it may depend on samples
        store.log_error(f"evaluation failed: {type(error).__name__}: {error}")
        evaluation = {**evaluate_client(client, measure_accuracy=False), "release": {}}
    metrics = {"losses": losses, **evaluation, "seconds": dict(timer.seconds)}
    upload, no_upload_reason = None, ""
    if request.release:
        with timer.phase("prototypes"):
            try:
                upload = client.release(request.message_index)
            except BudgetExceeded:
                no_upload_reason = str(owner.RefusalCode.BUDGET)
    metadata = {
        "classes": client.train_config.classes,
        "why": no_upload_reason,
        "entries": [entry_to_dict(entry) for entry in client.ledger.entries[request.known_receipts :]],
        "measured": metrics,
        "seconds": timer.seconds.get("prototypes", 0.0),
    }
    return client, metadata, upload


@lru_cache(maxsize=1)  # calibration takes seconds for some accountants
def _client_factory(config_json: str, classes: int) -> builder.ClientFactory:
    return builder.ClientFactory(RunConfig.from_dict(json.loads(config_json)), classes)


def finetune_or_restore(
    client: Client, broadcast: Any, round: int, reload_client: Callable[[], Client], log: Callable[[str], None]
) -> tuple[Client, dict[str, float]]:
    """Fine-tune on a validated broadcast; if that fails, return the client as it was before.

    Guarantee: samples and a server's settings together decide whether training fails, so a failure changes
    no part of the reply but metrics that the policy allows anyway: neither what was charged, nor the terms of
    later releases, nor, with DP-SGD, their encoder. It is recorded in the owner's log.
    """
    try:
        losses = dict(client.finetune(broadcast, round))
        _check_finite(client, losses)
        return client, losses
    except Exception as error:  # noqa: BLE001 - it may depend on samples
        log(f"round {round}: fine-tuning failed: {type(error).__name__}: {error}")
    restored = reload_client()
    restored.ledger.entries = client.ledger.entries  # training is charged before it starts
    restored.last_broadcast = broadcast  # public; later releases may use it
    if restored.dpsgd_trainer and client.dpsgd_trainer:
        # An encoder keeps the DP-SGD steps it has taken, which are private outputs. Undoing them because of a
        # loss, a head or a noiseless feature would choose between outputs without being accounted for.
        restored.model.encoder.load_state_dict(client.model.encoder.state_dict())
        restored.dpsgd_trainer.load_state_dict(client.dpsgd_trainer.state_dict())
    return restored, {}


class _DivergedModel(VpdrError):
    """A model with values that are not finite."""


@torch.no_grad()
def _check_finite(client: Client, losses: Mapping[str, float]) -> None:
    """Raise if training diverged; with DP-SGD only the head is checked, which takes no part in releases."""
    if not all(math.isfinite(value) for value in losses.values()):
        raise _DivergedModel("the losses are not finite")
    modules = [client.model.head] if client.dpsgd_trainer else [client.model.encoder, client.model.head]
    for module in modules:
        if not all(bool(torch.isfinite(values).all()) for values in module.state_dict().values()):
            raise _DivergedModel("the model's parameters are not finite")
    if client.dpsgd_trainer:
        return
    if not bool(torch.isfinite(client.personal_features(client.shard.train)).all()):
        raise _DivergedModel("the encoder's features are not finite")


# The samples of a client, loaded from where its policy says, and a fingerprint of the source.


def load_local_client(policy: owner.Policy, config: RunConfig, split_key: bytes) -> tuple[builder.ClientSetup, int]:
    """The client's samples with their frozen encoder, and the public number of classes."""
    data = policy.data
    if data.is_feature_file:
        shard = _load_feature_file(data, config.model.dim, split_key, policy.budget.adjacency)
        spec = resolve.model_plan(config).spec_for(max(data.place, 0))
        return builder.ClientSetup(shard=shard, model_spec=spec), data.classes
    if not data.benchmark and not data.own_sources:
        raise owner.Refusal(
            owner.RefusalCode.NO_POLICY, "the policy names no data: set data.features, data.folder or data.benchmark"
        )
    if config.model.backbone.startswith(zoo.HF_PREFIX) and not data.weights:
        details = "a server may not choose a path or a download: set data.weights to a directory or hub:OWNER/NAME"
        raise owner.Refusal(owner.RefusalCode.NO_POLICY, details)
    _check_own_data(policy)
    position = (policy.name, data.place) if config.model.family and data.place >= 0 else None
    try:
        local_config = json.dumps(with_local_paths(policy, config).to_dict(), sort_keys=True)
        setups = _load_benchmark(local_config, position, split_key)
    except rules.UndeclaredEncoder as error:
        raise owner.Refusal(owner.RefusalCode.GUARANTEE, str(error)) from error
    except InvalidInput as error:
        if data.benchmark:
            raise
        raise owner.Refusal(owner.RefusalCode.BENCHMARK, str(error)) from error  # as a backbone for other samples
    if policy.name not in setups.clients:
        raise owner.Refusal(owner.RefusalCode.BENCHMARK, f"the benchmark has no client named {policy.name}")
    return setups.clients[policy.name], setups.classes


def _check_own_data(policy: owner.Policy) -> None:
    """Read the owner's own data without any setting of the run; refused if they are wrong."""
    for kind, path in policy.data.own_sources.items():
        try:
            dataset = read_dataset(kind, path, builder.dataset_options(_own_section(policy.data, policy.name)))
            if dataset.errors:
                raise InvalidInput(dataset.errors[0])
        except InvalidInput as error:
            raise owner.Refusal(owner.RefusalCode.OWN_DATA, str(error)) from error


def _own_section(data: owner.DataPolicy, client: str) -> BenchmarkSection:
    """All samples of the owner's own data as those of one client, each assigned to its part by itself."""
    ((kind, path),) = data.own_sources.items()
    encoder = data.encoder if data.encoder in ("public", "personal") else ""
    names = list(data.class_names or map(str, range(data.classes)))
    split = {"skew": "domain", "assignment": "sample_hash", "test_fraction": data.test_fraction}
    own = {"kind": kind, "root": path, "class_names": names, "client": client, "encoder": encoder}
    tables = {"benchmark": {**split, **data.settings, **own}, "release": {"encoder": "personal"}}
    return RunConfig.from_tables(tables).benchmark


def with_local_paths(policy: owner.Policy, config: RunConfig) -> RunConfig:
    """The configuration with every path replaced by the owner's, and all that says how the owner's data are read.

    Guarantee: a server declares no encoder public for the owner. Where labels are private, the split is the
    owner's manifest, or sample by sample with the owner's key, and no setting of the received benchmark section is
    used: a split drawn by a server depends on every label. The same holds for own data whose labels are public.
    """
    data = policy.data
    how_read = {name: value for name, value in asdict(BenchmarkSection()).items() if name in rules.OWN_DATA_SETTINGS}
    benchmark: dict[str, Any] = {"root": "", "manifest": "", **how_read, **data.settings}
    if data.own_sources and not data.is_feature_file:  # the size of images is part of the model
        benchmark = asdict(_own_section(data, policy.name))
        del benchmark["pixels"]
    if policy.needs_own_split:
        own = asdict(BenchmarkSection(kind=data.benchmark, skew="domain", assignment="sample_hash"))
        benchmark = {**(asdict(BenchmarkSection(kind=data.benchmark)) if benchmark["manifest"] else own), **benchmark}
    changes = {"benchmark": benchmark, "model": {"weights": data.weights}, "run": {"device": data.device}}
    return RunConfig.from_dict(deep_merge(config.to_dict(), changes))


@lru_cache(maxsize=1)  # simulated clients of one process share the benchmark
def _load_benchmark(config_json: str, position: tuple[str, int] | None, split_key: bytes) -> builder.ClientSetups:
    config = RunConfig.from_dict(json.loads(config_json))
    positions = None if position is None else dict([position])
    return builder.load_clients(config, Streams(config.run.seed), no_progress, positions, split_key=split_key)


def _load_feature_file(data: owner.DataPolicy, dim: int, split_key: bytes, adjacency: str) -> Shard:
    """Load and check the owner's feature file; only then compare it with the dimension of the run.

    Samples that are not split yet are assigned to training and test one by one: by their row, or under add-remove
    by their content, so that another sample moves none.
    """
    path, classes, splits = Path(data.features), data.classes, []
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for prefix in ("",) if "x" in arrays.files else ("train_", "test_"):
                rows, labels = arrays[f"{prefix}x"], arrays[f"{prefix}y"]
                if rows.ndim != 2 or labels.shape != rows.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
                    shapes = f"{rows.shape} and {labels.shape}"
                    raise InvalidInput(f"expected features [n d] and n integer labels, got {shapes}")
                if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
                    raise InvalidInput(f"expected labels from 0 to {classes - 1}")
                if not bool((np.abs(rows) <= MAX_ABS_COORDINATE).all()):
                    largest = f"{MAX_ABS_COORDINATE:g}"
                    raise InvalidInput(f"expected features of at most {largest}, got NaN or larger ones")
                features, targets = rows.astype(np.float32), labels.astype(np.int64)
                splits.append(Samples(torch.from_numpy(features), torch.from_numpy(targets)))
    except (OSError, KeyError, ValueError, TypeError) as error:
        details = f"{path} must hold x and y, or train_x, train_y, test_x and test_y: {error}"
        raise owner.Refusal(owner.RefusalCode.OWN_DATA, details) from error
    if any(samples.frozen_features.shape[1] != dim for samples in splits):
        found_dim = splits[0].frozen_features.shape[1]
        raise owner.Refusal(owner.RefusalCode.BENCHMARK, f"the run has dimension {dim}, {path} has {found_dim}")
    if len(splits) == 1:
        samples, by_content = splits[0], adjacency == Adjacency.ADD_REMOVE
        contents = [row.tobytes() for row in samples.frozen_features.numpy()] if by_content else None
        identities = contents or [b"%d" % row for row in range(len(samples.labels))]
        is_test = torch.from_numpy(hash_uniforms(split_key, "test", identities) < data.test_fraction)
        splits = [samples.take(torch.nonzero(part).flatten()) for part in (~is_test, is_test)]
    return Shard(*splits)


def fingerprint(name: str, data: owner.DataPolicy) -> bytes:
    """A digest of the data source, independent of the split, dimension or seed of a run."""
    if data.features:
        return hashlib.sha256(Path(data.features).read_bytes()).digest()
    for path in data.own_sources.values():
        return _hash_files(Path(path))
    digest = hashlib.sha256(json.dumps([name, data.benchmark]).encode())
    for key, value in sorted(data.settings.items()):
        is_path = isinstance(value, str) and value != "" and Path(value).exists()
        digest.update(key.encode() + b"=" + (_hash_files(Path(value)) if is_path else repr(value).encode()))
    return digest.digest()


def _hash_files(root: Path) -> bytes:
    """A digest of names, sizes and contents of all files; of large files only evenly spaced blocks.

    It detects another dataset, not every edit inside a large file.
    """
    digest = hashlib.sha256()
    for file in sorted([root] if root.is_file() else root.rglob("*")):
        if not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(json.dumps([str(file.relative_to(root)), size]).encode())
        if size <= _BLOCK_SIZE * _BLOCK_COUNT:
            digest.update(file.read_bytes())
            continue
        with file.open("rb") as opened:
            for index in range(_BLOCK_COUNT):
                opened.seek(index * (size - _BLOCK_SIZE) // (_BLOCK_COUNT - 1))
                digest.update(opened.read(_BLOCK_SIZE))
    return digest.digest()
