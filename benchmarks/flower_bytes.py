"""How much one client sends and receives in a round, beside the prototypes themselves.

    python benchmarks/flower_bytes.py      # exits 1 if an upload is more than 1.1 times its prototypes

Counted are the objects that Flower puts on the wire for a message: arrays, records and their headings.
The measurement of record is in benchmarks/README.md.
"""

import sys
import tempfile
from pathlib import Path

from flwr.app import Message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from vpdr.flower.client_app import client_app
from vpdr.flower.grid import InProcessGrid
from vpdr.flower.post import ServerTerms
from vpdr.flower.serve import serve
from vpdr.flower.simulation import simulated_homes
from vpdr.plan import load_experiment
from vpdr.plan.experiment import Wishes

LIMIT, ROUNDS = 1.1, 20


def size(message: Message) -> int:
    return sum(len(each.deflate()) for each in get_all_nested_objects(message).values())


class Scales(InProcessGrid):
    """Weighs everything that passes."""

    def answered(self, message: Message) -> Message:
        reply = super().answered(message)
        if message.metadata.message_type == "train" and "upload" in reply.content.array_records:
            (vectors,) = reply.content.array_records["upload"].to_numpy_ndarrays()
            self.seen.append((size(reply), size(message), vectors.nbytes + 8 * len(vectors)))
        return reply


def measured(classes: int, metrics: str) -> tuple[int, int, int]:
    """The heaviest upload, the heaviest message down, and the prototypes in an upload."""
    settings = (
        "mechanism.kind=vpp",
        "regulariser.kind=dcr",
        "benchmark.kind=synthetic",
        "benchmark.clients=2",
        f"benchmark.classes={classes}",
        "benchmark.samples=100",
        f"run.rounds={ROUNDS}",
    )
    plan = load_experiment("paper", Wishes(settings=settings)).arms[0].plan
    with tempfile.TemporaryDirectory() as folder:
        homes = simulated_homes(plan, Path(folder) / "nodes")
        for home in homes:
            policy = home / "policy.toml"
            policy.write_text(policy.read_text().replace('"everything"', f'"{metrics}"'))
        grid = Scales(client_app(), homes)
        grid.seen = []
        serve(grid, plan, Path(folder) / "out", terms=ServerTerms(clients=2, minimum=2, patience=0.0))
    return tuple(max(column) for column in zip(*grid.seen, strict=True))


def main() -> int:
    print(f"FedProto + VPDR, d = 512, {ROUNDS} rounds, heaviest round; bytes for one client")
    print("classes  metrics told   prototypes   upload   ratio   download (with the plan)")
    worst = 0.0
    for classes in (7, 10):
        for metrics in ("nothing", "everything"):
            up, down, core = measured(classes, metrics)
            worst = max(worst, up / core)
            print(f"{classes:>7}  {metrics:<12}  {core:>11}  {up:>7}  {up / core:>6.3f}  {down:>9}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
