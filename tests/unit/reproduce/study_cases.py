"""Small settings for reproductions, and metrics of imaginary runs."""

from collections.abc import Callable, Sequence

from vpdr.reproduce.run import RunMetrics, StudyResults
from vpdr.reproduce.studies import CellKey, StudyCell

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
)
SMALL_OPTIONS = [part for setting in SMALL for part in ("--set", setting)]
DOMAINS = ("amazon", "caltech", "dslr", "webcam")


def run_metrics(average: float, validation: float | None = None, clients: Sequence[str] = DOMAINS) -> RunMetrics:
    """The metrics of a run in which all clients have the same accuracy."""
    return RunMetrics(
        metrics={**dict.fromkeys(clients, average), "avg": average, "std": 1.0},
        validation_accuracy=validation,
        privacy_statement="(1, 1e-05)-DP",
        clients=tuple(clients),
        wall_seconds=1.0,
        versions={"vpdr": "0"},
    )


def study_results(
    cells: Sequence[StudyCell], seeds: Sequence[int], metrics_of: Callable[[CellKey, float | None, int], RunMetrics]
) -> StudyResults:
    """The results of every run of every cell; `metrics_of` takes the cell's key, R and seed."""
    results = StudyResults()
    for cell in cells:
        for radius in cell.radii:
            for seed in seeds:
                results.metrics[cell.config_hash(radius, seed)] = metrics_of(cell.key, radius, seed)
    return results
