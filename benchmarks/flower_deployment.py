"""What a round costs between processes, without training: SuperLink and four SuperNodes on loopback.

    python benchmarks/flower_deployment.py [secure|insecure]

The same tiny run in one process is subtracted. The measurement of record is in benchmarks/README.md.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

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


def main() -> int:
    go_offline()
    plan = load_experiment("paper", Wishes(settings=SETTINGS)).arms[0].plan
    secure = sys.argv[1:2] != ["insecure"]
    with tempfile.TemporaryDirectory() as folder:
        alone = seconds(simulate_in_process(plan, Path(folder) / "process"))
        with Deployment(folder=Path(folder) / "up", plan=plan, secure=secure) as deployment:
            deployment.submit(ServerTerms(clients=4, minimum=4))
            taken = seconds(deployment.result())
    how = "TLS and node keys" if secure else "no TLS"
    print(
        f"4 nodes, {how}, load {os.getloadavg()[0]:.1f}: {taken:.1f} s a round, {alone:.2f} s in one process"
    )
    print(f"overhead of a round: {taken - alone:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
