"""Which metrics are sent to the server, and what the owner finds in the logs."""

import json
from pathlib import Path

import pytest

from tests.unit.flower.conftest import RUN, edit_policy, make_request, make_store, tiny
from vpdr.flower.client_app import handle_request
from vpdr.flower.owner import NodeStore


@pytest.mark.parametrize(
    ("metrics", "names"), [("nothing", {"epsilon"}), ("accuracy", {"losses", "accuracy", "epsilon", "seconds"})]
)
def test_metrics_are_sent_only_if_the_policy_allows_it(tmp_path: Path, metrics, names) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    edit_policy(store.path, ('metrics = "everything"', f'metrics = "{metrics}"'))
    assert set(handle_request(store, make_request(config)).metadata["measured"]) == names


def test_a_repeated_reply_follows_the_current_policy(tmp_path: Path) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    assert "accuracy" in handle_request(store, make_request(config)).metadata["measured"]
    edit_policy(store.path, ('metrics = "everything"', 'metrics = "nothing"'))
    metadata = handle_request(store, make_request(config)).metadata
    assert (set(metadata["measured"]), metadata["seconds"]) == ({"epsilon"}, 0.0)


def test_the_owner_has_metrics_that_are_not_sent(tmp_path: Path) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    edit_policy(store.path, ('metrics = "everything"', 'metrics = "nothing"'))
    handle_request(store, make_request(config))
    (line,) = (store.path / "measured.jsonl").read_text().splitlines()
    owner_metrics = json.loads(line)
    assert (owner_metrics["run"], owner_metrics["round"]) == (RUN, 0)
    assert "head" in owner_metrics["accuracy"]["own"]


def test_a_log_line_can_hold_any_text(tmp_path: Path) -> None:
    NodeStore(tmp_path).log_error("\ud800")
    assert "ud800" in (tmp_path / "refusals.log").read_text()


def test_logs_do_not_fill_the_disk(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("vpdr.flower.owner.MAX_LOG_BYTES", 10_000)
    store = NodeStore(tmp_path)
    for _ in range(50):
        store.log_error("x" * 10_000)
    assert (tmp_path / "refusals.log").stat().st_size < 11_000
