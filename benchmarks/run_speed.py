"""How long whole runs take, and how that grows with clients.

    python benchmarks/run_speed.py speed      # 20 rounds, 4 clients, FedProto + VPDR, cached features
    python benchmarks/run_speed.py clients    # 4, 40 and 400 clients: time per client and round, memory

The measurements of record are in benchmarks/README.md.
"""

import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vpdr.config import ExperimentOptions, load_experiment
from vpdr.federation import build, run_federation, simulate

VPDR = ("mechanism.kind=vpp", "regulariser.kind=dcr")
SPEED_LIMIT, MEMORY_LIMIT = 10.0, 4.0


def speed() -> int:
    settings = (*VPDR, "benchmark.kind=quickstart", "benchmark.samples=800")
    plan = load_experiment("paper", ExperimentOptions(settings=settings)).method_configs[0].config
    build(plan)  # features are in the cache from here on
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run_federation(plan, Path(folder) / "run")
        taken = time.perf_counter() - begin
    print(f"20 rounds, 4 clients of 600 samples, d = 512, FedProto + VPDR: {taken:.1f} s, limit {SPEED_LIMIT:g}")
    return 0 if taken <= SPEED_LIMIT else 1


def measure(clients: int) -> None:
    """One size in a process of its own, so that its memory is its own."""
    settings = (
        *VPDR,
        "benchmark.kind=synthetic",
        f"benchmark.clients={clients}",
        "benchmark.samples=250",
        "run.rounds=2",
    )
    plan = load_experiment("paper", ExperimentOptions(settings=settings)).method_configs[0].config
    federation = build(plan)
    begin = time.perf_counter()
    simulate(federation)
    each = (time.perf_counter() - begin) / (2 * clients)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{clients} {each:.6f} {memory:.3f}")


def clients() -> int:
    print("clients   ms per client and round   peak memory, GiB")
    worst = 0.0
    for count in (4, 40, 400):
        done = subprocess.run(
            [sys.executable, __file__, "measure", str(count)], capture_output=True, text=True, check=True
        )
        _, each, memory = done.stdout.split()
        worst = max(worst, float(memory))
        print(f"{count:>7}   {1e3 * float(each):>23.1f}   {float(memory):>16.2f}")
    return 0 if worst <= MEMORY_LIMIT else 1


def main() -> int:
    what = sys.argv[1] if len(sys.argv) > 1 else "speed"
    if what == "measure":
        measure(int(sys.argv[2]))
        return 0
    print(f"python {platform.python_version()}, {platform.machine()}")
    return {"speed": speed, "clients": clients}[what]()


if __name__ == "__main__":
    sys.exit(main())
