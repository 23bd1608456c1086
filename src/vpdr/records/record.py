"""One run as one JSON object; docs/record.md describes every field."""

import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy
import torch

from vpdr.plan.plan import Plan
from vpdr.privacy import Ledger
from vpdr.records.statement import ledger_states, privacy_statement

RECORD_VERSION = 1


def finished_record(
    plan: Plan, rounds: Sequence[Mapping[str, Any]], ledgers: Sequence[Ledger], wall_seconds: float
) -> dict[str, Any]:
    """The record of a run that came to its end."""
    return {
        "schema": "vpdr-record",
        "version": RECORD_VERSION,
        "name": plan.run.name,
        "identity": plan.identity,
        "seed": plan.run.seed,
        "plan": plan.to_data(),
        "clients": [ledger.client for ledger in ledgers],
        "rounds": list(rounds),
        "final": final_accuracies(rounds[-1]) if rounds else {},
        "privacy": privacy_statement(plan, ledgers),
        "ledgers": ledger_states(ledgers),
        "versions": versions(),
        "wall_seconds": wall_seconds,
    }


def final_accuracies(last: Mapping[str, Any]) -> dict[str, Any]:
    """Per client, with the unweighted average and the sample standard deviation over clients."""
    out: dict[str, Any] = {}
    scopes = {scope: None for content in last["clients"].values() for scope in content["accuracy"]}
    for scope in scopes:
        clients = {name: content["accuracy"].get(scope, {}) for name, content in last["clients"].items()}
        names = sorted({metric for found in clients.values() for metric in found})
        out[scope] = {name: spread({c: found.get(name) for c, found in clients.items()}) for name in names}
    return out


def spread(values: Mapping[str, float | None]) -> dict[str, Any]:
    """Values by client, their mean and their sample standard deviation."""
    known = [value for value in values.values() if value is not None and value == value]
    return {
        "clients": dict(values),
        "average": statistics.fmean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else None,
    }


def versions() -> dict[str, str]:
    """What computed it."""
    return {
        "vpdr": metadata.version("vpdr"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": str(numpy.__version__),
        "machine": f"{platform.system()} {platform.machine()}",
    }
