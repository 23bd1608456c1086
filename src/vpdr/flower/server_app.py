"""The server app: registration of nodes, one message per client and round, aggregation, a checkpoint after each.

The results are files, since Flower returns nothing.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vpdr.config import ExperimentOptions, RunConfig, load_experiment, renames, resolve
from vpdr.federation import builder
from vpdr.flower import messages, owner
from vpdr.io import from_json, json_bytes, write_atomically
from vpdr.privacy.ledger import Ledger
from vpdr.records import Exchange, RoundRecord, RunDir, RunRecord, finished_record
from vpdr.types import Float, Prototypes, Tensor
from vpdr.validation import InvalidInput, VpdrError, coerce

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.serverapp import Grid, ServerApp

POLL_SECONDS = 0.5
NO_REPLY = "no reply in time"
DONE_FILE = "ended.json"  # written last, after success and failure
EMPTY_METRICS: dict[str, Any] = {
    "losses": {},
    "accuracy": {"own": {}, "all": {}},
    "features": {},
    "release": {},
    "epsilon": None,
    "seconds": {},
}
"""The metrics in the record of a client that sends none."""

MessageCallback = Callable[[Mapping[str, Any]], None]


class NotEnoughClients(VpdrError, RuntimeError):
    """Fewer clients than the run needs; it stops and can be resumed from the last round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig:
    """Settings of the server; the field names are keys of Flower's run config."""

    clients: int = 0  # number to wait for at the start; 0 waits `startup_timeout` seconds for any
    minimum: int = 1  # number of valid replies that a round needs
    round_timeout: float = 3600.0  # seconds for the replies of one message
    startup_timeout: float = 120.0  # seconds for nodes to connect at the start
    max_norm: float = 1e6  # largest accepted norm of an uploaded prototype


def server_app(config_file: Path) -> "ServerApp":
    """A Flower server app for one configuration, the `plan.toml` of the app directory.

    Flower's run config holds `out`, an absolute path for the results, `resume`, and the fields of
    `ServerConfig` with dashes.
    """
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: "Grid", context: "Context") -> None:
        out = Path(str(context.run_config.get("out", "")))
        if not out.is_absolute():
            raise InvalidInput(f"out must be an absolute path on the server's machine, got {str(out)!r}")
        try:
            config = load_single_config(str(config_file))
            server_config = parse_server_config(context.run_config)
            resume = bool(context.run_config.get("resume", False))
            record = serve(grid, config, out, server_config=server_config, resume=resume, on_message=_log_message)
            from vpdr.report.html import write_run_report

            write_run_report(record, out)
        except VpdrError as error:
            _write_done_file(out, str(error))
            raise
        _write_done_file(out, "")

    return app


def load_single_config(source: str, settings: tuple[str, ...] = (), assumed: tuple[str, ...] = ()) -> RunConfig:
    """The configuration of a preset or file that describes one run with one seed; `assumed` need not count."""
    experiment = load_experiment(source, ExperimentOptions(settings=settings, assumed=assumed))
    if not experiment.is_single_run:
        raise InvalidInput(
            f"{source} compares {len(experiment.method_configs)} methods and {len(experiment.seeds)} seeds; "
            "Flower runs one plan with one seed, such as paper or the plan.toml of a run"
        )
    return experiment.method_configs[0].with_seed(experiment.seeds[0])


def parse_server_config(run_config: Mapping[str, Any]) -> ServerConfig:
    """The server settings in Flower's run config."""
    run_config = renames.rename_keys(run_config, {"patience": "startup-timeout", "most-norm": "max-norm"})
    keys = {each.name.replace("_", "-"): each for each in fields(ServerConfig)}
    values = {each.name: coerce(key, run_config[key], each.type) for key, each in keys.items() if key in run_config}
    return ServerConfig(**values)


def _log_message(entry: Mapping[str, Any]) -> None:
    from logging import INFO

    from flwr.supercore import log

    absent = {**entry["missing"], **entry["dropped"], **entry["silent"]}
    reasons = ", ".join(f"{name}: {reason}" for name, reason in absent.items())
    details = f" ({reasons})" if reasons else ""
    log(INFO, "message %s: %s answers%s", entry["message"], entry["answered"], details)


def _write_done_file(out: Path, error: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / DONE_FILE, json_bytes({"ok": not error, "error": error}))


def serve(
    grid: "Grid",
    config: RunConfig,
    out: Path,
    *,
    server_config: ServerConfig,
    resume: bool = False,
    on_message: MessageCallback = lambda _: None,
) -> RunRecord:
    """Run a configuration over a Flower grid and return its record; `on_message` gets the log of each message.

    Record, ledgers and checkpoint are in `out`. Too few clients or valid replies raise `NotEnoughClients`; the
    run can then be resumed.
    """
    run_dir = RunDir(out)
    if resume and run_dir.record_path.exists():
        return run_dir.read_finished(config)
    saved = run_dir.checkpoint_to_resume(config, resume=resume)
    run_dir.create(config)
    wall_seconds = earlier_seconds = 0.0 if saved is None else float(saved["wall_seconds"])
    start = time.perf_counter()
    torch.set_num_threads(config.run.threads)
    pool = NodePool(grid, server_config)
    pool.wait_for_nodes(config)
    names = tuple(sorted(pool.nodes))
    state = ServerLoopState(names=names) if saved is None else ServerLoopState.from_state_dict(saved)
    loop = ServerLoop(config, pool, state)
    while state.message_index <= config.run.rounds:
        loop.exchange_once()
        wall_seconds = earlier_seconds + time.perf_counter() - start
        checkpoint = {**state.state_dict(), "wall_seconds": wall_seconds}
        run_dir.save_checkpoint(config, checkpoint, [])  # the ledger files are with the clients
        on_message(state.message_log[-1])
    ledgers = [state.ledger(config, name) for name in state.names]
    exchange = Exchange(
        run=state.run,
        messages=tuple(state.message_log),
        missing=sum(len(entry["missing"]) for entry in state.message_log),
        dropped=sum(len(entry["dropped"]) for entry in state.message_log),
        turned_away=tuple(sorted(pool.rejected.values())),
        too_late=tuple(sorted(set(pool.nodes) - set(state.names))),
    )
    rounds = [from_json(RoundRecord, each, "a round") for each in state.rounds]
    record = replace(finished_record(config, rounds, ledgers, wall_seconds), exchange=exchange)
    run_dir.save_ledgers(ledgers)
    run_dir.save_record(record)
    return record


@dataclass(slots=True)
class NodePool:
    """The nodes of a Flower grid, by client name."""

    grid: "Grid"
    server_config: ServerConfig
    nodes: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)  # node id -> reason

    def wait_for_nodes(self, config: RunConfig) -> None:
        """Wait until enough nodes are registered, at most `startup_timeout` seconds."""
        deadline = time.monotonic() + self.server_config.startup_timeout
        expected = max(self.server_config.clients, self.server_config.minimum)
        while True:
            self.register_new_nodes(config)
            if len(self.nodes) >= expected or time.monotonic() >= deadline:
                break
            time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        if len(self.nodes) < self.server_config.minimum:
            reasons = ", ".join(sorted(set(self.rejected.values()))) or "none"
            raise NotEnoughClients(
                f"{len(self.nodes)} clients take part, {self.server_config.minimum} are needed; turned away: {reasons}"
            )

    def register_new_nodes(self, config: RunConfig) -> None:
        """Ask new nodes for their client name; a name may move to a new node if the old one is offline.

        A node that was rejected is asked again only if it had failed or was busy.
        """
        online, again = set(self.grid.get_node_ids()), (owner.RefusalCode.FAILED, owner.RefusalCode.BUSY)
        known = {int(node) for node, reason in self.rejected.items() if not reason.startswith(again)}
        new = sorted(online - known - set(self.nodes.values()))
        replies = self._send_and_receive({node: messages.hello_to_record(config) for node in new}, "query")
        for node in new:
            try:
                name = _client_name(replies.get(node))
            except owner.Refusal as refusal:
                self.rejected[str(node)] = str(refusal)
                continue
            if self.nodes.get(name) in online:
                self.rejected[str(node)] = "a second node of the same name"
            else:
                self.nodes[name] = node
                self.rejected.pop(str(node), None)

    def send_and_collect(
        self, requests: Mapping[str, messages.RoundRequest]
    ) -> tuple[dict[str, messages.RoundReply], dict[str, str]]:
        """Send one request per client; returns the replies, and the reasons of missing ones, by name."""
        online = set(self.grid.get_node_ids())
        reachable = {name: self.nodes[name] for name in requests if self.nodes.get(name) in online}
        records = {node: messages.request_to_record(requests[name]) for name, node in reachable.items()}
        replies = self._send_and_receive(records, "train")
        received: dict[str, messages.RoundReply] = {}
        missing = {name: "offline" for name in requests if name not in reachable}
        for name, node in reachable.items():
            if node not in replies:
                missing[name] = NO_REPLY
                continue
            try:
                received[name] = messages.reply_from_message(replies[node])
            except owner.Refusal as refusal:
                missing[name] = str(refusal)
        return received, missing

    def _send_and_receive(self, records: "Mapping[int, RecordDict]", kind: str) -> "dict[int, Message]":
        """One message to each node; replies are matched by the message they reply to, not by sender."""
        from flwr.app import Message

        if not records:
            return {}
        timeout = self.server_config.round_timeout
        sent = [Message(content, node, kind, ttl=timeout) for node, content in records.items()]
        replies = list(self.grid.send_and_receive(sent, timeout=timeout))
        nodes = {message.metadata.message_id: message.metadata.dst_node_id for message in sent}
        by_node = {nodes.get(reply.metadata.reply_to_message_id, -1): reply for reply in replies}
        return {node: reply for node, reply in by_node.items() if node in records}


def _client_name(reply: "Message | None") -> str:
    """The client name in the reply to a hello message."""
    if reply is None:
        raise owner.Refusal(owner.RefusalCode.FAILED, NO_REPLY)
    if reply.has_error():
        messages.reply_from_message(reply)
    records = reply.content.config_records
    name = records["hello"].get("name") if "hello" in records else None
    if not isinstance(name, str) or not 0 < len(name) < 100:
        raise owner.Refusal(owner.RefusalCode.BAD_REQUEST, "no name")
    return name


@dataclass(slots=True, kw_only=True)
class ServerLoopState:
    """Everything the server needs to continue with the next message."""

    run: str = field(default_factory=lambda: secrets.token_hex(8))
    message_index: int = 0  # of the last message
    names: tuple[str, ...] = ()
    classes: int = 0
    server_state: dict[str, Any] = field(default_factory=dict)
    broadcast: dict[str, Any] = field(default_factory=dict)  # as arrays
    finetuning_clients: list[str] = field(default_factory=list)  # they opened the round that is closed next
    rounds: list[dict[str, Any]] = field(default_factory=list)
    last_metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    release_seconds: dict[str, float] = field(default_factory=dict)  # of each client's last release
    message_log: list[dict[str, Any]] = field(default_factory=list)
    ledgers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """The state under the keys of the checkpoint file."""
        return {key: getattr(self, name) for key, name in _CHECKPOINT_KEYS.items()}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "ServerLoopState":
        """The state of a checkpoint; other keys in it are ignored."""
        values = {name: state[key] for key, name in _CHECKPOINT_KEYS.items()}
        return cls(**{**values, "names": tuple(values["names"])})

    def ledger(self, config: RunConfig, name: str) -> Ledger:
        """The receipts that the server has of a client."""
        saved = self.ledgers.get(name)
        return resolve.make_ledger(config, name) if saved is None else Ledger.from_state_dict(saved)


_CHECKPOINT_KEYS = {  # key in the checkpoint file -> field of `ServerLoopState`
    "run": "run",
    "hop": "message_index",
    "names": "names",
    "classes": "classes",
    "memory": "server_state",
    "broadcast": "broadcast",
    "learners": "finetuning_clients",
    "rounds": "rounds",
    "told": "last_metrics",
    "seconds": "release_seconds",
    "diary": "message_log",
    "ledgers": "ledgers",
}


class ServerLoop:
    """The messages of one run."""

    def __init__(self, config: RunConfig, pool: NodePool, state: ServerLoopState) -> None:
        self.config, self.pool, self.state = config, pool, state
        self.framework = resolve.make_framework(config)
        self.weights: Float[Tensor, "m c"] | None = None

    @property
    def server(self) -> builder.Server:
        """The server; until a client has sent the number of classes, it can only sample participants."""
        names, classes = self.state.names, self.state.classes
        if self.weights is None or self.weights.shape[1] != classes:
            self.weights = _public_weights(self.config, names, classes)
        return builder.Server(
            config=self.config, framework=self.framework, names=names, classes=classes, weights=self.weights
        )

    def exchange_once(self) -> None:
        """Send one message to each client, close the last round and open the next, or (`NotEnoughClients`) none."""
        state, index, start = self.state, self.state.message_index + 1, time.perf_counter()
        is_last = index > self.config.run.rounds
        present = [] if is_last else self.server.sample_participants(index)
        self.pool.register_new_nodes(self.config)
        replies, missing = self.pool.send_and_collect(self._make_requests(index, present))
        seconds = {"exchange": time.perf_counter() - start}
        metadata, uploads, dropped = self._validate_replies(replies)
        silent = {name: each.no_upload_reason for name, each in metadata.items() if each.no_upload_reason}
        valid = len(metadata) - len(silent)
        needed = min(self.pool.server_config.minimum, len(present) or len(state.finetuning_clients))
        if valid < needed:
            absent = sorted({**missing, **dropped, **silent}.items())
            raise NotEnoughClients(
                f"message {index}: {valid} valid answers, {needed} are needed "
                f"({', '.join(f'{name}: {reason}' for name, reason in absent)}); "
                "the run stops here and can be resumed"
            )
        state.message_index = index
        self._record_metadata(metadata)
        if index > 1:
            self._close_round(metadata.keys())
        state.message_log.append(
            {
                "message": index,
                "answered": len(metadata),
                "missing": missing,
                "dropped": dropped,
                "silent": silent,
                "seconds": seconds,
            }
        )
        state.finetuning_clients = [name for name in present if name in metadata]
        start = time.perf_counter()
        if not is_last:
            server = self.server
            server_state = state.server_state if index > 1 else server.init_state()
            broadcast, state.server_state = server.aggregate(uploads, server_state, index)
            state.broadcast = self.framework.pack(broadcast)
        seconds["server"] = time.perf_counter() - start

    def _make_requests(self, message_index: int, present: Sequence[str]) -> dict[str, messages.RoundRequest]:
        """Requests to clients that fine-tune or release, and to those without metrics so far."""
        requests = {}
        for name in self.state.names:
            finetune, release = name in self.state.finetuning_clients, name in present
            if finetune or release or name not in self.state.last_metrics:
                requests[name] = messages.RoundRequest(
                    run=self.state.run,
                    message_index=message_index,
                    config=self.config,
                    finetune=finetune,
                    release=release,
                    known_receipts=len(self.state.ledger(self.config, name).entries),
                    broadcast=self.state.broadcast if finetune else {},
                )
        return requests

    def _validate_replies(
        self, replies: Mapping[str, messages.RoundReply]
    ) -> tuple[dict[str, messages.ReplyMetadata], dict[str, Prototypes], dict[str, str]]:
        """Valid metadata and uploads by client, and why the other clients are dropped."""
        state, dim, max_norm = self.state, self.config.model.dim, self.pool.server_config.max_norm
        parsed = {name: messages.parse_metadata(reply) for name, reply in replies.items()}
        valid = {name: metadata for name, metadata in parsed.items() if metadata is not None}
        dropped = {name: "facts" for name in replies if name not in valid}
        if not state.classes and valid:  # the majority decides on the classes
            state.classes = Counter(metadata.classes for metadata in valid.values()).most_common(1)[0][0]
        dropped |= {name: "number of classes" for name, each in valid.items() if each.classes != state.classes}
        uploads = {}
        for name in [name for name in valid if name not in dropped]:
            upload = replies[name].upload
            if upload is None:
                continue
            reason = messages.reason_to_reject(upload, classes=state.classes, dim=dim, max_norm=max_norm)
            if reason is None:
                uploads[name] = upload
            else:
                dropped[name] = reason
        return {name: each for name, each in valid.items() if name not in dropped}, uploads, dropped

    def _record_metadata(self, metadata: Mapping[str, messages.ReplyMetadata]) -> None:
        """Store the receipts and metrics of the clients."""
        state = self.state
        per_round = 2 if self.config.train.is_private else 1  # a release, and with DP-SGD a training
        max_entries = self.config.run.rounds * per_round
        for name, each in metadata.items():
            ledger = state.ledger(self.config, name)
            ledger.entries = (*ledger.entries, *each.entries)[:max_entries]
            state.ledgers[name] = ledger.state_dict()
            seconds = {"prototypes": state.release_seconds.get(name, 0.0), **each.metrics.get("seconds", {})}
            state.last_metrics[name] = {**EMPTY_METRICS, **each.metrics, "seconds": seconds}
            state.release_seconds[name] = each.release_seconds  # of the round that is opened now

    def _close_round(self, answered: Set[str]) -> None:
        """The record of the round that the last message closed; absent clients keep their last metrics."""
        state, clients = self.state, {}
        for name in state.names:
            metrics = state.last_metrics.get(name, EMPTY_METRICS)
            present = name in answered and name in state.finetuning_clients
            clients[name] = {"present": present, **metrics, "losses": metrics["losses"] if present else {}}
        server_seconds = {"server": state.message_log[-1]["seconds"]["server"]}
        state.rounds.append({"round": state.message_index - 1, "clients": clients, "seconds": server_seconds})


def _public_weights(config: RunConfig, names: Sequence[str], classes: int) -> Float[Tensor, "m c"]:
    """Public client weights: uniform, or from the sizes of a benchmark that the server can load."""
    kind = resolve.client_weights(config)
    if kind == "uniform" or not classes:
        return torch.ones(len(names), classes)
    federation = builder.build(config)
    rows = {client.id: row for row, client in enumerate(federation.clients)}
    if not set(names) <= set(rows):
        raise InvalidInput(f"weights {kind} need clients of the run's benchmark, got {list(names)}")
    return federation.server.weights[[rows[name] for name in names]]
