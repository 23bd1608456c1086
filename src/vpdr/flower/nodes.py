"""The nodes of a run on the server: registration, sending requests and collecting replies."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vpdr.config import RunConfig
from vpdr.errors import VpdrError
from vpdr.flower.messages import RoundReply, RoundRequest, hello_to_record, reply_from_message, request_to_record
from vpdr.flower.policy import Refusal, RefusalCode

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid


POLL_SECONDS = 0.5
NO_REPLY = "no reply in time"


class NotEnoughClients(VpdrError, RuntimeError):
    """Fewer clients than the run needs; it stops and can be resumed from the last round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig:
    """Settings of the server; the field names are keys of Flower's run config.

    Attributes:
        clients: number of clients to wait for at the start; 0 waits `patience` seconds for any.
        minimum: number of valid replies that a round needs.
        round_timeout: seconds for the replies of one message.
        patience: seconds for nodes to connect at the start.
        most_norm: largest accepted norm of an uploaded prototype.
    """

    clients: int = 0
    minimum: int = 1
    round_timeout: float = 3600.0
    patience: float = 120.0
    most_norm: float = 1e6


@dataclass(slots=True)
class NodePool:
    """The nodes of a Flower grid, by client name."""

    grid: "Grid"
    server_config: ServerConfig
    nodes: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)  # node id -> reason

    def wait_for_nodes(self, config: RunConfig) -> None:
        """Wait until enough nodes are registered.

        Raises:
            NotEnoughClients: fewer than `minimum` after `patience` seconds.
        """
        deadline = time.monotonic() + self.server_config.patience
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
        """Ask new nodes for their client name; a name may move to a new node if the old one is offline."""
        online = set(self.grid.get_node_ids())
        new = sorted(node for node in online if self._may_register(node))
        replies = self._send_and_receive({node: hello_to_record(config) for node in new}, "query")
        for node in new:
            try:
                name = _client_name(replies.get(node))
            except Refusal as refusal:
                self.rejected[str(node)] = str(refusal)
                continue
            if self.nodes.get(name) in online:
                self.rejected[str(node)] = "a second node of the same name"
            else:
                self.nodes[name] = node
                self.rejected.pop(str(node), None)

    def _may_register(self, node: int) -> bool:
        """Whether a node is not registered yet; after `failed` or `busy` it is asked again."""
        reason = self.rejected.get(str(node), str(RefusalCode.FAILED))
        return node not in self.nodes.values() and reason.startswith((RefusalCode.FAILED, RefusalCode.BUSY))

    def send_and_collect(self, requests: Mapping[str, RoundRequest]) -> tuple[dict[str, RoundReply], dict[str, str]]:
        """Send one request per client; returns the replies, and the reasons of missing ones, by name."""
        online = set(self.grid.get_node_ids())
        reachable = {name: self.nodes[name] for name in requests if self.nodes.get(name) in online}
        records = {node: request_to_record(requests[name]) for name, node in reachable.items()}
        replies = self._send_and_receive(records, "train")
        received: dict[str, RoundReply] = {}
        missing = {name: "offline" for name in requests if name not in reachable}
        for name, node in reachable.items():
            if node not in replies:
                missing[name] = NO_REPLY
                continue
            try:
                received[name] = reply_from_message(replies[node])
            except Refusal as refusal:
                missing[name] = str(refusal)
        return received, missing

    def _send_and_receive(self, records: "Mapping[int, RecordDict]", kind: str) -> "dict[int, Message]":
        """One message to each node; replies are matched by the message they reply to, not by sender."""
        from flwr.app import Message

        if not records:
            return {}
        timeout = self.server_config.round_timeout
        messages = [Message(content, node, kind, ttl=timeout) for node, content in records.items()]
        replies = list(self.grid.send_and_receive(messages, timeout=timeout))
        nodes = {message.metadata.message_id: message.metadata.dst_node_id for message in messages}
        by_node = {nodes.get(reply.metadata.reply_to_message_id, -1): reply for reply in replies}
        return {node: reply for node, reply in by_node.items() if node in records}


def _client_name(reply: "Message | None") -> str:
    """The client name in the reply to a hello message."""
    if reply is None:
        raise Refusal(RefusalCode.FAILED, NO_REPLY)
    if reply.has_error():
        reply_from_message(reply)
    records = reply.content.config_records
    name = records["hello"].get("name") if "hello" in records else None
    if not isinstance(name, str) or not 0 < len(name) < 100:
        raise Refusal(RefusalCode.BAD_REQUEST, "no name")
    return name
