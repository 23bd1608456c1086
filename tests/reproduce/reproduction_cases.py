"""Small reproductions and made-up harvests."""

from vpdr.reproduce.cells import Cell
from vpdr.reproduce.running import Harvest, Measured

SMALL = (
    "benchmark.kind=synthetic",
    "benchmark.clients=2",
    "benchmark.classes=3",
    "benchmark.samples=30",
    "model.dim=8",
    "model.width=4",
    "model.hidden=8",
    "run.rounds=2",
    "train.batch=16",
    "framework.fedtgp.epochs=1",
    "framework.mpft.epochs=1",
    "framework.mpft.hidden=8",
)
SETTINGS = [part for setting in SMALL for part in ("--set", setting)]
DOMAINS = ("amazon", "caltech", "dslr", "webcam")


def measured(average: float, validation: float | None = None, clients=DOMAINS, **more: float) -> Measured:
    reading = {**dict.fromkeys(clients, average), "avg": average, "std": 1.0, **more}
    return Measured(
        reading=reading,
        validation=validation,
        sentence="(1, 1e-05)-DP",
        clients=tuple(clients),
        wall_seconds=1.0,
        versions={"vpdr": "0"},
    )


def harvest(cells: list[Cell], seeds, score) -> Harvest:
    """Every run of every cell; `score` of place, R and seed gives what was measured."""
    found = Harvest()
    for cell in cells:
        for radius in cell.radii:
            for seed in seeds:
                found.results[cell.identity(radius, seed)] = score(cell.place, radius, seed)
    return found
