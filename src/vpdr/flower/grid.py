"""All nodes in this process: the same apps without a network, without Ray, in a fixed order."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class InProcessGrid(Grid):
    """Flower's interface over plain function calls; each node answers at once, from its own folder."""

    def __init__(self, app: ClientApp, homes: Sequence[Path]) -> None:
        # messages ask who they are from; outside of Flower's own processes nobody else says so
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
        self.app = app
        self.contexts = {2 + part: _context(2 + part, home) for part, home in enumerate(homes)}
        self.replies: dict[str, Message] = {}
        self._numbers = itertools.count(1)

    def set_run(self, run: Any) -> None:
        """There is one run only."""

    @property
    def run(self) -> Any:
        """Nothing asks for it."""
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        """Deprecated in Flower."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """All nodes are always here."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Answer at once."""
        sent = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = name = str(next(self._numbers))
            self.replies[name] = self.answered(message)
            sent.append(name)
        return sent

    def answered(self, message: Message) -> Message:
        """One node's reply; a crash becomes an error, as in Flower."""
        try:
            return self.app(message, self.contexts[message.metadata.dst_node_id])
        except Exception as error:  # noqa: BLE001 - this is what Flower does, text included
            return Message(Error(code=2, reason=str(error)), reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """What was answered."""
        return [self.replies.pop(name) for name in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Both in one."""
        return self.pull_messages(self.push_messages(messages))


def _context(node: int, home: Path) -> Context:
    return Context(
        run_id=1, node_id=node, node_config={"folder": str(home)}, state=RecordDict(), run_config={}
    )
