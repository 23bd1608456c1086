"""The overhead of a round between processes: a SuperLink and four SuperNodes on loopback.

    python benchmarks/flower_deployment.py [secure|insecure]

The same small run in one process is subtracted. The reference result is in benchmarks/README.md.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

from flower_rounds import process_tree

from vpdr.config import ExperimentOptions, load_experiment
from vpdr.flower.deployment import Deployment, go_offline
from vpdr.flower.server_app import ServerConfig
from vpdr.flower.simulation import simulate_in_process
from vpdr.records import RunRecord

SETTINGS = (
    "mechanism.kind=igpp",
    "benchmark.kind=synthetic",
    "benchmark.clients=4",
    "benchmark.samples=40",
    "train.epochs=1",
    "model.hidden=64",
    "run.rounds=3",
)


def median_seconds(record: RunRecord) -> float:
    """The median time of a message."""
    return statistics.median(message["seconds"]["exchange"] for message in record.exchange.messages)


def processor_seconds(roots: list[int]) -> float:
    """The processor time of processes and all their descendants, including ended ones."""
    total = 0
    for process in {pid for root in roots for pid in process_tree(root)}:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])  # own and children's user and system time
    return total / os.sysconf("SC_CLK_TCK")


def main() -> int:
    go_offline()
    config = load_experiment("paper", ExperimentOptions(settings=SETTINGS)).method_configs[0].config
    secure = sys.argv[1:2] != ["insecure"]
    with tempfile.TemporaryDirectory() as directory:
        in_process = median_seconds(simulate_in_process(config, Path(directory) / "process"))
        with Deployment(folder=Path(directory) / "up", config=config, secure=secure) as deployment:
            nodes = [deployment.processes.running[node_dir.name].pid for node_dir in deployment.node_dirs]
            before = processor_seconds(nodes)
            deployment.submit(ServerConfig(clients=4, minimum=4))
            record = deployment.wait_for_result()
            used = processor_seconds(nodes) - before
    deployed, messages = median_seconds(record), 1 + len(record.exchange.messages)
    security = "TLS and node keys" if secure else "no TLS"
    print(f"4 nodes, {security}, load {os.getloadavg()[0]:.1f}")
    print(f"{deployed:.1f} s per round, {in_process:.2f} s in one process")
    print(f"overhead per round: {deployed - in_process:.1f} s")
    print(f"processor time per message and node: {used / (4 * messages):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
