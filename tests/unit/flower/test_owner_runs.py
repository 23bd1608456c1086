"""The order of messages, saved runs, and the permissions of the owner's directory."""

import fcntl
import os
from pathlib import Path

import pytest
import torch

from tests.unit.flower.conftest import RUN, make_request, make_store, num_charges, tiny
from vpdr.flower.client_app import handle_request
from vpdr.flower.messages import RoundRequest
from vpdr.flower.owner import MAX_SAVED_RUNS, NodeStore, Refusal, RefusalCode
from vpdr.validation import DamagedFile


def test_a_repeated_message_costs_nothing_and_gets_the_same_reply(tmp_path: Path) -> None:
    config = tiny("release.noise=system")
    store = make_store(tmp_path, config)
    first = handle_request(store, make_request(config))
    second = handle_request(NodeStore(store.path), make_request(config))
    assert torch.equal(first.upload.vectors, second.upload.vectors)
    assert first.metadata == second.metadata
    assert num_charges(store) == 1


def test_messages_come_in_order_with_one_config(tmp_path: Path) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    handle_request(store, make_request(config, message_index=2))
    for request, code in [
        (make_request(config), RefusalCode.ROUND_ORDER),
        (make_request(tiny("run.seed=1"), message_index=3), RefusalCode.OTHER_PLAN),
    ]:
        with pytest.raises(Refusal) as refusal:
            handle_request(store, request)
        assert refusal.value.code is code
    assert num_charges(store) == 1


def test_a_busy_client_refuses(tmp_path: Path) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    descriptor = os.open(store.path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(Refusal) as refusal:
            handle_request(store, make_request(config))
    finally:
        os.close(descriptor)
    assert refusal.value.code is RefusalCode.BUSY
    assert handle_request(store, make_request(config)).upload is not None


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    handle_request(store, make_request(config))
    state = store.path / "runs" / f"{RUN}.pt"
    state.write_bytes(state.read_bytes()[:-7])
    with pytest.raises(DamagedFile, match="damaged"):
        handle_request(store, make_request(config, message_index=2))


def test_the_directory_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    handle_request(store, make_request(config))
    for file in store.path.rglob("*"):
        if file.is_file() and file.name != "policy.toml":
            assert file.stat().st_mode & 0o077 == 0, file


def test_many_runs_do_not_fill_the_disk(tmp_path: Path) -> None:
    config = tiny("framework.kind=local")
    store = make_store(tmp_path, config)
    for number in range(MAX_SAVED_RUNS + 2):
        handle_request(store, RoundRequest(run=f"{number:016x}", message_index=1, config=config))
    assert len(list((store.path / "runs").iterdir())) == MAX_SAVED_RUNS
