"""Fine-tuning and evaluation on private samples, whose failure must not change the reply."""

import json
import math
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vpdr.client import Client, evaluate_client
from vpdr.config import RunConfig
from vpdr.errors import VpdrError
from vpdr.federation import ClientFactory, PhaseTimer
from vpdr.flower.local_data import fingerprint, load_local_client, with_local_paths
from vpdr.flower.messages import RoundReply, RoundRequest, hello_from_record, reply_to_record, request_from_record
from vpdr.flower.owner import (
    NodeStore,
    Policy,
    Refusal,
    RefusalCode,
    RunLedger,
    check_config_against_policy,
    node_dir_name,
)
from vpdr.flower.validation import validate_broadcast
from vpdr.privacy import BudgetExceeded, entry_to_dict
from vpdr.types import Prototypes

LogFunction = Callable[[str], None]


def finetune_or_restore(
    client: Client, broadcast: Any, round: int, reload_client: Callable[[], Client], log: LogFunction
) -> tuple[Client, dict[str, float]]:
    """Fine-tune on a validated broadcast; if that fails, return the client as it was before.

    Guarantee: samples and a server's settings together decide whether training fails, so a failure changes
    no part of the reply but metrics that the policy allows anyway: neither what was charged, nor the terms of
    later releases, nor, with DP-SGD, their encoder. It is recorded in the owner's log.
    """
    try:
        losses = dict(client.finetune(broadcast, round))
        _check_finite(client, losses)
    except Exception as error:  # noqa: BLE001 - it may depend on samples
        log(f"round {round}: fine-tuning failed: {type(error).__name__}: {error}")
        return _restore_client(client, broadcast, reload_client), {}
    return client, losses


def _restore_client(failed: Client, broadcast: Any, reload_client: Callable[[], Client]) -> Client:
    """The client before the failure, with everything that was charged since.

    An encoder trained with DP-SGD keeps the steps it has taken: they are private outputs. Undoing them
    because of a loss, a head or a noiseless feature would choose between outputs without being accounted for.
    """
    client = reload_client()
    client.ledger.entries = list(failed.ledger.entries)  # training is charged before it starts
    client.last_broadcast = broadcast  # public; later releases may use it
    if client.dpsgd_trainer and failed.dpsgd_trainer:
        client.model.encoder.load_state_dict(failed.model.encoder.state_dict())
        client.dpsgd_trainer.load_state_dict(failed.dpsgd_trainer.state_dict())
    return client


def evaluate_or_empty(client: Client, measure_accuracy: bool, log: LogFunction) -> dict[str, Any]:
    """The metrics of the client, or empty tables if the evaluation fails."""
    try:
        return evaluate_client(client, measure_accuracy)
    except Exception as error:  # noqa: BLE001 - it may depend on samples
        log(f"evaluation failed: {type(error).__name__}: {error}")
    return {**evaluate_client(client, measure_accuracy=False), "release": {}}


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


# The Flower client app: check the policy, run one round, charge the ledger, reply. A reply is either a `RoundReply`
# or one refusal code; error texts stay in the owner's directory.


if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp


NODE_DIRS_VAR = "VPDR_HOMES"  # environment variable: parent directory of the simulated nodes
REFUSAL_ERROR_CODE = 6  # flwr's MOD_FAILED_PRECONDITION

# metrics that are sent, by the policy's `metrics`; they are computed from private data without noise
_METRICS_BY_POLICY = {
    "nothing": {"epsilon"},
    "accuracy": {"losses", "accuracy", "epsilon", "seconds"},
    "everything": {"losses", "accuracy", "features", "release", "epsilon", "seconds"},
}


def client_app() -> "ClientApp":
    """A Flower client app; the node's configuration names the directory of its owner.

    Returns:
        The app, for `flower-supernode`, a simulation or `InProcessGrid`.

    Guarantee: a reply is either the result of `handle_request`, or one refusal code without data.
    """
    from flwr.app import ConfigRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def hello(message: "Message", context: "Context") -> "Message":
        def handle(store: NodeStore) -> "RecordDict":
            name = handle_hello(store, hello_from_record(message.content))
            return RecordDict({"hello": ConfigRecord({"name": name})})

        return reply_or_refusal(message, context, handle)

    @app.train()
    def train(message: "Message", context: "Context") -> "Message":
        def handle(store: NodeStore) -> "RecordDict":
            return reply_to_record(handle_request(store, request_from_record(message.content)))

        return reply_or_refusal(message, context, handle)

    return app


def reply_or_refusal(message: "Message", context: "Context", handler: Callable[[NodeStore], "RecordDict"]) -> "Message":
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
        code = RefusalCode.BUDGET if isinstance(error, BudgetExceeded) else RefusalCode.FAILED
        code = error.code if isinstance(error, Refusal) else code
        return Message(Error(code=REFUSAL_ERROR_CODE, reason=str(code)), reply_to=message)


def log_to_owner(store: NodeStore, message: str) -> None:
    """Write to the owner's log, if that is possible."""
    try:
        store.log_error(message)
    except OSError:
        return  # a full disk must not turn a refusal into a traceback


def _node_store_for(context: "Context") -> NodeStore:
    """The node's directory: from its node config, or for simulated nodes from the environment."""
    directory = context.node_config.get("folder")
    if isinstance(directory, str) and directory:
        return NodeStore(Path(directory))
    root, partition_id = os.environ.get(NODE_DIRS_VAR), context.node_config.get("partition-id")
    if root and isinstance(partition_id, int):
        return NodeStore(Path(root) / node_dir_name(partition_id))
    raise Refusal(RefusalCode.NO_POLICY, "start the node with --node-config 'folder=\"...\"'")


def handle_hello(store: NodeStore, config: RunConfig) -> str:
    """The client's name, if its policy allows this run; reads no data."""
    policy = store.policy()
    check_config_against_policy(policy, config)
    return policy.name


def handle_request(store: NodeStore, request: RoundRequest) -> RoundReply:
    """Run one round on the client.

    Args:
        store: the directory of the data owner.
        request: the message of the server; nothing in it is trusted.

    Returns:
        The upload and its metadata. A repeated request gets the saved reply again.

    Raises:
        Refusal: the policy, the order of messages, the data or the broadcast do not allow it.

    Guarantee: whatever the server sends, a reply was allowed by the owner's policy and charged to the
    owner's ledger before; a refusal leaves the personal model as it was. A refusal by the policy, the order
    of messages or the broadcast costs nothing; a disk that fails after the charge loses the upload only.
    """
    policy = store.policy()
    check_config_against_policy(policy, request.config)
    with store.lock():
        saved = store.load(request.run)
        _check_order(saved, request)
        if saved is not None and saved["hop"] == request.message_index:  # after a lost reply or a restart
            return _repeat_reply(saved["answer"], policy.allow.metrics)
        digest = fingerprint(policy.name, policy.data)
        store.ledger(policy)  # before the binding: a bound directory without a ledger has lost it
        store.bind_dataset(digest)
        client, metadata, upload = _run_round(store, policy, request, saved)
        reply = RoundReply(upload=upload, metadata=_allowed_metadata(metadata, policy.allow.metrics))
        state = {
            "hop": request.message_index,
            "client": client.state_dict(),
            "identity": request.config.config_hash,
            "answer": {"upload": None if upload is None else upload.to_arrays(), "facts": dict(reply.metadata)},
        }
        store.save(request.run, state)
        store.append_metrics({"run": request.run, "round": request.message_index - 1, **metadata["measured"]})
        return reply


def _check_order(saved: Mapping[str, Any] | None, request: RoundRequest) -> None:
    """Messages come in order, with the configuration of the first one."""
    if saved is None:
        return
    if saved["identity"] != request.config.config_hash:
        raise Refusal(RefusalCode.OTHER_PLAN, f"run {request.run} began with configuration {saved['identity']}")
    if request.message_index < saved["hop"]:
        details = f"message {request.message_index} after message {saved['hop']}"
        raise Refusal(RefusalCode.ROUND_ORDER, details)


def _run_round(
    store: NodeStore, policy: Policy, request: RoundRequest, saved: Mapping[str, Any] | None
) -> tuple[Client, dict[str, Any], Prototypes | None]:
    """Close the last round and open this one; returns the client, all metadata and the upload."""

    def load_client() -> Client:
        return _load_client(store, policy, request.config, saved)

    client, timer = load_client(), PhaseTimer()
    last_round = request.message_index - 1
    losses: dict[str, float] = {}
    if request.finetune:
        broadcast = validate_broadcast(client, request.broadcast)
        with timer.phase("finetune"):
            client, losses = finetune_or_restore(client, broadcast, last_round, load_client, store.log_error)
    evaluate = request.config.run.is_evaluation_round(last_round)
    metrics = {"losses": losses, **evaluate_or_empty(client, evaluate, store.log_error), "seconds": dict(timer.seconds)}
    upload, no_upload_reason = None, ""
    if request.release:
        with timer.phase("prototypes"):
            try:
                upload = client.release(request.message_index)
            except BudgetExceeded:
                no_upload_reason = str(RefusalCode.BUDGET)
    metadata = {
        "classes": client.train_config.classes,
        "why": no_upload_reason,
        "entries": [entry_to_dict(entry) for entry in client.ledger.entries[request.known_receipts :]],
        "measured": metrics,
        "seconds": timer.seconds.get("prototypes", 0.0),
    }
    return client, metadata, upload


def _load_client(store: NodeStore, policy: Policy, config: RunConfig, saved: Mapping[str, Any] | None) -> Client:
    """The client in its saved state, with a ledger that also charges the owner's."""
    torch.set_num_threads(config.run.threads)
    setup, classes = load_local_client(policy, config)
    factory = _client_factory(json.dumps(with_local_paths(policy, config).to_dict()), classes)
    client = factory.make_client(policy.name, setup)
    header, entries = client.ledger.header.asdict(), list(client.ledger.entries)
    client.ledger = RunLedger(**header, entries=entries, owner_ledger=store.ledger(policy))
    if saved is not None:
        client.load_state_dict(saved["client"])
    return client


@lru_cache(maxsize=1)  # calibration takes seconds for some accountants
def _client_factory(config_json: str, classes: int) -> ClientFactory:
    return ClientFactory.from_config(RunConfig.from_dict(json.loads(config_json)), classes)


def _allowed_metadata(metadata: Mapping[str, Any], level: str) -> dict[str, Any]:
    """The metadata without metrics that the policy does not allow."""
    names = _METRICS_BY_POLICY[level]
    metrics = {name: value for name, value in metadata["measured"].items() if name in names}
    return {**metadata, "measured": metrics, "seconds": metadata["seconds"] if "seconds" in names else 0.0}


def _repeat_reply(saved_reply: Mapping[str, Any], level: str) -> RoundReply:
    """The saved reply, without metrics that the policy does not allow any more."""
    upload = saved_reply["upload"]
    return RoundReply(
        upload=None if upload is None else Prototypes.from_arrays(upload),
        metadata=_allowed_metadata(saved_reply["facts"], level),
    )
