"""Tiny federations."""

import json
from typing import Any

from vpdr.plan import Plan, load_experiment
from vpdr.plan.experiment import Wishes

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
    "framework.fedtgp.epochs=3",
    "framework.mpft.epochs=2",
    "framework.mpft.hidden=8",
)


def tiny(*settings: str, source: str = "paper") -> Plan:
    return load_experiment(source, Wishes(settings=(*TINY, *settings))).arms[0].plan


def timeless(record: Any) -> str:
    """A record without its clocks, as text."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k not in {"seconds", "wall_seconds", "versions"}}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    return json.dumps(strip(record), sort_keys=True)
