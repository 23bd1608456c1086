"""A whole deployment on this machine: one SuperLink and its SuperNodes as processes of their own."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vpdr.errors import InvalidInput
from vpdr.files import write_atomically
from vpdr.flower.keys import Keys
from vpdr.flower.offline import VARIABLES
from vpdr.flower.post import ServerTerms
from vpdr.flower.processes import Processes, ProcessFailed, free_ports, tail, wait_for_port
from vpdr.flower.scaffold import write_app
from vpdr.flower.server_app import ENDED, single_plan
from vpdr.flower.simulation import simulated_homes
from vpdr.plan.plan import Plan
from vpdr.records.store import read_record
from vpdr.records.toml_text import toml_text

LOOPBACK, CONNECTION = "127.0.0.1", "vpdr"
START_SECONDS = 120.0  # a loaded machine takes its time


@dataclass(slots=True, kw_only=True)
class Deployment:
    """Everything in one folder: app, keys, nodes' homes, logs, results. To be used in a `with` statement."""

    folder: Path
    plan: Plan
    secure: bool = True
    homes: list[Path] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    processes: Processes = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        environment = {**os.environ, **VARIABLES, "FLWR_HOME": str(self.folder / "flower")}
        environment["PATH"] = _path()  # Flower starts commands of its own by their names
        self.processes = Processes(self.folder / "logs", environment)

    @property
    def keys(self) -> Keys:
        """Certificates and node keys."""
        return Keys(self.folder / "keys")

    @property
    def results(self) -> Path:
        """Where the server leaves the record."""
        return self.folder / "results"

    def __enter__(self) -> "Deployment":
        try:
            self._prepare()
            self._start_link()
            for number in range(len(self.homes)):
                if self.secure:
                    self.register(self.homes[number].name)
                self.start_node(number)
        except BaseException:
            self.processes.stop_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.stop_all()

    def _prepare(self) -> None:
        app = self.folder / "app"
        if not app.exists():
            write_app(app, self.plan)
        if single_plan(str(app / "vpdr_app" / "plan.toml")).identity != self.plan.identity:
            raise InvalidInput(f"{app} runs another plan; choose another --out")
        self.homes = simulated_homes(self.plan, self.folder / "nodes")
        self.ports = free_ports(1 + len(self.homes))
        (self.folder / "flower").mkdir(exist_ok=True)
        connection: dict[str, Any] = {"address": f"{LOOPBACK}:{self.ports[0]}", "insecure": not self.secure}
        if self.secure:
            self.keys.make([LOOPBACK, "localhost"], [home.name for home in self.homes])
            connection = {**connection, "root-certificates": str(self.keys.authority)}
        settings = toml_text({"superlink": {CONNECTION: connection}})
        write_atomically(self.folder / "flower" / "config.toml", settings.encode())

    def _start_link(self) -> None:
        command = [_program("flower-superlink"), "--host", LOOPBACK, "--port", str(self.ports[0])]
        command += self._link_options() if self.secure else ["--insecure"]
        self.processes.start("superlink", command)
        if not wait_for_port(self.ports[0], START_SECONDS):
            raise ProcessFailed(f"the SuperLink did not start: {tail(self.processes.log('superlink'))}")
        self.processes.check("superlink")

    def _link_options(self) -> list[str]:
        keys = self.keys
        certificates = ["--ssl-certfile", str(keys.certificate), "--ssl-keyfile", str(keys.server_key)]
        return [*certificates, "--ssl-ca-certfile", str(keys.authority), "--enable-supernode-auth"]

    def register(self, name: str) -> None:
        """Let a node in by its public key."""
        public = str(self.keys.folder / f"{name}.pub")
        command = [_program("flwr"), "supernode", "register", public, CONNECTION]
        self.processes.finish(f"register-{name}", command, START_SECONDS)

    def start_node(self, number: int, key: str | None = None) -> str:
        """Start a node from its home; after a crash it finds its ledger there."""
        home = self.homes[number]
        command = [_program("flower-supernode"), "--superlink", f"{LOOPBACK}:{self.ports[0]}"]
        command += ["--host", LOOPBACK, "--port", str(self.ports[1 + number])]
        command += ["--node-config", f"folder={json.dumps(str(home))}"]
        secret = str(self.keys.node_key(key or home.name))
        trust = ["--root-certificates", str(self.keys.authority), "--auth-supernode-private-key", secret]
        self.processes.start(home.name, [*command, *(trust if self.secure else ["--insecure"])])
        return home.name

    def submit(self, terms: ServerTerms, *, resume: bool = False) -> None:
        """Start the run; its progress is in logs/run.log."""
        (self.results / ENDED).unlink(missing_ok=True)
        config = {name.replace("_", "-"): value for name, value in asdict(terms).items()}
        config |= {"out": str(self.results), "resume": resume}
        values = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
        command = [_program("flwr"), "run", str(self.folder / "app"), CONNECTION, "--stream", "-c", values]
        self.processes.start("run", command)

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the run's end; its record, or the reason why there is none."""
        process = self.processes.running["run"]
        process.wait(timeout)
        self.processes.forget("run")
        ended = self.results / ENDED
        told: Mapping[str, Any] = read_record(ended) if ended.exists() else {}
        if not told.get("ok"):
            raise ProcessFailed(
                f"the run did not come to its end: {_reason(told, self.processes.log('run'))}"
            )
        return read_record(self.results / "record.json")


def _reason(told: Mapping[str, Any], log: str) -> str:
    return str(told.get("error") or tail(log))


def _path() -> str:
    """Where commands are looked for: first beside the interpreter, whether or not it was activated."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _program(name: str) -> str:
    """A command of the environment that runs this."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise InvalidInput(f"{name} is not installed; pip install 'vpdr[flower]'")
    return found
