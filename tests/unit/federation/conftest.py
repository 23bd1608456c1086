"""Tiny federations."""

import json
from dataclasses import asdict, is_dataclass
from typing import Any

from vpdr.config import ExperimentOptions, RunConfig, load_experiment

TINY = (
    "benchmark.kind=synthetic",
    "benchmark.clients=3",
    "benchmark.classes=4",
    "benchmark.samples=24",
    "model.dim=12",
    "model.width=4",
    "model.hidden=8",
    "run.rounds=3",
    "train.batch=8",
)
# for every framework, so that hashes of tests stay the same; the method is IGPP unless a test names another
TINY_BASELINE = (
    *TINY,
    "framework.fedtgp.epochs=3",
    "framework.mpft.epochs=2",
    "framework.mpft.hidden=8",
    "regulariser.kind=none",
)


def tiny(*settings: str, source: str = "paper") -> RunConfig:
    return load_experiment(source, ExperimentOptions(assumed=(*TINY_BASELINE, *settings))).method_configs[0].config


def timeless(record: Any) -> str:
    """A record without its clocks, as text."""

    def strip(value: Any) -> Any:
        if is_dataclass(value):
            value = asdict(value)
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k not in {"seconds", "wall_seconds", "versions"}}
        return [strip(inner) for inner in value] if isinstance(value, list | tuple) else value

    return json.dumps(strip(record), sort_keys=True)
