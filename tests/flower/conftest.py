"""Federations over Flower's messages, in this process."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.conftest import timeless, tiny
from vpdr.flower.client_app import client_app
from vpdr.flower.errand import Errand
from vpdr.flower.grid import InProcessGrid
from vpdr.flower.home import Home
from vpdr.flower.post import ServerTerms
from vpdr.flower.simulation import simulated_homes
from vpdr.plan import Plan
from vpdr.privacy import LedgerFile


@pytest.fixture(autouse=True)
def _a_quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power cut is played here, so nothing must reach the platters."""
    monkeypatch.setattr("os.fsync", lambda _: None)


RUN = "0123456789abcdef"


def without_exchange(record: dict[str, Any]) -> str:
    return timeless({key: value for key, value in record.items() if key != "exchange"})


def changed(home: Path, *changes: tuple[str, str]) -> None:
    """Edit a policy as its owner would."""
    text = (home / "policy.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (home / "policy.toml").write_text(text)


def one_home(tmp_path: Path, plan: Plan) -> Home:
    return Home(simulated_homes(plan, tmp_path / "nodes")[0])


def with_features(tmp_path: Path, plan: Plan, classes: Sequence[int] = range(4)) -> Home:
    """A silo with a file of features of its own."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(40, 12)), np.resize(np.array(classes), 40)
    np.savez(tmp_path / "silo.npz", train_x=rows, train_y=labels, test_x=rows[:8], test_y=labels[:8])
    home = one_home(tmp_path, plan)
    data = f'features = "{tmp_path / "silo.npz"}"\nclasses = 4'
    changed(home.path, ('benchmark = "synthetic"', data), ('"client-000"', '"hospital-a"'))
    return home


def opening(plan: Plan, **changes: Any) -> Errand:
    return Errand(**{"run": RUN, "hop": 1, "plan": plan, "release": True, **changes})


def paid(home: Home | Path) -> int:
    path = (home.path if isinstance(home, Home) else home) / "ledger.json"
    return len(LedgerFile(path).read().entries) if path.exists() else 0


class FaultyGrid(InProcessGrid):
    """A grid on which something goes wrong: `fault(node, message)` may replace a reply, or drop it."""

    def __init__(self, homes: list[Path], fault: Callable[[int, Any], Any]) -> None:
        super().__init__(client_app(), homes)
        self.fault = fault
        self.gone: set[int] = set()

    def get_node_ids(self) -> list[int]:
        return [node for node in self.contexts if node not in self.gone]

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(next(self._numbers))
            reply = self.fault(message.metadata.dst_node_id - 2, message, lambda m=message: self.answered(m))
            if reply is not None:
                replies.append(reply)
        return replies


def terms(minimum: int = 2, clients: int = 3) -> ServerTerms:
    return ServerTerms(clients=clients, minimum=minimum, patience=0.0)


__all__ = [
    "FaultyGrid",
    "changed",
    "one_home",
    "opening",
    "paid",
    "terms",
    "tiny",
    "with_features",
    "without_exchange",
]
