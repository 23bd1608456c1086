"""Processes that are started, watched and ended by their ids, each with its children and its log."""

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

GRACE_SECONDS = 5.0


class ProcessFailed(VpdrError, RuntimeError):
    """A process that should be running is not, or one that should have ended well did not."""


@dataclass(slots=True)
class Processes:
    """All processes of one deployment."""

    logs: Path
    environment: Mapping[str, str]
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str]) -> int:
        """Start one in a group of its own; its id is written beside its log."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its children end with it
            )
        self.running[name] = process
        (self.logs / f"{name}.pid").write_text(f"{process.pid}\n")
        return process.pid

    def finish(self, name: str, command: Sequence[str], timeout: float) -> str:
        """Run one to its end and return what it said."""
        begin = len(self.log(name))
        self.start(name, command)
        try:
            code = self.running[name].wait(timeout)
        except subprocess.TimeoutExpired:
            self.stop(name)
            raise ProcessFailed(f"{name} did not end within {timeout:g} s; see {self.logs}") from None
        self.forget(name)
        said = self.log(name)[begin:]
        if code != 0:
            raise ProcessFailed(f"{name} ended with code {code}: {tail(said)}")
        return said

    def forget(self, name: str) -> None:
        """One that has ended by itself."""
        self.running.pop(name, None)
        (self.logs / f"{name}.pid").unlink(missing_ok=True)

    def log(self, name: str) -> str:
        """All that a process has said so far."""
        path = self.logs / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def check(self, name: str) -> None:
        """Refuse to go on without a process that has ended."""
        code = self.running[name].poll()
        if code is not None:
            raise ProcessFailed(f"{name} ended with code {code}: {tail(self.log(name))}")

    def kill(self, name: str) -> None:
        """End one at once, as a power cut would; its children too."""
        process = self.running.pop(name)
        _signal(process, signal.SIGKILL)
        process.wait()
        self.forget(name)

    def stop(self, name: str) -> None:
        """Ask one to end, and after a while make it; children that outlive it are ended with it."""
        process = self.running.pop(name)
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        _signal(process, signal.SIGKILL)
        process.wait()
        self.forget(name)

    def stop_all(self) -> None:
        """In the reverse order of their start."""
        for name in reversed(list(self.running)):
            self.stop(name)


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    """To the group that the process leads, which holds nobody else."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody uses at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def wait_for_port(port: int, seconds: float) -> bool:
    """Whether somebody listens on loopback before the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return True
    return False


def tail(text: str, lines: int = 4) -> str:
    """The end of a log in one line."""
    found = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return " | ".join(found[-lines:]) or "it said nothing"
