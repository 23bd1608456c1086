"""What a round costs between processes, without training: SuperLink and four SuperNodes on loopback.

    python benchmarks/flower_deployment.py [secure|insecure]

The same tiny run in one process is subtracted. The measurement of record is in benchmarks/README.md.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

from flower_rounds import family

from vpdr.flower.deployment import Deployment
from vpdr.flower.offline import go_offline
from vpdr.flower.post import ServerTerms
from vpdr.flower.simulation import simulate_in_process
from vpdr.plan import load_experiment
from vpdr.plan.experiment import Wishes

SETTINGS = (
    "benchmark.kind=synthetic",
    "benchmark.clients=4",
    "benchmark.samples=40",
    "train.epochs=1",
    "model.hidden=64",
    "run.rounds=3",
)


def seconds(record: dict) -> float:
    """Of the middle message."""
    return statistics.median(each["seconds"]["exchange"] for each in record["exchange"]["messages"])


def processor_seconds(roots: list[int]) -> float:
    """Of processes and all that came from them, the dead ones included."""
    total = 0
    for process in {member for root in roots for member in family(root)}:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])  # own and children's, in user and system mode
    return total / os.sysconf("SC_CLK_TCK")


def main() -> int:
    go_offline()
    plan = load_experiment("paper", Wishes(settings=SETTINGS)).arms[0].plan
    secure = sys.argv[1:2] != ["insecure"]
    with tempfile.TemporaryDirectory() as folder:
        alone = seconds(simulate_in_process(plan, Path(folder) / "process"))
        with Deployment(folder=Path(folder) / "up", plan=plan, secure=secure) as deployment:
            nodes = [deployment.processes.running[home.name].pid for home in deployment.homes]
            before = processor_seconds(nodes)
            deployment.submit(ServerTerms(clients=4, minimum=4))
            record = deployment.result()
            used = processor_seconds(nodes) - before
    taken, asked = seconds(record), 1 + len(record["exchange"]["messages"])
    how = "TLS and node keys" if secure else "no TLS"
    print(
        f"4 nodes, {how}, load {os.getloadavg()[0]:.1f}: {taken:.1f} s a round, {alone:.2f} s in one process"
    )
    print(f"overhead of a round: {taken - alone:.1f} s")
    print(f"processor time of a message and node: {used / (4 * asked):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
