"""Rounds a minute and memory over Flower's messages: in one process, and with clients in Ray's workers.

    python benchmarks/flower_rounds.py             # 4, 20 and 100 clients, both engines
    python benchmarks/flower_rounds.py process     # or one engine: process, ray

Start-up is told apart: it is the time to the first round's end less one later round. The measurements of
record are in benchmarks/README.md.
"""

import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from vpdr.flower.offline import go_offline

SIZES, ROUNDS = (4, 20, 100), 3


def family(root: int) -> list[int]:
    """A process and all that came from it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        found.append(waiting.pop())
        waiting += parents.get(found[-1], [])
    return found


def memory(processes: list[int]) -> float:
    """GiB, shared pages counted once."""
    total = 0
    for process in processes:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 2**20


def watch(most: list[float], done: threading.Event) -> None:
    while not done.wait(1.0):
        most[0] = max(most[0], memory(family(os.getpid())))


def measure(engine: str, clients: int) -> None:
    """One size in a process of its own."""
    go_offline()
    from vpdr.flower.simulation import simulate_in_process, simulate_on_ray
    from vpdr.plan import load_experiment
    from vpdr.plan.experiment import Wishes

    settings = (
        "mechanism.kind=vpp",
        "regulariser.kind=dcr",
        "benchmark.kind=synthetic",
        f"benchmark.clients={clients}",
        "benchmark.samples=250",
        f"run.rounds={ROUNDS}",
    )
    plan = load_experiment("paper", Wishes(settings=settings)).arms[0].plan
    start = {"process": simulate_in_process, "ray": simulate_on_ray}[engine]
    marks, most, done = [time.perf_counter()], [0.0], threading.Event()
    threading.Thread(target=watch, args=(most, done), daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        start(plan, Path(folder) / "run", told=lambda _: marks.append(time.perf_counter()))
    done.set()
    each = (marks[-2] - marks[1]) / (len(marks) - 3)  # between the answers to the first and the last rounds
    print(f"result {60 / each:.2f} {max(0.0, marks[2] - marks[0] - 2 * each):.1f} {most[0]:.2f}")


def main() -> int:
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2], int(sys.argv[3]))
        return 0
    print(f"python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("engine    clients   rounds a minute   start, s   memory, GiB")
    for engine in sys.argv[1:] or ("process", "ray"):
        for clients in SIZES:
            command = [sys.executable, __file__, "measure", engine, str(clients)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            told = next(line for line in done.stdout.splitlines() if line.startswith("result"))
            speed, begin, size = told.split()[1:]
            print(f"{engine:<8}  {clients:>7}   {speed:>15}   {begin:>8}   {size:>11}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
