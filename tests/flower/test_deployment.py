"""Processes, TLS, node keys: what happens between machines, on one."""

import time
from pathlib import Path

import pytest

from tests.flower.conftest import paid, tiny, without_exchange
from vpdr.engines.runner import run_plan
from vpdr.flower.deployment import Deployment
from vpdr.flower.post import ServerTerms
from vpdr.flower.simulation import simulated_homes
from vpdr.records.store import read_record

pytestmark = pytest.mark.deployment
PATIENCE = 280.0


def wait_for(deployment: Deployment, words: str, times: int = 1) -> None:
    deadline = time.monotonic() + PATIENCE
    while deployment.processes.log("run").count(words) < times:
        assert time.monotonic() < deadline, deployment.processes.log("run")
        time.sleep(0.5)


def test_a_deployment_gives_the_numbers_of_vpdr_run_and_keeps_strangers_out(tmp_path: Path) -> None:
    plan = tiny("benchmark.clients=2", "run.rounds=2", "mechanism.kind=vpp", "regulariser.kind=dcr")
    with Deployment(folder=tmp_path / "up", plan=plan) as deployment:
        stranger = simulated_homes(tiny("benchmark.clients=3"), tmp_path / "others")[2]
        deployment.keys.make_node("stranger")  # a key that nobody registered
        deployment.homes.append(stranger)
        deployment.ports.append(deployment.ports[-1] + 1)
        name = deployment.start_node(2, key="stranger")
        deployment.submit(ServerTerms(clients=2, minimum=2, round_timeout=PATIENCE))
        record = deployment.result(2 * PATIENCE)
        assert deployment.processes.running[name].wait(60) != 0
    assert record["clients"] == ["client-000", "client-001"]
    assert not (stranger / "ledger.json").exists()
    run_plan(plan, tmp_path / "run")
    assert without_exchange(record) == without_exchange(read_record(tmp_path / "run" / "record.json"))
    assert (deployment.results / "report.html").exists()
    assert not deployment.processes.running


def test_a_node_is_killed_in_mid_round_and_comes_back_with_its_ledger(tmp_path: Path) -> None:
    plan = tiny("benchmark.clients=4", "run.rounds=6", "release.noise=system")
    with Deployment(folder=tmp_path / "up", plan=plan) as deployment:
        deployment.submit(ServerTerms(clients=4, minimum=3, round_timeout=PATIENCE))
        wait_for(deployment, "message 1: 4 answers")
        time.sleep(2)
        deployment.processes.kill("node-002")  # kill -9, children included
        before = paid(deployment.homes[2])
        wait_for(deployment, "message 2: 3 answers")
        time.sleep(5)  # the SuperLink has just given it up, so it may register again
        deployment.start_node(2)
        record = deployment.result(4 * PATIENCE)
    messages = record["exchange"]["messages"]
    assert messages[1]["missing"] == {"client-002": "failed: node unavailable"}
    assert not messages[-1]["missing"]
    rounds = [entry["round"] for entry in record["ledgers"]["client-002"]["entries"]]
    assert rounds[0] == 1
    assert 2 <= len(rounds) < 6
    assert paid(deployment.homes[2]) >= max(before, len(rounds))
    assert all(paid(deployment.homes[part]) == 6 for part in (0, 1, 3))
    assert record["rounds"][-1]["clients"]["client-002"]["present"]


def test_a_server_that_is_killed_goes_on_at_the_open_round(tmp_path: Path) -> None:
    plan = tiny("benchmark.clients=2", "run.rounds=2", "mechanism.kind=vpp")
    terms = ServerTerms(clients=2, minimum=2, round_timeout=PATIENCE)
    with Deployment(folder=tmp_path / "up", plan=plan, secure=False) as deployment:
        deployment.submit(terms)
        wait_for(deployment, "message 1: 2 answers")
        deployment.processes.kill("superlink")  # with the server app, its child
    with Deployment(folder=tmp_path / "up", plan=plan, secure=False) as deployment:
        deployment.submit(terms, resume=True)
        record = deployment.result(2 * PATIENCE)
    run_plan(plan, tmp_path / "run")
    assert without_exchange(record) == without_exchange(read_record(tmp_path / "run" / "record.json"))
    assert [paid(home) for home in deployment.homes] == [2, 2]
