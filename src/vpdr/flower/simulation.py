"""Simulations of the Flower apps: in this process without a network, in a fixed order, or on Ray."""

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from vpdr.config import RunConfig
from vpdr.flower import client_app, owner, server_app
from vpdr.records import RunRecord


class InProcessGrid(Grid):
    """Flower's `Grid` over function calls; each node has a directory, replies at once, and is called 2, 3, ..."""

    def __init__(self, app: ClientApp, node_dirs: Sequence[Path]) -> None:
        # Flower's messages read their source from here; only its own processes set it
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
        self.app = app
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config={"folder": str(path)}, state=RecordDict(), run_config={})
            for node, path in enumerate(node_dirs, start=2)
        }
        self.replies: dict[str, Message] = {}
        self._message_ids = itertools.count(1)

    def set_run(self, run: Any) -> None:
        """Do nothing: there is one run only."""

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError  # deprecated in Flower

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        message_ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message_id = str(next(self._message_ids))
            self.replies[message_id] = self.handle_message(message)
            message_ids.append(message_id)
        return message_ids

    def handle_message(self, message: Message) -> Message:
        """The reply of one node; an exception becomes an error reply, as in Flower."""
        try:
            return self.app(message, self.contexts[message.metadata.dst_node_id])
        except Exception as error:  # noqa: BLE001 - as Flower does, with the text
            return Message(Error(code=2, reason=str(error)), reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(message_id) for message_id in message_ids]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return their replies; there is no timeout."""
        return self.pull_messages(self.push_messages(messages))


def simulate_in_process(
    config: RunConfig, out: Path, *, resume: bool = False, on_message: server_app.MessageCallback = lambda _: None
) -> RunRecord:
    """Run a configuration over Flower's messages in this process; the numbers equal those of `vpdr run`."""
    node_dirs = owner.create_simulated_nodes(config, out / "nodes")
    grid = InProcessGrid(client_app.client_app(), node_dirs)
    server_config = server_app.ServerConfig(clients=len(node_dirs), minimum=len(node_dirs), startup_timeout=0.0)
    return server_app.serve(grid, config, out, server_config=server_config, resume=resume, on_message=on_message)


def simulate_on_ray(
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    on_message: server_app.MessageCallback = lambda _: None,
    cores: int = 0,
) -> RunRecord:
    """As `simulate_in_process`, with Flower's simulation engine: clients run in Ray's worker processes."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    node_dirs = owner.create_simulated_nodes(config, out / "nodes")
    server_config = server_app.ServerConfig(clients=len(node_dirs), minimum=len(node_dirs))
    records: list[RunRecord] = []
    app = ServerApp()

    @app.main()
    def main(grid: Any, _: Any) -> None:
        record = server_app.serve(grid, config, out, server_config=server_config, resume=resume, on_message=on_message)
        records.append(record)

    os.environ[client_app.NODE_DIRS_VAR] = str((out / "nodes").resolve())  # Ray's workers inherit it
    resources: dict[str, dict[str, Any]] = {
        "init_args": {"num_cpus": cores or os.cpu_count() or 1, "include_dashboard": False},
        "client_resources": {"num_cpus": 1},
    }
    run_simulation(app, client_app.client_app(), num_supernodes=len(node_dirs), backend_config=resources)
    if not records:
        raise server_app.NotEnoughClients("the simulation ended without a result; see its messages above")
    return records[0]
