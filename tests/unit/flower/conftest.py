"""Shared helpers: node stores, requests and grids with faults, all in this process."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.federation.conftest import timeless
from tests.unit.federation.conftest import tiny as tiny
from vpdr.config import RunConfig
from vpdr.flower.client_app import client_app
from vpdr.flower.messages import RoundRequest
from vpdr.flower.owner import NodeStore, create_simulated_nodes
from vpdr.flower.server_app import ServerConfig
from vpdr.flower.simulation import InProcessGrid
from vpdr.privacy import LedgerFile
from vpdr.records import RunRecord


@pytest.fixture(autouse=True)
def _skip_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here simulates a power cut, so no file has to be flushed to disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


RUN = "0123456789abcdef"


def without_exchange(record: RunRecord) -> str:
    return timeless(replace(record, exchange=None))


def edit_policy(node_dir: Path, *changes: tuple[str, str]) -> None:
    """Replace text in a policy file."""
    text = (node_dir / "policy.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (node_dir / "policy.toml").write_text(text)


def make_store(tmp_path: Path, config: RunConfig) -> NodeStore:
    return NodeStore(create_simulated_nodes(config, tmp_path / "nodes")[0])


def make_feature_store(tmp_path: Path, config: RunConfig, classes: Sequence[int] = range(4)) -> NodeStore:
    """A node whose policy names a file of features."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(40, 12)), np.resize(np.array(classes), 40)
    np.savez(tmp_path / "silo.npz", train_x=rows, train_y=labels, test_x=rows[:8], test_y=labels[:8])
    store = make_store(tmp_path, config)
    data = f'features = "{tmp_path / "silo.npz"}"\nclasses = 4'
    edit_policy(store.path, ('benchmark = "synthetic"', data), ('"client-000"', '"hospital-a"'))
    return store


def make_request(config: RunConfig, **changes: Any) -> RoundRequest:
    """The first message of a run, with changes."""
    return RoundRequest(**{"run": RUN, "message_index": 1, "config": config, "release": True, **changes})


def make_finetune_request(config: RunConfig, broadcast: dict[str, Any], **changes: Any) -> RoundRequest:
    """The second message of a run: fine-tune on this broadcast, then release."""
    return make_request(config, **{"message_index": 2, "finetune": True, "broadcast": broadcast, **changes})


def num_charges(store: NodeStore | Path) -> int:
    """The number of entries in the owner's ledger."""
    path = (store.path if isinstance(store, NodeStore) else store) / "ledger.json"
    return len(LedgerFile(path).read().entries) if path.exists() else 0


class FaultyGrid(InProcessGrid):
    """A grid with faults: `fault(node, message, work)` may replace the reply of `work()`, or drop it."""

    def __init__(self, node_dirs: list[Path], fault: Callable[..., Any]) -> None:
        super().__init__(client_app(), node_dirs)
        self.fault = fault
        self.offline: set[int] = set()

    def get_node_ids(self) -> list[int]:
        return [node for node in self.contexts if node not in self.offline]

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(next(self._message_ids))
            reply = self.fault(message.metadata.dst_node_id - 2, message, lambda m=message: self.handle_message(m))
            if reply is not None:
                replies.append(reply)
        return replies


def make_server_config(minimum: int = 2, clients: int = 3) -> ServerConfig:
    return ServerConfig(clients=clients, minimum=minimum, startup_timeout=0.0)
