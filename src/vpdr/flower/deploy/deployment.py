"""App directories for `flwr run`, and a whole deployment on this machine."""

import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from vpdr.config import RunConfig
from vpdr.errors import InvalidInput
from vpdr.flower.deploy.keys import Keys
from vpdr.flower.deploy.processes import (
    OFFLINE_VARIABLES,
    ProcessFailed,
    ProcessGroup,
    free_ports,
    last_lines,
    wait_for_port,
)
from vpdr.flower.nodes import ServerConfig
from vpdr.flower.server_app import DONE_FILE, load_single_config
from vpdr.flower.simulation import create_simulated_nodes
from vpdr.io import dump_toml, write_atomically, write_error
from vpdr.records import read_record

LOOPBACK, CONNECTION = "127.0.0.1", "vpdr"
START_SECONDS = 120.0  # for a process to start on a loaded machine
TEMPLATE_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "policy.example.toml": "policy.example.toml",
    "client.py": "vpdr_app/client.py",
    "server.py": "vpdr_app/server.py",
}


def write_app(directory: Path, config: RunConfig) -> list[Path]:
    """Write an app directory that runs this configuration.

    Raises:
        InvalidInput: the directory is not empty.
    """
    if directory.exists() and not directory.is_dir():
        raise InvalidInput(f"{directory} is a file; choose a new directory for the app")
    if directory.exists() and any(directory.iterdir()):
        raise InvalidInput(f"{directory} is not empty; choose a new directory for the app")
    source = resources.files("vpdr.flower.deploy.template")
    content = {target: (source / name).read_bytes() for name, target in TEMPLATE_FILES.items()}
    content["vpdr_app/__init__.py"] = b'"""A vpdr run as a Flower app."""\n'
    content["vpdr_app/plan.toml"] = dump_toml(config.to_dict()).encode()
    try:
        (directory / "vpdr_app").mkdir(parents=True)
    except OSError as error:
        raise write_error(directory, error) from error
    for name, data in content.items():
        write_atomically(directory / name, data)
    return [directory / name for name in content]


@dataclass(slots=True, kw_only=True)
class Deployment:
    """A SuperLink and one SuperNode per client as processes on loopback; a context manager.

    Args:
        folder: directory of the app, keys, node directories, logs and results.
        config: the run.
        secure: use TLS and node authentication.
    """

    folder: Path
    config: RunConfig
    secure: bool = True
    node_dirs: list[Path] = field(default_factory=list, init=False)
    ports: list[int] = field(default_factory=list, init=False)  # of the SuperLink, then of each node
    processes: ProcessGroup = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        environment = {**os.environ, **OFFLINE_VARIABLES, "FLWR_HOME": str(self.folder / "flower")}
        environment["PATH"] = _command_search_path()  # Flower starts its own commands by name
        self.processes = ProcessGroup(self.folder / "logs", environment)

    @property
    def keys(self) -> Keys:
        """The certificates and node keys."""
        return Keys(self.folder / "keys")

    @property
    def results(self) -> Path:
        """The directory of the record."""
        return self.folder / "results"

    def __enter__(self) -> "Deployment":
        try:
            self._prepare()
            self._start_superlink()
            for index, node_dir in enumerate(self.node_dirs):
                if self.secure:
                    self.register(node_dir.name)
                self.start_node(index)
        except BaseException:
            self.processes.stop_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.stop_all()

    def _prepare(self) -> None:
        app = self.folder / "app"
        if not app.exists():
            write_app(app, self.config)
        if load_single_config(str(app / "vpdr_app" / "plan.toml")).config_hash != self.config.config_hash:
            raise InvalidInput(f"{app} runs another plan; choose another --out")
        self.node_dirs = create_simulated_nodes(self.config, self.folder / "nodes")
        self.ports = free_ports(1 + len(self.node_dirs))
        (self.folder / "flower").mkdir(exist_ok=True)
        connection: dict[str, Any] = {"address": f"{LOOPBACK}:{self.ports[0]}", "insecure": not self.secure}
        if self.secure:
            self.keys.make([LOOPBACK, "localhost"], [node_dir.name for node_dir in self.node_dirs])
            connection = {**connection, "root-certificates": str(self.keys.ca_certificate)}
        settings = dump_toml({"superlink": {CONNECTION: connection}})
        write_atomically(self.folder / "flower" / "config.toml", settings.encode())

    def _start_superlink(self) -> None:
        command = [_find_program("flower-superlink"), "--host", LOOPBACK, "--port", str(self.ports[0])]
        command += self._superlink_options() if self.secure else ["--insecure"]
        self.processes.start("superlink", command)
        if not wait_for_port(self.ports[0], START_SECONDS):
            log = self.processes.read_log("superlink")
            raise ProcessFailed(f"the SuperLink did not start: {last_lines(log)}")
        self.processes.check_running("superlink")

    def _superlink_options(self) -> list[str]:
        keys = self.keys
        certificates = ["--ssl-certfile", str(keys.server_certificate), "--ssl-keyfile", str(keys.server_key)]
        return [*certificates, "--ssl-ca-certfile", str(keys.ca_certificate), "--enable-supernode-auth"]

    def register(self, name: str) -> None:
        """Register the public key of a node."""
        public = str(self.keys.directory / f"{name}.pub")
        command = [_find_program("flwr"), "supernode", "register", public, CONNECTION]
        self.processes.run_to_completion(f"register-{name}", command, START_SECONDS)

    def start_node(self, index: int, key: str | None = None) -> str:
        """Start or restart a node; returns the name of its process. `key` is the name of its key pair."""
        node_dir = self.node_dirs[index]
        command = [_find_program("flower-supernode"), "--superlink", f"{LOOPBACK}:{self.ports[0]}"]
        command += ["--host", LOOPBACK, "--port", str(self.ports[1 + index])]
        command += ["--node-config", f"folder={json.dumps(str(node_dir))}"]
        if self.secure:
            command += ["--root-certificates", str(self.keys.ca_certificate)]
            command += ["--auth-supernode-private-key", str(self.keys.node_key(key or node_dir.name))]
        else:
            command += ["--insecure"]
        self.processes.start(node_dir.name, command)
        return node_dir.name

    def submit(self, server_config: ServerConfig, *, resume: bool = False) -> None:
        """Submit the run; its progress is in logs/run.log."""
        (self.results / DONE_FILE).unlink(missing_ok=True)
        run_config = {name.replace("_", "-"): value for name, value in asdict(server_config).items()}
        run_config |= {"out": str(self.results), "resume": resume}
        values = " ".join(f"{name}={json.dumps(value)}" for name, value in run_config.items())
        command = [_find_program("flwr"), "run", str(self.folder / "app"), CONNECTION]
        self.processes.start("run", [*command, "--stream", "-c", values])

    def wait_for_result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the end of the run and return its record.

        Raises:
            ProcessFailed: the run failed; the message holds the reason.
        """
        self.processes.running["run"].wait(timeout)
        self.processes.discard("run")
        done_file = self.results / DONE_FILE
        outcome = read_record(done_file) if done_file.exists() else {}
        if not outcome.get("ok"):
            reason = outcome.get("error") or last_lines(self.processes.read_log("run"))
            raise ProcessFailed(f"the run failed: {reason}")
        return read_record(self.results / "record.json")


def _command_search_path() -> str:
    """PATH with the directory of the interpreter first, whether or not its environment is activated."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _find_program(name: str) -> str:
    """The path of a command, next to the interpreter or on PATH."""
    candidate = Path(sys.executable).with_name(name)
    program = str(candidate) if candidate.exists() else shutil.which(name)
    if not program:
        raise InvalidInput(f"{name} is not installed; pip install 'vpdr[flower]'")
    return program
