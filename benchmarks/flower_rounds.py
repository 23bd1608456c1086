"""Rounds per minute and memory over Flower's messages: in one process, and with clients in Ray's workers.

    python benchmarks/flower_rounds.py             # 4, 20 and 100 clients, both engines
    python benchmarks/flower_rounds.py process     # or one engine: process, ray

The start-up time is the time to the end of the first round minus that of a later round. The reference results
are in benchmarks/README.md.
"""

import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from vpdr.flower.deployment import go_offline

SIZES, ROUNDS = (4, 20, 100), 3


def process_tree(root: int) -> list[int]:
    """The ids of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    tree, pending = [], [root]
    while pending:
        tree.append(pending.pop())
        pending += children.get(tree[-1], [])
    return tree


def memory_gib(processes: list[int]) -> float:
    """Proportional set size in GiB: shared pages count once."""
    total = 0
    for process in processes:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 2**20


def watch_memory(peak: list[float], done: threading.Event) -> None:
    while not done.wait(1.0):
        peak[0] = max(peak[0], memory_gib(process_tree(os.getpid())))


def measure(engine: str, clients: int) -> None:
    """Measure one engine and number of clients; runs in its own process."""
    go_offline()
    from vpdr.config import ExperimentOptions, load_experiment
    from vpdr.flower.simulation import simulate_in_process, simulate_on_ray

    settings = (
        "mechanism.kind=vpp",
        "regulariser.kind=dcr",
        "benchmark.kind=synthetic",
        f"benchmark.clients={clients}",
        "benchmark.samples=250",
        f"run.rounds={ROUNDS}",
    )
    config = load_experiment("paper", ExperimentOptions(settings=settings)).method_configs[0].config
    simulate = {"process": simulate_in_process, "ray": simulate_on_ray}[engine]
    times, peak, done = [time.perf_counter()], [0.0], threading.Event()
    threading.Thread(target=watch_memory, args=(peak, done), daemon=True).start()
    with tempfile.TemporaryDirectory() as directory:
        simulate(config, Path(directory) / "run", on_message=lambda _: times.append(time.perf_counter()))
    done.set()
    per_round = (times[-2] - times[1]) / (len(times) - 3)  # without the first and the last message
    startup = max(0.0, times[2] - times[0] - 2 * per_round)
    print(f"result {60 / per_round:.2f} {startup:.1f} {peak[0]:.2f}")


def main() -> int:
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2], int(sys.argv[3]))
        return 0
    print(f"python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("engine    clients   rounds a minute   start, s   memory, GiB")
    for engine in sys.argv[1:] or ("process", "ray"):
        for clients in SIZES:
            command = [sys.executable, __file__, "measure", engine, str(clients)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            result = next(line for line in output.splitlines() if line.startswith("result"))
            rounds, startup, memory = result.split()[1:]
            print(f"{engine:<8}  {clients:>7}   {rounds:>15}   {startup:>8}   {memory:>11}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
