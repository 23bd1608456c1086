"""A Flower grid in this process: the same apps without network or Ray, in a fixed order."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class InProcessGrid(Grid):
    """Flower's `Grid` over function calls; each node has a directory and replies at once.

    Args:
        app: the client app of all nodes.
        node_dirs: one directory per node; node ids start at 2.
    """

    def __init__(self, app: ClientApp, node_dirs: Sequence[Path]) -> None:
        # Flower's messages read their source from here; only its own processes set it
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
        self.app = app
        self.contexts = {
            node_id: _make_context(node_id, directory) for node_id, directory in enumerate(node_dirs, start=2)
        }
        self.replies: dict[str, Message] = {}
        self._message_ids = itertools.count(1)

    def set_run(self, run: Any) -> None:
        """Do nothing: there is one run only."""

    @property
    def run(self) -> Any:
        """Not supported."""
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        """Not supported; deprecated in Flower."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the app on each message."""
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
        """The replies to these messages."""
        return [self.replies.pop(message_id) for message_id in message_ids]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return their replies; there is no timeout."""
        return self.pull_messages(self.push_messages(messages))


def _make_context(node_id: int, node_dir: Path) -> Context:
    return Context(run_id=1, node_id=node_id, node_config={"folder": str(node_dir)}, state=RecordDict(), run_config={})
