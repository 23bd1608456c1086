"""The commands of docs/deploy.md: one server and two clients, each with its own directory."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vpdr.flower.deployment import ProcessGroup, free_ports, wait_for_port
from vpdr.privacy import LedgerFile

pytestmark = pytest.mark.deployment
DOCUMENT = Path(__file__).parents[2] / "docs" / "deploy.md"
OFFLINE, SERVER, SILO, REGISTER, NODE, RUN = range(6)


class Machine:
    """A shell with the environment of the document only."""

    def __init__(self, folder: Path, changes: dict[str, str]) -> None:
        self.work, self.changes = folder / "work", changes
        folder.mkdir()
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(folder),
            "WORK": str(self.work),
            "SERVER": "127.0.0.1",
        }
        self.processes = ProcessGroup(folder / "logs", self.env)

    def text(self, number: int) -> str:
        blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
        text = f"set -e\n{blocks[OFFLINE]}\n{blocks[number]}"
        for old, new in self.changes.items():
            text = text.replace(old, new)
        return text

    def follow(self, number: int) -> None:
        subprocess.run(["bash", "-c", self.text(number)], env=self.env, check=True, timeout=600)

    def leave_running(self, number: int) -> None:
        self.processes.start(str(number), ["bash", "-c", self.text(number)])


def data(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.arange(200) % 10
    rows = np.random.default_rng(0).normal(size=(10, 512))[labels] + rng.normal(size=(200, 512))
    np.savez(path, train_x=rows, train_y=labels, test_x=rows[:50], test_y=labels[:50])


def join(silo: Machine, server: Machine, seed: int) -> None:
    """Exchange public keys and certificates, then start the node."""
    silo.follow(SILO)
    data(silo.work / "silo" / "silo.npz", seed)
    name = silo.changes["hospital-a"]
    public = silo.work / "keys" / f"{name}.pub"
    (server.work / "keys" / public.name).write_bytes(public.read_bytes())
    (silo.work / "keys" / "ca.crt").write_bytes((server.work / "keys" / "ca.crt").read_bytes())
    server.changes["hospital-a"] = name
    server.follow(REGISTER)
    silo.leave_running(NODE)


def test_the_document_works_as_it_is_written(tmp_path: Path) -> None:
    ports = free_ports(3)
    size = {"clients=4 minimum=3": "clients=2 minimum=2", "--plan paper": "--set run.rounds=1"}
    server = Machine(tmp_path / "server", {"8443": str(ports[0]), **size})
    silos = [
        Machine(tmp_path / name, {"8443": str(ports[0]), "9094": str(port), "hospital-a": name})
        for name, port in zip(("hospital-a", "hospital-b"), ports[1:], strict=True)
    ]
    try:
        server.leave_running(SERVER)
        assert wait_for_port(ports[0], 120), server.processes.read_log(str(SERVER))
        for seed, silo in enumerate(silos):
            join(silo, server, seed)
        server.follow(RUN)
    finally:
        for machine in (*silos, server):
            machine.processes.stop_all()
    results = server.work / "run-1"
    assert json.loads((results / "ended.json").read_text()) == {"ok": True, "error": ""}
    record = json.loads((results / "record.json").read_text())
    assert record["clients"] == ["hospital-a", "hospital-b"]
    assert record["privacy"]["noise"] == "system"
    assert record["final"] == {"own": {}, "all": {}}  # the policies allow no metrics
    for silo in silos:
        assert len(LedgerFile(silo.work / "silo" / "ledger.json").read().entries) == 1
