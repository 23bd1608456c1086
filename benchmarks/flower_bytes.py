"""Bytes that one client sends and receives in a round, compared with its prototypes.

    python benchmarks/flower_bytes.py      # exits 1 if an upload is more than 1.1 times its prototypes

Counted are the objects that Flower sends for a message: arrays, records and their headers. The reference
result is in benchmarks/README.md.
"""

import sys
import tempfile
from pathlib import Path

from flwr.app import Message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from vpdr.config import ExperimentOptions, load_experiment
from vpdr.flower.client_app import client_app
from vpdr.flower.owner import create_simulated_nodes
from vpdr.flower.server_app import ServerConfig, serve
from vpdr.flower.simulation import InProcessGrid

LIMIT, ROUNDS = 1.1, 20


def size(message: Message) -> int:
    return sum(len(each.deflate()) for each in get_all_nested_objects(message).values())


class MeasuringGrid(InProcessGrid):
    """Records the sizes of uploads, requests and prototypes."""

    sizes: list[tuple[int, int, int]]

    def handle_message(self, message: Message) -> Message:
        reply = super().handle_message(message)
        if message.metadata.message_type == "train" and "upload" in reply.content.array_records:
            (vectors,) = reply.content.array_records["upload"].to_numpy_ndarrays()
            self.sizes.append((size(reply), size(message), vectors.nbytes + 8 * len(vectors)))
        return reply


def measure(classes: int, metrics: str) -> tuple[int, int, int]:
    """The largest upload, the largest request, and the size of the prototypes in an upload."""
    settings = (
        "mechanism.kind=vpp",
        "regulariser.kind=dcr",
        "benchmark.kind=synthetic",
        "benchmark.clients=2",
        f"benchmark.classes={classes}",
        "benchmark.samples=100",
        f"run.rounds={ROUNDS}",
    )
    config = load_experiment("paper", ExperimentOptions(settings=settings)).method_configs[0].config
    with tempfile.TemporaryDirectory() as directory:
        node_dirs = create_simulated_nodes(config, Path(directory) / "nodes")
        for node_dir in node_dirs:
            policy = node_dir / "policy.toml"
            policy.write_text(policy.read_text().replace('"everything"', f'"{metrics}"'))
        grid = MeasuringGrid(client_app(), node_dirs)
        grid.sizes = []
        server_config = ServerConfig(clients=2, minimum=2, patience=0.0)
        serve(grid, config, Path(directory) / "out", server_config=server_config)
    return tuple(max(column) for column in zip(*grid.sizes, strict=True))


def main() -> int:
    print(f"FedProto + VPDR, d = 512, {ROUNDS} rounds, largest round; bytes of one client")
    print("classes  metrics sent   prototypes   upload   ratio   download (with the config)")
    worst = 0.0
    for classes in (7, 10):
        for metrics in ("nothing", "everything"):
            upload, download, prototypes = measure(classes, metrics)
            ratio = upload / prototypes
            worst = max(worst, ratio)
            print(f"{classes:>7}  {metrics:<12}  {prototypes:>11}  {upload:>7}  {ratio:>6.3f}  {download:>9}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
