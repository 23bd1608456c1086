"""The processes of a deployment: environment, start and stop, logs and ports."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vpdr.errors import VpdrError

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
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def wait_for_port(port: int, seconds: float) -> bool:
    """Whether a server listens on this loopback port before the timeout."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return True
    return False


def last_lines(text: str, count: int = 4) -> str:
    """The end of a log in one line."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:]) or "no output"
