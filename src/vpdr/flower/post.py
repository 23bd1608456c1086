"""Messages out, answers in: who answered, who did not, and why."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vpdr.errors import VpdrError
from vpdr.flower.errand import Answer, Errand
from vpdr.flower.refusals import Code, Refused
from vpdr.flower.wire import errand_record, greeting_record, read_answer
from vpdr.plan.plan import Plan

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid

POLL_SECONDS = 0.5
NO_REPLY = "no reply in time"


class TooFew(VpdrError, RuntimeError):
    """Fewer clients than the run needs: it ends here, and can be resumed from its last round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerTerms:
    """How long a server waits, for how many, and what it lets in."""

    clients: int = 0  # to wait for at the start; 0: as many as are there after `patience`
    minimum: int = 1  # valid answers without which a round cannot close
    round_timeout: float = 3600.0
    patience: float = 120.0  # seconds for nodes to appear
    most_norm: float = 1e6  # of an uploaded prototype


@dataclass(slots=True)
class Post:
    """The nodes behind a grid, by their clients' names."""

    grid: "Grid"
    terms: ServerTerms
    nodes: dict[str, int] = field(default_factory=dict)
    turned_away: dict[str, str] = field(default_factory=dict)  # node -> why it is not on the list

    def gather(self, plan: Plan) -> None:
        """Wait for nodes and learn their names; too few of them is an end, not a wait for ever."""
        deadline = time.monotonic() + self.terms.patience
        wanted = max(self.terms.clients, self.terms.minimum)
        while True:
            self.meet(plan)
            if len(self.nodes) >= wanted or time.monotonic() >= deadline:
                break
            time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        if len(self.nodes) < self.terms.minimum:
            why = ", ".join(sorted(set(self.turned_away.values()))) or "none"
            raise TooFew(
                f"{len(self.nodes)} clients take part, {self.terms.minimum} are needed; turned away: {why}"
            )

    def meet(self, plan: Plan) -> None:
        """Greet nodes that are new; a known name on a new node takes over from one that is gone."""
        online = set(self.grid.get_node_ids())
        new = sorted(node for node in online if self._worth_asking(node))
        replies = self._exchange({node: greeting_record(plan) for node in new}, "query")
        for node in new:
            try:
                name = _name(replies.get(node))
            except Refused as refusal:
                self.turned_away[str(node)] = str(refusal)
                continue
            if self.nodes.get(name) in online:
                self.turned_away[str(node)] = "a second node of the same name"
            else:
                self.nodes[name] = node
                self.turned_away.pop(str(node), None)

    def _worth_asking(self, node: int) -> bool:
        """Neither known nor refused for good: a node that failed or was busy may have come to its senses."""
        words = self.turned_away.get(str(node), str(Code.FAILED))
        return node not in self.nodes.values() and words.startswith((Code.FAILED, Code.BUSY))

    def ask(self, errands: Mapping[str, Errand]) -> tuple[dict[str, Answer], dict[str, str]]:
        """The answers by name, and why there is none from the others."""
        online = set(self.grid.get_node_ids())
        reachable = {name: self.nodes[name] for name in errands if self.nodes.get(name) in online}
        records = {node: errand_record(errands[name]) for name, node in reachable.items()}
        replies = self._exchange(records, "train")
        answers: dict[str, Answer] = {}
        missing = {name: "offline" for name in errands if name not in reachable}
        for name, node in reachable.items():
            if node not in replies:
                missing[name] = NO_REPLY
                continue
            try:
                answers[name] = read_answer(replies[node])
            except Refused as refusal:
                missing[name] = str(refusal)
        return answers, missing

    def _exchange(self, records: "Mapping[int, RecordDict]", kind: str) -> "dict[int, Message]":
        """One message to each node; replies by node, told apart by what they reply to, not by who signs."""
        from flwr.app import Message

        if not records:
            return {}
        wait = self.terms.round_timeout
        sent = [Message(content, node, kind, ttl=wait) for node, content in records.items()]
        replies = list(self.grid.send_and_receive(sent, timeout=wait))
        senders = {message.metadata.message_id: message.metadata.dst_node_id for message in sent}
        found = {senders.get(reply.metadata.reply_to_message_id, -1): reply for reply in replies}
        return {node: reply for node, reply in found.items() if node in records}


def _name(reply: "Message | None") -> str:
    """The name that a client gives itself."""
    if reply is None:
        raise Refused(Code.FAILED, NO_REPLY)
    if reply.has_error():
        read_answer(reply)
    told = reply.content.config_records
    name = told["hello"].get("name") if "hello" in told else None
    if not isinstance(name, str) or not 0 < len(name) < 100:
        raise Refused(Code.BAD_REQUEST, "no name")
    return name
