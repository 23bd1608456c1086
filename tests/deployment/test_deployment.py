"""Deployments on loopback: processes, TLS and node keys."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.unit.flower.conftest import num_charges, tiny, without_exchange
from vpdr.federation import run_federation
from vpdr.flower.deployment import Deployment
from vpdr.flower.owner import create_simulated_nodes
from vpdr.flower.server_app import ServerConfig
from vpdr.records import read_record

pytestmark = pytest.mark.deployment
PATIENCE = 280.0


def wait_for_log(deployment: Deployment, words: str, times: int = 1) -> None:
    deadline = time.monotonic() + PATIENCE
    while deployment.processes.read_log("run").count(words) < times:
        assert time.monotonic() < deadline, deployment.processes.read_log("run")
        time.sleep(0.5)


def kill(deployment: Deployment, name: str) -> None:
    """End a process and its children at once, as a power cut would."""
    process = deployment.processes.running.pop(name)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    deployment.processes.discard(name)


def test_a_deployment_gives_the_numbers_of_vpdr_run_and_keeps_strangers_out(tmp_path: Path) -> None:
    config = tiny("benchmark.clients=2", "run.rounds=2", "mechanism.kind=vpp", "regulariser.kind=dcr")
    with Deployment(folder=tmp_path / "up", config=config) as deployment:
        stranger = create_simulated_nodes(tiny("benchmark.clients=3"), tmp_path / "others")[2]
        deployment.keys.make_node_key("stranger")  # a key that is not registered
        deployment.node_dirs.append(stranger)
        deployment.ports.append(deployment.ports[-1] + 1)
        name = deployment.start_node(2, key="stranger")
        deployment.submit(ServerConfig(clients=2, minimum=2, round_timeout=PATIENCE))
        record = deployment.wait_for_result(2 * PATIENCE)
        assert deployment.processes.running[name].wait(60) != 0
    assert record.clients == ("client-000", "client-001")
    assert not (stranger / "ledger.json").exists()
    run_federation(config, tmp_path / "run")
    assert without_exchange(record) == without_exchange(read_record(tmp_path / "run" / "record.json"))
    assert (deployment.results / "report.html").exists()
    assert not deployment.processes.running


def test_a_node_is_killed_in_mid_round_and_comes_back_with_its_ledger(tmp_path: Path) -> None:
    config = tiny("benchmark.clients=4", "run.rounds=6", "release.noise=system")
    with Deployment(folder=tmp_path / "up", config=config) as deployment:
        deployment.submit(ServerConfig(clients=4, minimum=3, round_timeout=PATIENCE))
        wait_for_log(deployment, "message 1: 4 answers")
        time.sleep(2)
        kill(deployment, "node-002")  # kill -9, children included
        before = num_charges(deployment.node_dirs[2])
        wait_for_log(deployment, "message 2: 3 answers")
        time.sleep(5)  # the SuperLink has just dropped it, so it may connect again
        deployment.start_node(2)
        record = deployment.wait_for_result(4 * PATIENCE)
    messages = record.exchange.messages
    assert messages[1]["missing"] == {"client-002": "failed: node unavailable"}
    assert not messages[-1]["missing"]
    rounds = [entry["round"] for entry in record.ledgers["client-002"]["entries"]]
    assert rounds[0] == 1
    assert 2 <= len(rounds) < 6
    assert num_charges(deployment.node_dirs[2]) >= max(before, len(rounds))
    assert all(num_charges(deployment.node_dirs[part]) == 6 for part in (0, 1, 3))
    assert record.rounds[-1].clients["client-002"].present


def test_a_server_that_is_killed_goes_on_at_the_open_round(tmp_path: Path) -> None:
    config = tiny("benchmark.clients=2", "run.rounds=2", "mechanism.kind=vpp")
    server_config = ServerConfig(clients=2, minimum=2, round_timeout=PATIENCE)
    with Deployment(folder=tmp_path / "up", config=config, secure=False) as deployment:
        deployment.submit(server_config)
        wait_for_log(deployment, "message 1: 2 answers")
        kill(deployment, "superlink")  # with the server app, its child
    with Deployment(folder=tmp_path / "up", config=config, secure=False) as deployment:
        deployment.submit(server_config, resume=True)
        record = deployment.wait_for_result(2 * PATIENCE)
    run_federation(config, tmp_path / "run")
    assert without_exchange(record) == without_exchange(read_record(tmp_path / "run" / "record.json"))
    assert [num_charges(node_dir) for node_dir in deployment.node_dirs] == [2, 2]
