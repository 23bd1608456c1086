"""App directories for `flwr run`, and a whole deployment on this machine: keys, processes, logs and results."""

import contextlib
import datetime
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpdr.config import RunConfig
from vpdr.flower import owner, server_app
from vpdr.io import dump_toml, read_json, write_atomically, write_error
from vpdr.records import RunRecord, read_record
from vpdr.validation import InvalidInput, VpdrError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

VALIDITY_DAYS = 30  # longer deployments should use certificates of their own authority


class Keys:
    """A certificate authority, a server certificate and one key pair per node; secrets are for their owner only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca_certificate = directory / "ca.crt"  # with which nodes and users verify the server
        self.server_certificate = directory / "server.pem"
        self.server_key = directory / "server.key"

    def node_key(self, name: str) -> Path:
        """The private key of a node; the public key has the suffix .pub."""
        return self.directory / name

    def make(self, hosts: Sequence[str], nodes: Sequence[str]) -> None:
        """Write the server certificate for these hosts and the keys of these nodes, unless they exist."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hosts and not self.server_certificate.exists():
            self._make_certificates(hosts)
        for node in nodes:
            if not self.node_key(node).exists():
                self.make_node_key(node)

    def make_node_key(self, name: str) -> None:
        """Write a P-384 key pair in OpenSSH format, as Flower needs it; the node must still be registered."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

        key = _new_key()
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        write_atomically(self.node_key(name), secret, mode=0o600)
        write_atomically(self.directory / f"{name}.pub", public + b"\n")

    def _make_certificates(self, hosts: Sequence[str]) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        ca_key, server_key = _new_key(), _new_key()
        secret = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        ca_certificate = _certificate("vpdr", ca_key, ca_key).public_bytes(Encoding.PEM)
        server_certificate = _certificate(hosts[0], server_key, ca_key, hosts).public_bytes(Encoding.PEM)
        write_atomically(self.ca_certificate, ca_certificate)
        write_atomically(self.server_key, secret, mode=0o600)
        write_atomically(self.server_certificate, server_certificate)


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _certificate(
    name: str, key: "EllipticCurvePrivateKey", signer: "EllipticCurvePrivateKey", hosts: Sequence[str] = ()
) -> "Certificate":
    """A certificate for these hosts; without hosts, one of an authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vpdr")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=VALIDITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if not hosts:
        unused = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment"]
        unused += ["key_agreement", "encipher_only", "decipher_only"]
        usage = x509.KeyUsage(key_cert_sign=True, crl_sign=True, **dict.fromkeys(unused, False))
        return builder.add_extension(usage, critical=True).sign(signer, hashes.SHA384())
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return builder.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(signer, hashes.SHA384())


# The processes of a deployment: environment, start and stop, logs and ports.

LOOPBACK, CONNECTION = "127.0.0.1", "vpdr"
START_SECONDS = 120.0  # for a process to start on a loaded machine
GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
OFFLINE_VARIABLES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "HF_HUB_OFFLINE": "1",
}
"""Environment variables against telemetry, update checks and package installation by Flower and Ray."""


def go_offline() -> None:
    """Set `OFFLINE_VARIABLES` where they are not set; call it before Flower is imported."""
    for name, value in OFFLINE_VARIABLES.items():
        os.environ.setdefault(name, value)


class ProcessFailed(VpdrError, RuntimeError):
    """A process ended too early, or with an error."""


@dataclass(slots=True)
class ProcessGroup:
    """The processes of one deployment, each in its own process group, with a log and a pid file."""

    logs: Path
    environment: Mapping[str, str]
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str]) -> int:
        """Start a process; returns its id."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group, so that its children end with it
            )
        self.running[name] = process
        (self.logs / f"{name}.pid").write_text(f"{process.pid}\n")
        return process.pid

    def run_to_completion(self, name: str, command: Sequence[str], timeout: float) -> str:
        """Run a process to its end and return its output."""
        log_length = len(self.read_log(name))
        self.start(name, command)
        try:
            code = self.running[name].wait(timeout)
        except subprocess.TimeoutExpired:
            self.stop(name)
            raise ProcessFailed(f"{name} did not end within {timeout:g} s; see {self.logs}") from None
        self.discard(name)
        output = self.read_log(name)[log_length:]
        if code != 0:
            raise ProcessFailed(f"{name} ended with code {code}: {last_lines(output)}")
        return output

    def discard(self, name: str) -> None:
        """Forget a process that has ended."""
        self.running.pop(name, None)
        (self.logs / f"{name}.pid").unlink(missing_ok=True)

    def read_log(self, name: str) -> str:
        """The output of a process so far."""
        path = self.logs / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def check_running(self, name: str) -> None:
        """Raise `ProcessFailed` if a process has ended."""
        code = self.running[name].poll()
        if code is not None:
            raise ProcessFailed(f"{name} ended with code {code}: {last_lines(self.read_log(name))}")

    def stop(self, name: str) -> None:
        """Terminate a process, and kill it and its children after `GRACE_SECONDS`."""
        process = self.running.pop(name)
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.discard(name)

    def stop_all(self) -> None:
        """Stop all processes in the reverse order of their start."""
        for name in reversed(list(self.running)):
            self.stop(name)


def free_ports(count: int) -> list[int]:
    """Unused ports on loopback."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for_port(port: int, seconds: float) -> bool:
    """Whether a server listens on this loopback port before the timeout."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return True
        time.sleep(0.2)
    return False


def last_lines(text: str, count: int = 4) -> str:
    """The end of a log in one line."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:]) or "no output"


TEMPLATE_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "policy.example.toml": "policy.example.toml",
    "client.py": "vpdr_app/client.py",
    "server.py": "vpdr_app/server.py",
}


def write_app(directory: Path, config: RunConfig) -> list[Path]:
    """Write an app directory that runs this configuration; InvalidInput if it is not empty."""
    if directory.exists() and not directory.is_dir():
        raise InvalidInput(f"{directory} is a file; choose a new directory for the app")
    if directory.exists() and any(directory.iterdir()):
        raise InvalidInput(f"{directory} is not empty; choose a new directory for the app")
    source = resources.files("vpdr.flower.template")
    content = {target: (source / name).read_bytes() for name, target in TEMPLATE_FILES.items()}
    content["vpdr_app/__init__.py"] = b'"""A vpdr run as a Flower app."""\n'
    content["vpdr_app/plan.toml"] = dump_toml(config.to_plan()).encode()
    try:
        (directory / "vpdr_app").mkdir(parents=True)
    except OSError as error:
        raise write_error(directory, error) from error
    for name, data in content.items():
        write_atomically(directory / name, data)
    return [directory / name for name in content]


@dataclass(slots=True, kw_only=True)
class Deployment:
    """A SuperLink and one SuperNode per client as processes on loopback; a context manager."""

    folder: Path  # of the app, keys, node directories, logs and results
    config: RunConfig
    secure: bool = True  # with TLS and node authentication
    node_dirs: list[Path] = field(default_factory=list, init=False)
    ports: list[int] = field(default_factory=list, init=False)  # of the SuperLink, then of each node
    processes: ProcessGroup = field(init=False)
    keys: Keys = field(init=False)
    results: Path = field(init=False)  # the directory of the record

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.keys, self.results = Keys(self.folder / "keys"), self.folder / "results"
        environment = {**os.environ, **OFFLINE_VARIABLES, "FLWR_HOME": str(self.folder / "flower")}
        # Flower starts its own commands by name: they are beside the interpreter, activated or not
        search_path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        environment["PATH"] = os.pathsep.join(search_path)
        self.processes = ProcessGroup(self.folder / "logs", environment)

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
        if server_app.load_single_config(str(app / "vpdr_app" / "plan.toml")).config_hash != self.config.config_hash:
            raise InvalidInput(f"{app} runs another plan; choose another --out")
        self.node_dirs = owner.create_simulated_nodes(self.config, self.folder / "nodes")
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
        if self.secure:
            keys = self.keys
            command += ["--ssl-certfile", str(keys.server_certificate), "--ssl-keyfile", str(keys.server_key)]
            command += ["--ssl-ca-certfile", str(keys.ca_certificate), "--enable-supernode-auth"]
        else:
            command += ["--insecure"]
        self.processes.start("superlink", command)
        if not wait_for_port(self.ports[0], START_SECONDS):
            log = self.processes.read_log("superlink")
            raise ProcessFailed(f"the SuperLink did not start: {last_lines(log)}")
        self.processes.check_running("superlink")

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

    def submit(self, server_config: server_app.ServerConfig, *, resume: bool = False) -> None:
        """Submit the run; its progress is in logs/run.log."""
        (self.results / server_app.DONE_FILE).unlink(missing_ok=True)
        run_config = {name.replace("_", "-"): value for name, value in asdict(server_config).items()}
        run_config |= {"out": str(self.results), "resume": resume}
        values = " ".join(f"{name}={json.dumps(value)}" for name, value in run_config.items())
        command = [_find_program("flwr"), "run", str(self.folder / "app"), CONNECTION]
        self.processes.start("run", [*command, "--stream", "-c", values])

    def wait_for_result(self, timeout: float | None = None) -> RunRecord:
        """Wait for the end of the run and return its record; `ProcessFailed` with the reason if it failed."""
        self.processes.running["run"].wait(timeout)
        self.processes.discard("run")
        done_file = self.results / server_app.DONE_FILE
        outcome = read_json(done_file) if done_file.exists() else {}
        if not outcome.get("ok"):
            reason = outcome.get("error") or last_lines(self.processes.read_log("run"))
            raise ProcessFailed(f"the run failed: {reason}")
        return read_record(self.results / "record.json")


def _find_program(name: str) -> str:
    """The path of a command, next to the interpreter or on PATH."""
    candidate = Path(sys.executable).with_name(name)
    program = str(candidate) if candidate.exists() else shutil.which(name)
    if not program:
        raise InvalidInput(f"{name} is not installed; pip install 'vpdr[flower]'")
    return program
